"""What the command line says to a running simulator."""

import csv
import io
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

TIMEOUT_SECONDS: Final = 60.0
BATCH_ROWS: Final = 2_000


class ClientError(Exception):
    """The simulator could not be reached, refused, or the file cannot be read."""


def call_sim(url: str, method: str, path: str, document: Any = None) -> Any:
    """Send one control request and return its JSON answer; raises ClientError."""
    if not url.startswith(("http://", "https://")):
        raise ClientError(f"{url} is not the URL of a simulator")
    data = None if document is None else json.dumps(document).encode()
    request = Request(url.rstrip("/") + path, data=data, method=method)  # noqa: S310 - the scheme was checked
    try:
        with urlopen(request, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310 - the scheme was checked
            return json.load(answer)
    except HTTPError as error:
        with error:
            raise ClientError(
                f"{method} {path}: {error.status} {error.read().decode(errors='replace')}"
            ) from error
    except (URLError, OSError, json.JSONDecodeError) as error:
        raise ClientError(f"no simulator answers at {url}: {error}") from error


def read_customers(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the customers that a source file names, as the seed control takes them.

    The file is CSV with a header, comma or semicolon, UTF-8 with or without a byte order mark; `customer` is
    needed, `payment_method` is not: a customer without one gets a good card. Rows without a customer are left
    to whoever bills.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header = file.readline()
            names = next(csv.reader(io.StringIO(header), delimiter=_find_delimiter(header)), [])
            names = [name.strip() for name in names]
            if "customer" not in names:
                raise ClientError(f"{path}: the header has no customer column")
            for row in csv.DictReader(file, fieldnames=names, delimiter=_find_delimiter(header)):
                customer_id = (row.get("customer") or "").strip()
                if customer_id.startswith("cus_"):
                    yield _to_seed(customer_id, (row.get("payment_method") or "").strip())
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ClientError(f"cannot read {path}: {error}") from error


def seed_file(url: str, path: Path, account: str | None) -> dict[str, int]:
    """Send a source file's customers in batches; returns how many rows were read and what was new."""
    rows = read_customers(path)
    counts = {"rows": 0, "customers": 0, "payment_methods": 0}
    while batch := list(islice(rows, BATCH_ROWS)):
        new = call_sim(url, "POST", "/_sim/seed", {"account": account, "customers": batch})
        counts["rows"] += len(batch)
        counts["customers"] += new["customers"]
        counts["payment_methods"] += new["payment_methods"]
    return counts


def _find_delimiter(header: str) -> str:
    return ";" if header.count(";") > header.count(",") else ","


def _to_seed(customer_id: str, method_id: str) -> dict[str, Any]:
    if method_id.startswith("pm_"):
        return {"id": customer_id, "payment_methods": [{"id": method_id}]}
    card = f"pm_card_visa_{customer_id.removeprefix('cus_')}"
    return {"id": customer_id, "payment_methods": [{"id": card}], "default_payment_method": card}
