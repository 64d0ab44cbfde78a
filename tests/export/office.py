"""Whoever exports a scene's run, and reads what was written."""

import csv
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from activities.export.check import check_pack
from activities.export.pack import Format, Pack, write_pack
from activities.ledger.planning import SkippedRow, StagedLine
from activities.ledger.runs import RunLedger
from tests.activities.dashboard import post
from tests.activities.scene import (
    ACCOUNT,
    DECLINING_CARD,
    GOOD_CARD,
    PERIOD,
    RUN_ID,
    SLOW_DEBIT,
    TERMS,
    Scene,
)
from tests.ledger.planting import commit_plan
from tests.web.mailroom import Mailroom
from workflows.domain.keys import Identity

DISPUTED_CARD, CUSTOMER_CARD = "pm_card_createDispute", "pm_card_authenticationRequired"
FORMULA = '=HYPERLINK("http://a.example","see")'
LATER_SECONDS = 60.0
# Card, amount in minor units, currency, what the source says about it.
LINES = (
    (GOOD_CARD, 4_200, "usd", "September"),
    (GOOD_CARD, 500, "jpy", FORMULA),
    (GOOD_CARD, 1_990, "kwd", "\t+1 234"),
    (GOOD_CARD, 700, "usd", 'two\r\nlines;=1+1, "quoted"'),
    (DECLINING_CARD, 900, "usd", None),
    (CUSTOMER_CARD, 1_100, "eur", "-5"),
    (SLOW_DEBIT, 2_500, "usd", None),
    (DISPUTED_CARD, 3_300, "eur", "\uff1dSUM(A1)"),
)
SKIPPED = (
    SkippedRow(
        source_row=90, customer="cus_90", line="base", reason="zero_amount", detail="@nothing is owed"
    ),
    SkippedRow(source_row=91, customer="cus_91", line=None, reason="no_payment_method", detail=None),
)


@dataclass
class Office:
    """Writes and reads packs."""

    mail: Mailroom
    folder: Path

    @property
    def scene(self) -> Scene:
        """The ledger and its Stripe."""
        return self.mail.scene

    async def run(self, lines: Sequence[tuple[str, int, str, str | None]] = LINES) -> list[str]:
        """Plan and charge lines of these kinds, each of a customer of its own; return the charges' ids."""
        staged = [self._stage(number, *line) for number, line in enumerate(lines, start=1)]
        await RunLedger(self.scene.pool).lock(
            RUN_ID, account=ACCOUNT.id, period=PERIOD, owner="execution-1", source="=lines.csv",
            source_sha256="0" * 64, started_by="tests",
        )  # fmt: skip
        await commit_plan(self.scene.pool, TERMS, staged, SKIPPED)
        await self.scene.worker().work_at_once()
        return [line.charge_id for line in staged]

    def _stage(
        self, number: int, card: str, amount_minor: int, currency: str, about: str | None
    ) -> StagedLine:
        method = f"{card}_{number}"
        self.scene.sim.seed(f"cus_{number}", method)
        identity = Identity.of(ACCOUNT.id, f"cus_{number}", PERIOD, "base")
        return StagedLine(
            charge_id=identity.charge_id, customer=identity.customer, line="base", source_row=number + 1,
            currency=currency, amount_minor=amount_minor, payment_method=method, description=about,
            reason=None,
        )  # fmt: skip

    async def live_a_while(self) -> None:
        """Let a refund and a dispute happen, and the ledger hear of them."""
        refunded = await self.scene.charge(Identity.of(ACCOUNT.id, "cus_4", PERIOD, "base").charge_id)
        await post(self.scene.sim.url, "/v1/refunds", payment_intent=refunded.payment_intent, amount=300)
        await self.scene.set_age(LATER_SECONDS)
        await self.mail.deliver(*self.mail.bodies())
        await self.mail.work()

    async def export(self, name: str = "pack", formats: Format = Format.CSV) -> Pack:
        """Write a pack and return it."""
        return await write_pack(
            self.scene.pool, self.mail.accounts, RUN_ID, self.folder / name, formats=formats
        )

    def moved(self) -> dict[str, int]:
        """Return minor units by currency, as the simulator's own book has them."""
        moved: Counter[str] = Counter()
        for movement in self.scene.sim.movements:
            moved[movement.currency] += movement.amount
        return dict(moved)


def read_table(folder: Path, name: str) -> list[dict[str, str]]:
    """Return the rows of a CSV file as anybody would read them."""
    with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a pack."""
    document: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    return document


def findings(folder: Path) -> list[str]:
    """Return what a check of a pack finds, in words."""
    return [finding.as_text() for finding in check_pack(folder).findings]
