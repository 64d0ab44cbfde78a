"""Rows become domain values here and nowhere else."""

from datetime import UTC, datetime
from typing import Any

import asyncpg

from workflows.domain.charge import Charge, FrozenKey
from workflows.domain.keys import Fingerprint, IdempotencyKey, Operation
from workflows.domain.states import State

Row = asyncpg.Record


def charge_from(row: Row) -> Charge:
    """Return a row of `charges` as a value."""
    return Charge(
        charge_id=row["charge_id"],
        run_id=row["run_id"],
        account=row["account"],
        customer=row["customer"],
        period=row["period"],
        line=row["line"],
        currency=row["currency"],
        amount_minor=row["amount_minor"],
        payment_method=row["payment_method"],
        description=row["description"],
        state=State(row["state"]),
        reason=row["reason"],
        fence=row["fence"],
        create_version=row["create_version"],
        confirm_version=row["confirm_version"],
        cancel_version=row["cancel_version"],
        payment_intent=row["payment_intent"],
        latest_charge=row["latest_charge"],
    )


def frozen_key_from(row: Row) -> FrozenKey:
    """Return a row of `read_key` as a value."""
    return FrozenKey(
        key=IdempotencyKey(row["key"]),
        operation=Operation(row["operation"]),
        version=row["version"],
        path=row["path"],
        parameters=row["parameters"],
        fingerprint=Fingerprint(row["fingerprint"]),
        first_intended_epoch_seconds=row["first_intended_at"].timestamp(),
        latest_charge_before=row["latest_charge_before"],
        stored_failure=row["stored_failure"],
        sends=row["sends"],
        charge_first_intended_epoch_seconds=row["charge_first_intended_at"].timestamp(),
        answered=row["answered"],
        open_sends=row["open_sends"],
        earlier_open_sends=row["earlier_open_sends"],
    )


def instant(epoch_seconds: float | None) -> datetime | None:
    """Return an aware UTC datetime, which asyncpg stores exactly."""
    return None if epoch_seconds is None else datetime.fromtimestamp(epoch_seconds, tz=UTC)


def columns(rows: list[tuple[Any, ...]]) -> list[list[Any]]:
    """Turn rows into the columns that `unnest` takes."""
    return [list(column) for column in zip(*rows, strict=True)]
