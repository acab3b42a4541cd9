"""The refusal of a request: status, a reason for programs, and a sentence for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyter_gpu.model.message import gettext

REASONS: Mapping[int, str] = {
    400: "Invalid",
    403: "NotPermitted",
    404: "NotFound",
    405: "NotAllowed",
    409: "Conflict",
    412: "Conflict",
    413: "TooLarge",
    415: "NotJson",
    422: "Unacceptable",
    428: "VersionMissing",
    429: "TooMany",
    500: "Error",
    503: "Unavailable",
}
"""The reason that goes with each status."""


class Refusal(Exception):
    """The refusal of a request."""

    def __init__(self, status: int, message: str, *, retry_after: float = 0, **details: Any) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after = retry_after
        """Seconds after which it is worth asking again; 0: not known."""
        self.details = details

    @property
    def reason(self) -> str:
        """Return the word for programs."""
        return REASONS[self.status]

    def to_json(self) -> dict[str, Any]:
        """Return the body of the answer."""
        return {"reason": self.reason, "message": self.message, "details": self.details}


def of_status(status: int, cause: str = "", **details: Any) -> Refusal:
    """Return the refusal for a status that tornado or the hub's library chose; ``cause`` is its own word for it."""
    known = status if status in REASONS else (400 if status < 500 else 503 if status in (502, 504) else 500)
    advice = _ADVICE[known]
    return Refusal(known, gettext("%1 (%2)", advice, cause) if cause and known < 500 else advice, **details)


_ADVICE = {
    400: gettext("The request can't be read."),
    403: gettext(
        "You are not logged in, or may not do this. In a browser, load the page again; a program sends the header "
        "'Authorization: token …' with a token that has the scope of this service."
    ),
    404: gettext("There is nothing at this address. The description of the API says what there is."),
    405: gettext("This address does not understand this method."),
    409: gettext("Somebody else changed it meanwhile."),
    412: gettext("Somebody else changed it meanwhile."),
    413: gettext("The body is too large."),
    415: gettext("The body must be JSON: send the header 'Content-Type: application/json'."),
    422: gettext("The request is not acceptable."),
    428: gettext("Send the version that the change is for, as the header 'If-Match'."),
    429: gettext("Too many requests; wait a moment."),
    500: gettext("Something went wrong inside the service. Its log says what."),
    503: gettext(
        "The hub can't be reached or has a problem, so nobody can be identified now. Limits that are set hold. "
        "Try again in a moment."
    ),
}
