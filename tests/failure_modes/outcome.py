"""How a situation ended: by the simulator's book, and by the records of whoever charged."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outcome:
    """`due` amounts were owed, `charged` of them moved money, `recorded` count as paid. Right: all equal."""

    due: int
    charged: int
    recorded: int

    @property
    def harm(self) -> str | None:
        """What the customer or the shop suffers, or None where each due was charged and recorded once."""
        if self.charged > self.due:
            return "charged twice"
        if self.charged < self.due:
            return "never charged"
        if self.recorded > self.charged:
            return "credited twice"
        if self.recorded < self.charged:
            return "paid and not recorded"
        return None

    def show(self) -> str:
        """Return the outcome as a cell of the table."""
        counts = f"{self.due} / {self.charged} / {self.recorded}"
        return counts if self.harm is None else f"**{self.harm}** {counts}"
