"""Vault keys in the ledger: who gets one, when, and that none comes back by itself."""

import asyncio
from datetime import timedelta

import asyncpg
import pytest
from pydantic import SecretStr

from activities.ledger.control import ControlLedger
from activities.ledger.database import Pool
from activities.ledger.frozen_plan import PlanTerms
from activities.ledger.planning import StagedLine
from activities.ledger.runs import RunLedger
from activities.ledger.vault import VaultLedger
from activities.vault import (
    CHARGING,
    PLANNING,
    READING,
    RECONCILING,
    REFUNDING,
    RESENDING,
    RunVault,
    issue_custom_key,
)
from deploy.postgres import Database
from tests.ledger.planting import ACCOUNT, PERIOD, RUN, commit_plan, run_as_owner
from workflows.contracts import RunKey
from workflows.domain.errors import CredentialsRefused, InvalidInput, RefusedToStart
from workflows.domain.keys import Identity
from workflows.domain.vault import SCOPES, Scope
from workflows.domain.vault_keys import Mode, parse_vault_key

KEY = RunKey(run_id=RUN, account=ACCOUNT)
SECRET = SecretStr("a vault secret of at least 32 bytes!")


@pytest.fixture
def vault(pool: Pool) -> RunVault:
    """The vault as a worker has it."""
    return RunVault(VaultLedger(pool), secret=SECRET, mode=Mode.TEST)


async def lock(pool: Pool, run_id: str = RUN) -> None:
    """Let the run begin."""
    await RunLedger(pool).lock(
        run_id,
        account=ACCOUNT,
        period=PERIOD,
        owner="first",
        source="s",
        source_sha256="ab",
        started_by="tests",
    )


async def plan(pool: Pool, *, approved: bool = True) -> str:
    """Let the run begin and plan a line of 12.50 USD and one of 20.00 EUR; return the plan's hash."""
    await lock(pool)
    lines = [
        StagedLine(
            Identity.of(ACCOUNT, customer, PERIOD, "base").charge_id, customer, "base", row, currency, amount,
            "pm_1", None, None,
        )
        for row, (customer, currency, amount) in enumerate((("cus_1", "usd", 1_250), ("cus_2", "eur", 2_000)))
    ]  # fmt: skip
    terms = PlanTerms(run_id=RUN, account=ACCOUNT, period=PERIOD, slice_lines=10)
    return (await commit_plan(pool, terms, lines, approved=approved)).plan_hash or ""


async def stored(pool: Pool) -> list[asyncpg.Record]:
    """Return every key in the ledger, oldest first."""
    return await pool.fetch("SELECT * FROM vault_keys ORDER BY issued_at, serial")


def id_of(key: SecretStr) -> str:
    """Return a key's public id."""
    known = parse_vault_key(key.get_secret_value())
    assert known is not None
    return known.key_id


async def test_a_run_gets_its_charging_key_with_the_approval(pool: Pool, vault: RunVault) -> None:
    """Before its plan is approved there is none; after it every process derives the same one."""
    plan_hash = await plan(pool, approved=False)
    with pytest.raises(RefusedToStart, match="not approved"):
        await vault.key_for(KEY, CHARGING)
    assert await stored(pool) == []
    await ControlLedger(pool).approve(RUN, plan_hash=plan_hash, who="somebody", reason="looked at it")
    other = RunVault(VaultLedger(pool), secret=SECRET, mode=Mode.TEST)
    keys = await asyncio.gather(*(each.key_for(KEY, CHARGING) for each in (vault, other, vault, other)))
    assert len({key.get_secret_value() for key in keys}) == 1
    [row] = await stored(pool)
    assert (row["key_id"], row["scope"], row["budget"]) == (id_of(keys[0]), "billing", RUN)
    assert set(row["allow"]) == SCOPES[Scope.BILLING]
    assert row["expires_at"] - row["issued_at"] >= timedelta(days=35)


async def test_the_ledger_keeps_nothing_from_which_the_key_follows(pool: Pool, vault: RunVault) -> None:
    """Whoever reads the whole table finds hash and public id, and no more of the key."""
    await plan(pool)
    key = (await vault.key_for(KEY, CHARGING)).get_secret_value()
    text = repr(await stored(pool))
    assert key[18:30] not in text
    assert id_of(SecretStr(key)) in text


async def test_what_a_run_may_move_comes_from_its_approved_plan(pool: Pool, vault: RunVault) -> None:
    """The caps are the plan's totals and a tenth, per currency; a raise follows, and no caller names any."""
    await plan(pool)
    await vault.key_for(KEY, CHARGING)
    ledger = VaultLedger(pool)
    caps = {row["currency"]: row["cap_minor"] for row in await ledger.standing(RUN)}
    assert caps == {"usd": 1_375, "eur": 2_200}
    await ControlLedger(pool).raise_cap(RUN, caps_minor={"usd": 5_000}, who="somebody", reason="a late line")
    caps = {row["currency"]: row["cap_minor"] for row in await ledger.standing(RUN)}
    assert caps == {"usd": 5_000, "eur": 2_200}
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await pool.execute("UPDATE vault_budgets SET cap_minor = 1000000")


async def test_a_revoked_key_does_not_come_back_by_itself(pool: Pool, vault: RunVault) -> None:
    """Only a rotation gives the run another key, which takes the place of all earlier ones."""
    await plan(pool)
    first = await vault.key_for(KEY, CHARGING)
    assert await VaultLedger(pool).revoke(id_of(first), who="somebody", reason="seen in a chat")
    assert not await VaultLedger(pool).revoke(id_of(first), who="somebody", reason="again")
    for _ in range(2):
        with pytest.raises(CredentialsRefused, match="revoked by somebody: seen in a chat"):
            await vault.key_for(KEY, CHARGING)
    second, revoked = await vault.rotate(KEY, CHARGING, who="somebody", reason="after the chat")
    assert (id_of(await vault.key_for(KEY, CHARGING)), revoked) == (second, [])
    third, revoked = await vault.rotate(KEY, CHARGING, who="somebody", reason="every quarter")
    assert (id_of(await vault.key_for(KEY, CHARGING)), revoked) == (third, [second])
    assert {row["budget"] for row in await stored(pool)} == {RUN}


async def test_an_expired_key_needs_a_rotation(pool: Pool, database: Database) -> None:
    """A run that takes longer than its key is good for stops, and says how to go on."""
    vault = RunVault(VaultLedger(pool), secret=SECRET, mode=Mode.TEST, expires=timedelta(hours=1))
    await plan(pool)
    await vault.key_for(KEY, CHARGING)
    await run_as_owner(database, "SELECT move_ledger_clock(3601, NULL)")
    with pytest.raises(RefusedToStart, match=r"has expired; .* chargeonce vault rotate"):
        await vault.key_for(KEY, CHARGING)
    await vault.rotate(KEY, CHARGING, who="somebody", reason="it took long")
    await vault.key_for(KEY, CHARGING)


async def test_a_revoked_reading_key_is_replaced_by_a_rotation(pool: Pool, vault: RunVault) -> None:
    """An account's own key that somebody took away is replaced by the command that the refusal names."""
    await plan(pool)
    first = await vault.key_for(KEY, READING)
    job = await issue_custom_key(
        VaultLedger(pool), account=ACCOUNT, mode=Mode.TEST, allow=READING.allow, caps_minor={}, daily=False,
        label="reading", expires=timedelta(days=1), who="somebody",
    )  # fmt: skip
    await VaultLedger(pool).revoke(id_of(first), who="somebody", reason="seen in a chat")
    command = f"chargeonce vault rotate --account {ACCOUNT} --use reading"
    with pytest.raises(CredentialsRefused, match=f"seen in a chat; to replace it: {command}"):
        await vault.key_for(KEY, READING)
    whole = RunKey(run_id="", account=ACCOUNT)
    second, revoked = await vault.rotate(whole, READING, who="somebody", reason="after the chat")
    assert (id_of(await vault.key_for(KEY, READING)), revoked) == (second, [])
    third, revoked = await vault.rotate(whole, READING, who="somebody", reason="every quarter")
    assert (id_of(await vault.key_for(KEY, READING)), revoked) == (third, [second])
    valid = {row["key_id"] for row in await stored(pool) if row["revoked_by"] is None}
    assert valid == {job.key_id, third}


async def test_another_vault_secret_is_noticed(pool: Pool, vault: RunVault) -> None:
    """A process with another secret would derive keys that nobody issued: it says so."""
    await plan(pool)
    await vault.key_for(KEY, CHARGING)
    other = RunVault(
        VaultLedger(pool), secret=SecretStr("another secret of at least 32 bytes!"), mode=Mode.TEST
    )
    with pytest.raises(RefusedToStart, match="another vault secret"):
        await other.key_for(KEY, CHARGING)


async def test_a_run_that_has_ended_has_no_key(pool: Pool, vault: RunVault) -> None:
    """Its keys are revoked with the close, in the same transaction, and it gets no other."""
    await lock(pool)
    planning = await vault.key_for(KEY, PLANNING)
    await RunLedger(pool).fail(RUN, "the source has errors")
    assert [(row["key_id"], row["revoked_by"]) for row in await stored(pool)] == [(id_of(planning), "close")]
    with pytest.raises(RefusedToStart):
        await vault.key_for(KEY, PLANNING)
    with pytest.raises(RefusedToStart):
        await vault.key_for(KEY, CHARGING)


async def test_planning_moves_no_money_and_ends_with_the_plan(pool: Pool, vault: RunVault) -> None:
    """The planning key has no budget, and once the run charges no new one is issued."""
    await lock(pool)
    await vault.key_for(KEY, PLANNING)
    [row] = await stored(pool)
    assert row["budget"] is None
    assert not [endpoint for endpoint in row["allow"] if not endpoint.startswith("GET ")]


async def test_reading_is_the_account_s_and_goes_on_when_it_expires(pool: Pool, database: Database) -> None:
    """A key that only reads needs no run and no rotation; one that was revoked stays revoked."""
    vault = RunVault(VaultLedger(pool), secret=SECRET, mode=Mode.TEST, expires=timedelta(hours=1))
    first = await vault.key_for(KEY, READING)
    assert await vault.key_for(RunKey(run_id="", account=ACCOUNT), READING) == first
    await run_as_owner(database, "SELECT move_ledger_clock(3601, NULL)")
    second = await vault.key_for(KEY, READING)
    assert second != first
    assert await vault.key_for(RunKey(run_id="", account="acct_other"), READING) != second
    assert await VaultLedger(pool).revoke(id_of(second), who="somebody", reason="enough")
    with pytest.raises(RefusedToStart, match="revoked"):
        await vault.key_for(KEY, READING)
    assert {row["budget"] for row in await stored(pool)} == {None}


async def test_a_key_for_another_job_has_its_own_budget(pool: Pool) -> None:
    """It is random, seen once, and capped by what was said when it was issued."""
    ledger = VaultLedger(pool)
    custom = await issue_custom_key(
        ledger, account=ACCOUNT, mode=Mode.TEST, allow=frozenset({"POST /v1/payment_intents"}),
        caps_minor={"usd": 10_000}, daily=True, label="a shop agent", expires=timedelta(days=1),
        who="somebody",
    )  # fmt: skip
    assert custom.key_id == id_of(custom.key)
    assert custom.key.get_secret_value() not in repr(custom)
    [listed] = await ledger.list(run_id=None, everything=False, limit=10)
    assert listed["budget"] == {
        "usd": {"cap_minor": 10_000, "settled_minor": 0, "held_minor": 0, "daily": True}
    }
    assert (listed["label"], listed["standing"]) == ("a shop agent", "valid")
    await ledger.revoke(custom.key_id, who="somebody", reason="done")
    assert await ledger.list(run_id=None, everything=False, limit=10) == []
    [listed] = await ledger.list(run_id=None, everything=True, limit=10)
    assert listed["standing"] == "revoked"


async def test_a_key_that_nobody_issued_can_t_be_revoked(pool: Pool) -> None:
    """A typo is an error, not a key that goes on working."""
    with pytest.raises(RefusedToStart, match="no vault key"):
        await VaultLedger(pool).revoke("vk_test_0000000000", who="somebody", reason="typo")


async def in_state(database: Database, customer: str, state: str) -> None:
    """Put a charge where an earlier step would have brought it; states between are of no interest here."""
    await run_as_owner(database, "ALTER TABLE charges DISABLE TRIGGER USER")
    await run_as_owner(
        database, f"UPDATE charges SET state = '{state}', create_version = 1 WHERE customer = '{customer}'"
    )
    await run_as_owner(database, "ALTER TABLE charges ENABLE TRIGGER USER")


async def caps_of(pool: Pool, key_id: str) -> dict[str, int]:
    """What a key may move."""
    return {row["currency"]: row["cap_minor"] for row in await VaultLedger(pool).standing(key_id)}


async def test_refunds_go_out_under_an_approval_of_their_own(
    pool: Pool, vault: RunVault, database: Database
) -> None:
    """Nobody approved: no key. An approval covers at most what was paid, and the next one replaces it."""
    await plan(pool)
    charging = await vault.key_for(KEY, CHARGING)
    with pytest.raises(RefusedToStart, match="nobody has approved"):
        await vault.key_for(KEY, REFUNDING)
    with pytest.raises(RefusedToStart, match="nothing to approve"):
        await vault.approve(KEY, REFUNDING, who="somebody", reason="a duplicate")
    await in_state(database, "cus_1", "succeeded")
    for too_much in ({"usd": 1_251}, {"eur": 1}, {"usd": 0}):
        with pytest.raises(InvalidInput, match="can't be approved"):
            await vault.approve(KEY, REFUNDING, who="somebody", reason="a duplicate", caps_minor=too_much)
    first, caps = await vault.approve(
        KEY, REFUNDING, who="somebody", reason="a duplicate", caps_minor={"usd": 500}
    )
    assert caps == await caps_of(pool, first) == {"usd": 500}
    assert id_of(await vault.key_for(KEY, REFUNDING)) == first
    second, caps = await vault.approve(KEY, REFUNDING, who="somebody", reason="all of it")
    assert caps == {"usd": 1_250}
    assert id_of(await vault.key_for(KEY, REFUNDING)) == second
    valid = [row["key_id"] for row in await stored(pool) if row["revoked_at"] is None]
    assert sorted(valid) == sorted([id_of(charging), second])


async def test_resends_without_the_charging_key_are_capped_at_what_is_in_flight(
    pool: Pool, vault: RunVault, database: Database
) -> None:
    """What is settled or not begun is not in it, and it lives beside the key that only reconciles."""
    await plan(pool)
    await in_state(database, "cus_2", "confirming")
    reading = await vault.key_for(KEY, RECONCILING)
    resending, caps = await vault.approve(KEY, RESENDING, who="somebody", reason="the charging key leaked")
    assert caps == await caps_of(pool, resending) == {"eur": 2_000}
    assert id_of(await vault.key_for(KEY, RECONCILING)) == id_of(reading)
    rows = {row["key_id"]: row for row in await stored(pool)}
    assert (rows[id_of(reading)]["budget"], rows[resending]["budget"]) == (None, resending)
    assert rows[resending]["issued_reason"] == "the charging key leaked"


async def test_a_close_leaves_what_reconciles_and_what_refunds(
    pool: Pool, vault: RunVault, database: Database
) -> None:
    """Nothing that survives the end of a run brings money in; looking and giving back come afterwards."""
    await plan(pool)
    await in_state(database, "cus_1", "succeeded")
    await in_state(database, "cus_2", "confirming")
    await vault.key_for(KEY, CHARGING)
    stays = {id_of(await vault.key_for(KEY, RECONCILING))}
    stays.add((await vault.approve(KEY, REFUNDING, who="somebody", reason="a duplicate"))[0])
    await vault.approve(KEY, RESENDING, who="somebody", reason="the charging key leaked")
    await run_as_owner(
        database,
        f"UPDATE billing_runs SET phase = 'closed', counts = '{{}}' WHERE run_id = '{RUN}'",
    )
    assert {row["key_id"] for row in await stored(pool) if row["revoked_at"] is None} == stays
