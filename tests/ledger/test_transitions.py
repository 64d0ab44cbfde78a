import asyncpg
import pytest

from activities.ledger.database import Pool
from tests.ledger.planting import plant
from workflows.domain.states import TRANSITIONS, State, is_legal


async def test_the_database_knows_the_same_transitions_as_the_domain(pool: Pool) -> None:
    """The table that the trigger reads is the table that the code reads."""
    rows = await pool.fetch("SELECT before, after FROM charge_transitions")
    domain = {(before.value, after.value) for before, afters in TRANSITIONS.items() for after in afters}
    assert {(row["before"], row["after"]) for row in rows} == domain


async def test_the_database_takes_exactly_the_legal_steps(pool: Pool) -> None:
    """Every pair of states is tried: what the table does not have, no UPDATE can do."""
    for number, before in enumerate(State):
        charge_id = await plant(pool, before, customer=f"cus_{number}")
        for after in set(State) - {before}:
            async with pool.acquire() as connection:
                attempt = connection.transaction()
                await attempt.start()
                try:
                    await connection.execute(
                        "UPDATE charges SET state = $2 WHERE charge_id = $1", charge_id, after
                    )
                    taken = True
                except asyncpg.CheckViolationError:
                    taken = False
                await attempt.rollback()
            assert taken == is_legal(before, after), f"{before} -> {after}"


async def test_what_no_code_may_do_the_database_does_not(pool: Pool) -> None:
    """Versions go up by one, fences never down, a PaymentIntent is written once per create version."""
    charge_id = await plant(pool, State.PREPARED, payment_intent="pi_1")
    for step in (
        "state = 'confirming', confirm_version = 2, create_version = 1",
        "state = 'creating', create_version = 2",
        "fence = -1",
        "payment_intent = 'pi_2'",
        "payment_intent = NULL",
        "state = 'nonsense'",
        "amount_minor = -1",
    ):
        with pytest.raises(asyncpg.CheckViolationError):
            await pool.execute(f"UPDATE charges SET {step} WHERE charge_id = $1", charge_id)


async def test_a_line_is_in_the_ledger_once(pool: Pool) -> None:
    """The same account, customer, period and line can not be planned twice, whatever its charge id."""
    await plant(pool)
    with pytest.raises(asyncpg.UniqueViolationError):
        await pool.execute(
            "INSERT INTO charges"
            " SELECT (jsonb_populate_record(c, jsonb_build_object('charge_id', $1::text))).* FROM charges c",
            "f" * 32,
        )
