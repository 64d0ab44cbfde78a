"""Synthetic customers, fresh for every repetition, so that no measurement meets the charges of another."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from deploy.stripe_sim.client import call_sim

SEED_BATCH = 2_000


@dataclass(frozen=True, slots=True)
class Due:
    """One customer and what is due. `identity` stands in the metadata, where the book finds it."""

    customer: str
    payment_method: str
    amount_minor: int
    identity: str


def dues(label: str, count: int) -> list[Due]:
    """Return `count` customers that belong to the repetition `label`, the same ones each time."""
    return [
        Due(
            customer=f"cus_{label}x{number:07d}",
            payment_method=f"pm_card_visa_{label}x{number:07d}",
            amount_minor=1_000 + number % 9_000,
            identity=hashlib.sha256(f"{label}/{number}".encode()).hexdigest()[:32],
        )
        for number in range(count)
    ]


def seed(url: str, everybody: list[Due]) -> None:
    """Make the customers and their cards known. Raises ClientError where no simulator answers."""
    for first in range(0, len(everybody), SEED_BATCH):
        customers = [
            {"id": due.customer, "payment_methods": [{"id": due.payment_method}]}
            for due in everybody[first : first + SEED_BATCH]
        ]
        call_sim(url, "POST", "/_sim/seed", {"account": None, "customers": customers})


def write_source(path: Path, everybody: list[Due]) -> None:
    """Write the customers as a source file that names their cards, so that planning asks Stripe nothing."""
    rows = (
        f"{due.customer},usd,{due.amount_minor // 100}.{due.amount_minor % 100:02d},{due.payment_method}\n"
        for due in everybody
    )
    path.write_text("customer,currency,amount,payment_method\n" + "".join(rows), encoding="utf-8")
