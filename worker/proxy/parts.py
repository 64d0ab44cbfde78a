"""What one proxy process works with."""

from dataclasses import dataclass

from activities.ledger.cap import CapLedger
from worker.proxy.real_keys import RealKeys
from worker.proxy.refresh import Refresh
from worker.proxy.upstream import Upstream


@dataclass(frozen=True, slots=True)
class Parts:
    """Ledger, connections and keys; `refresh_keys` is told when Stripe has rejected one."""

    ledger: CapLedger
    upstream: Upstream
    keys: RealKeys
    refresh_keys: Refresh
