"""PaymentIntents that carry a charge's identity and are not its own, as failures leave them behind."""

from dataclasses import dataclass

from activities.accounts import AccountParts, Accounts
from activities.crash_points import CrashPoint, install
from activities.sweep import Swept, sweep_orphan
from activities.vault import READING
from tests.activities.scene import ACCOUNT, CANCEL, CREATE, GOOD_CARD, Scene
from tests.web.mailroom import Mailroom
from workflows.contracts import RunKey
from workflows.domain.answer import PaymentIntent
from workflows.domain.charge import Charge
from workflows.domain.window import WINDOW_SECONDS

REASON = "a leftover of a known charge"


class Killed(BaseException):
    """The process is gone."""


@dataclass(frozen=True)
class Left:
    """A charge that is prepared on its own PaymentIntent, and another one of its identity."""

    charge: Charge
    orphan: str


async def leave_orphan(scene: Scene, *, card: str = GOOD_CARD) -> Left:
    """Let create v1 run twice, its key pruned in between (trace T2): the second PaymentIntent is nobody's."""
    a = scene.worker()
    await scene.plan([card])
    first = await a.intend(await a.claim_one(), CREATE)
    again = await a.intend_again(await scene.charge())
    own = await a.record(first, await a.transmit(first))
    await scene.set_age(WINDOW_SECONDS + 60)
    late = await a.transmit(again)
    assert late.payment_intent is not None
    assert late.payment_intent.id != own.payment_intent
    await a.record(again, late)
    return Left(own, late.payment_intent.id)


async def parts_of(accounts: Accounts) -> AccountParts:
    """Return by what the account is read."""
    return await accounts.of(RunKey(run_id="", account=ACCOUNT.id), READING)


async def sweep(
    mail: Mailroom, charge: Charge, payment_intent: str, *, accounts: Accounts | None = None
) -> Swept:
    """Sweep a PaymentIntent of a charge's identity."""
    return await sweep_orphan(
        mail.scene.pool,
        accounts or mail.accounts,
        await parts_of(mail.accounts),
        charge.charge_id,
        payment_intent,
        reason=REASON,
    )


async def sweep_and_die(mail: Mailroom, charge: Charge, payment_intent: str, point: CrashPoint) -> None:
    """Sweep, and be killed at a moment."""

    def die(reached: object) -> None:
        if reached is point:
            raise Killed

    install(die)
    try:
        await sweep(mail, charge, payment_intent)
    except Killed:
        return
    finally:
        install(lambda _: None)
    raise AssertionError(f"{point} was not reached")


async def at_stripe(scene: Scene, payment_intent: str) -> PaymentIntent:
    """Return a PaymentIntent as Stripe shows it."""
    lookup = await scene.worker().gateway.retrieve_payment_intent(
        ACCOUNT, payment_intent, started_epoch_seconds=0.0
    )
    [found] = lookup.payment_intents
    return found


async def cancels(scene: Scene) -> list[tuple[str, int, str | None]]:
    """Return (key, send number, proof) of every cancel in the journal, oldest first."""
    rows = await scene.pool.fetch(
        "SELECT k.key, a.send_no, a.proof FROM keys k JOIN attempts a USING (key)"
        " WHERE k.operation = $1 ORDER BY k.version, a.send_no",
        CANCEL,
    )
    return [(row["key"], row["send_no"], row["proof"]) for row in rows]
