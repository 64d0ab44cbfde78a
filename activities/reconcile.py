"""The activities of a reconciliation: thin, repeatable at any point, each with its heartbeats."""

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.accounts import AccountParts, Accounts
from activities.heartbeat import heartbeats
from activities.ledger.database import Pool
from activities.ledger.drift import DriftLedger, Reconciliation
from activities.ledger.reconcile import ReconcileLedger
from activities.missed_events import MissedEvents, find_missed, keep_missed
from activities.reconcile_look import Looker
from activities.reconcile_scan import CUSTOMERS, MARGIN_SECONDS, Scanner
from activities.stripe_pages import Unreadable
from activities.vault import READING
from workflows import reconcile_contracts as contracts
from workflows.contracts import RunKey
from workflows.domain.drift import Drift, DriftKind, Repair, RepairState
from workflows.domain.errors import RefusedToStart
from workflows.reconcile_contracts import (
    Looked,
    ReconcileKey,
    ReconcileOpening,
    ReconcilePlan,
    ReconcileReport,
    ScanSlice,
)

EVENTS = "events"  # what Stripe is asked for


class ReconcileActivities(contracts.ReconcileActivities):
    """Compares the books of one account after the fact, for every account that this process can read."""

    def __init__(self, pool: Pool, accounts: Accounts) -> None:
        self._pool = pool
        self._accounts = accounts
        self._ledger = ReconcileLedger(pool)

    @activity.defn(name="open_reconciliation")
    async def open_reconciliation(self, opening: ReconcileOpening) -> ReconcilePlan:
        """Keep it, choose how to go about it, and cut the scan into slices; idempotent for its owner."""
        request = opening.request
        async with heartbeats():
            try:
                opened = await self._ledger.open(request, opening.owner)
            except RefusedToStart as refusal:
                raise ApplicationError(str(refusal), type="RefusedToStart", non_retryable=True) from None
            way = await self._scanner(await self._parts(request.account), opened).choose()
        return ReconcilePlan(
            key=ReconcileKey(reconciliation_id=opened.reconciliation_id, account=opened.account),
            how=way.how,
            slices=way.slices,
            charges=way.charges,
            customers=way.customers,
            repair=opened.repair,
        )

    @activity.defn(name="scan_slice")
    async def scan_slice(self, work: ScanSlice) -> None:
        """Read one slice of the account's PaymentIntents, and keep what agrees and what is suspect."""
        async with heartbeats():
            parts, opened = await self._open(work.key)
            await self._scanner(parts, opened).scan(work.slice_no, customers=work.customers)

    @activity.defn(name="suspect_unseen")
    async def suspect_unseen(self, key: ReconcileKey) -> int:
        """Suspect every charge of the scope that no page has shown, or that is in flight; return how many."""
        async with heartbeats():
            parts, opened = await self._open(key)
            await self._scanner(parts, opened).read_refunds()
            how = (await self._ledger.read(opened.reconciliation_id)).how
            await self._ledger.mark_unseen(opened.reconciliation_id, everything=how == CUSTOMERS)
            return await self._ledger.count_suspects(opened.reconciliation_id)

    @activity.defn(name="look_at_suspects")
    async def look_at_suspects(self, key: ReconcileKey) -> Looked:
        """Look at a batch of suspects on both sides: settle, compare, keep what differs, repair."""
        async with heartbeats():
            parts, opened = await self._open(key)
            return await Looker(self._pool, self._ledger, self._accounts, parts, opened).look()

    @activity.defn(name="find_missed_events")
    async def find_missed_events(self, key: ReconcileKey) -> int:
        """Compare Stripe's list of events with the inbox, keep what is missing; return how many."""
        async with heartbeats():
            parts, opened = await self._open(key)
            reconciliation_id = opened.reconciliation_id
            try:
                found = await find_missed(
                    self._pool,
                    parts,
                    since_epoch_seconds=opened.since.timestamp() - MARGIN_SECONDS,
                    until_epoch_seconds=opened.until.timestamp(),
                    run_id=opened.run_id,
                )
            except Unreadable as failure:
                await self._ledger.note_gap(reconciliation_id, "events", str(failure))
                return 0
            if found.ever_received:
                await self._ledger.count_requests(reconciliation_id, EVENTS, found.requests)
            if found.beyond_reach:
                why = "Stripe lists those of 30 days, and the span begins before"
                await self._ledger.remark(reconciliation_id, "older events", why)
            for kind, count in sorted(found.unheard.items()):
                why = f"{count} of them never came in, as none ever did: does the endpoint subscribe to them?"
                await self._ledger.remark(reconciliation_id, kind, why)
            await self._keep_missed(opened, found)
            return len(found.missed)

    async def _keep_missed(self, opened: Reconciliation, found: MissedEvents) -> None:
        drifts = [
            Drift(
                kind=DriftKind.EVENT_GAP,
                subject=event.event_id,
                ledger_says="the inbox never had it",
                stripe_says=(
                    f"{event.type} of {event.payment_intent}, shown for another "
                    f"{max(0.0, found.seconds_left(event)) / 86_400:.1f} days"
                ),
                repair=Repair.KEEP_EVENT,
                charge_id=found.charge_ids[event.event_id],
                run_id=opened.run_id,
                payment_intents=(event.payment_intent,) if event.payment_intent else (),
                occurred_epoch_seconds=event.created_epoch_seconds,
            )
            for event in found.missed
        ]
        ledger = DriftLedger(self._pool)
        await ledger.record(opened.reconciliation_id, opened.account, drifts)
        if not opened.repair:
            return
        for event in found.missed:
            await keep_missed(self._pool, opened.account, event)
            await ledger.end(
                opened.account,
                DriftKind.EVENT_GAP,
                event.event_id,
                RepairState.REPAIRED,
                "it is in the inbox, to be worked through",
            )

    @activity.defn(name="close_reconciliation")
    async def close_reconciliation(self, key: ReconcileKey) -> ReconcileReport:
        """End what is not found any more, freeze the report, and drop what was only needed on the way."""
        opened = await self._ledger.read(key.reconciliation_id)
        if opened.report is not None:
            return ReconcileReport.model_validate(opened.report)
        report = await self._sum_up(opened)
        if not report.incomplete:
            await self._ledger.end_gone(key.reconciliation_id)
        await self._ledger.close(key.reconciliation_id, report.model_dump(mode="json"))
        return report

    async def _sum_up(self, opened: Reconciliation) -> ReconcileReport:
        reconciliation_id = opened.reconciliation_id
        sums = await self._ledger.sum_up(reconciliation_id)
        drift = await self._ledger.count_drift(reconciliation_id)
        requests = await self._ledger.requests_of(reconciliation_id)
        gaps, remarks = await self._ledger.gaps_of(reconciliation_id)
        still_open = drift[RepairState.PROPOSED] + drift[RepairState.FAILED]
        return ReconcileReport(
            reconciliation_id=reconciliation_id,
            account=opened.account,
            run_id=opened.run_id,
            how=opened.how or "",
            charges=sums.charges,
            suspects=sums.suspects,
            differing=sums.differing,
            settled=sums.settled,
            in_flight=sums.in_flight,
            found=dict(still_open + drift[RepairState.REPAIRED]),
            repaired=dict(drift[RepairState.REPAIRED]),
            open=dict(still_open),
            requests=requests,
            bound=requests.get("pages", 0) + sums.customers,
            events_looked_for=EVENTS in requests,
            incomplete=gaps,
            remarks=remarks,
        )

    async def _open(self, key: ReconcileKey) -> tuple[AccountParts, Reconciliation]:
        return await self._parts(key.account), await self._ledger.read(key.reconciliation_id)

    async def _parts(self, account: str) -> AccountParts:
        return await self._accounts.of(RunKey(run_id="", account=account), READING)

    def _scanner(self, parts: AccountParts, opened: Reconciliation) -> Scanner:
        return Scanner(self._ledger, parts, opened)
