"""Repeated measurements, and how they are quoted: median, least and most."""

from statistics import median

from pydantic import BaseModel, ConfigDict


class Spread(BaseModel):
    """Some measurements of one thing."""

    model_config = ConfigDict(frozen=True)

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: list[float], digits: int = 2) -> "Spread":
        """Return the spread of one or more values, rounded."""
        return cls(
            median=round(median(values), digits),
            least=round(min(values), digits),
            most=round(max(values), digits),
        )

    def __str__(self) -> str:
        return f"{self.median:g} ({self.least:g}-{self.most:g})"
