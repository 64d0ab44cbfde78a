"""The columns that a source may have, in whatever form it comes."""

from collections.abc import Iterable, Sequence

from workflows.domain.echo import echo

REQUIRED_COLUMNS = ("customer", "currency")
AMOUNT_COLUMNS = ("amount", "amount_minor")
OPTIONAL_COLUMNS = ("payment_method", "line", "description")
COLUMNS = frozenset(REQUIRED_COLUMNS + AMOUNT_COLUMNS + OPTIONAL_COLUMNS)
_FAULTS_NAMED_MAX = 10


def column_names(written: Iterable[object]) -> list[str]:
    """Return names as columns are known by: blanks around them and capitals mean nothing."""
    return [str(name).strip().lower() for name in written]


def find_column_faults(names: Sequence[str]) -> str | None:
    """Return all that is wrong with the columns of a whole source, or None."""
    missing = [name for name in REQUIRED_COLUMNS if name not in names]
    return _joined(*_name_faults(names), _listed("missing", missing), _amount_fault(names))


def find_key_faults(names: Sequence[str]) -> str | None:
    """Return all that is wrong with the columns of one row that brings its own, or None.

    A column that is not there is an empty cell then, and of the amounts one has to be there.
    """
    return _joined(*_name_faults(names), _amount_fault(names))


def _name_faults(names: Sequence[str]) -> tuple[str | None, str | None]:
    unknown = [echo(name) for name in names if name not in COLUMNS]
    duplicated = [name for name in sorted(COLUMNS) if names.count(name) > 1]
    return _listed("unknown", unknown), _listed("duplicated", duplicated)


def _amount_fault(names: Sequence[str]) -> str | None:
    amounts = [name for name in AMOUNT_COLUMNS if name in names]
    if len(amounts) == 1:
        return None
    return f"exactly one of amount and amount_minor is needed, not {' and '.join(amounts) or 'none'}"


def _listed(fault: str, names: Sequence[str]) -> str | None:
    return f"{fault}: {', '.join(names[:_FAULTS_NAMED_MAX])}" if names else None


def _joined(*faults: str | None) -> str | None:
    return "; ".join(fault for fault in faults if fault) or None
