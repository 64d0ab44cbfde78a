"""A limiter that counts who it lets go: a reconciliation says how often it has asked Stripe."""

from dataclasses import dataclass

from activities.limiter import Endpoint, Limiter


@dataclass
class CountedLimiter(Limiter):
    """Another limiter, and how many requests it has let leave."""

    limiter: Limiter
    requests: int = 0

    async def acquire(self, endpoint: Endpoint) -> None:
        """Return when one request to `endpoint` may leave. Cancelling the wait gives nothing back."""
        await self.limiter.acquire(endpoint)
        self.requests += 1

    def take(self) -> int:
        """Return how many requests it has let leave since this was asked before."""
        taken, self.requests = self.requests, 0
        return taken

    def slow_down(
        self, endpoint: Endpoint, *, retry_after_seconds: float | None, reason: str | None = None
    ) -> None:
        """Stripe said 429: pause, and go on more slowly."""
        self.limiter.slow_down(endpoint, retry_after_seconds=retry_after_seconds, reason=reason)

    def rate_per_second(self, endpoint: Endpoint) -> float:
        """Return the rate that `endpoint` goes at now, after slowing down and recovering."""
        return self.limiter.rate_per_second(endpoint)
