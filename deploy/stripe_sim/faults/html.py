"""A gateway answers in the place of the API, with a page for people."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import ClassVar

from deploy.stripe_sim.faults.effect import BookingEffect, check_status
from deploy.stripe_sim.faults.hit import Canned, Hit, Place


@dataclass(frozen=True, slots=True)
class Html(BookingEffect):
    """Answers with an HTML page; nothing is stored, whether the API had executed the request or not."""

    KIND: ClassVar = "html"
    PLACES: ClassVar = ("before", "after")
    status: int = 502

    def check(self) -> str | None:
        """Return what is wrong with the values, or None."""
        return check_status(self.status, 200) or BookingEffect.check(self)

    def apply(self, hit: Hit, place: Place, *, books: bool) -> None:  # noqa: ARG002 - part of the interface
        """Put the page in place of the answer, unless another fault answers already."""
        if hit.canned is not None:
            return
        reason = next((item.phrase for item in HTTPStatus if item == self.status), "Unknown")
        page = (
            f"<html>\r\n<head><title>{self.status} {reason}</title></head>\r\n"
            f"<body>\r\n<center><h1>{self.status} {reason}</h1></center>\r\n</body>\r\n</html>\r\n"
        )
        hit.canned = Canned(self.status, books, body=page.encode(), headers={"Content-Type": "text/html"})
