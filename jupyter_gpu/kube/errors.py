"""The errors of calls to the API server, by how to handle them.

KubeError          any other refusal (400, 405, …): a mistake in this program
├── Unauthorized   401: the token is not, or no longer, valid
├── Forbidden      403: RBAC or an admission policy refuses it
├── NotFound       404
├── Conflict       409: another writer was faster, or the object exists already; read and decide again
├── Gone           410: the server no longer has that version; list again
├── Invalid        422: the object is not valid, or an admission policy refuses it
├── TooMany        429: try again after ``retry_after`` seconds
└── Unavailable    5xx, no connection, cut off, too late: try again later
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAX_MESSAGE = 1000


class KubeError(Exception):
    """A call that failed; ``reason`` is the API server's word for why, ``message`` its sentence."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message


class Unauthorized(KubeError):
    """The token or certificate is not accepted."""


class Forbidden(KubeError):
    """Not allowed for this identity."""


class NotFound(KubeError):
    """No such object, or its uid is another one."""


class Conflict(KubeError):
    """A precondition does not hold, or the object exists already."""

    @property
    def exists(self) -> bool:
        """Whether an object of that name was there already."""
        return self.reason == "AlreadyExists"


class Gone(KubeError):
    """The resource version is too old to continue from."""


class Invalid(KubeError):
    """The object is not valid, or an admission policy refuses it."""


class TooMany(KubeError):
    """The server wants fewer requests; nothing was done."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float = 1.0) -> None:
        super().__init__(status, reason, message)
        self.retry_after = retry_after


class Unavailable(KubeError):
    """No answer, or none with a result. If ``sent``, a write may have been done all the same."""

    def __init__(self, status: int, reason: str, message: str, *, sent: bool = True) -> None:
        super().__init__(status, reason, message)
        self.sent = sent


_BY_STATUS: Mapping[int, type[KubeError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
}


def from_status(code: int, body: Any, retry_after: str = "") -> KubeError:
    """Return the error of an answer: ``body`` is its JSON where it has one, ``retry_after`` the header of that name."""
    fields = body if isinstance(body, Mapping) else {}
    reason = str(fields.get("reason") or "")
    message = str(fields.get("message") or f"The API server answered {code}.")
    if len(message) > MAX_MESSAGE:
        message = message[: MAX_MESSAGE - 1] + "…"
    # A 500 of an API server that starts or ends is temporary; so is "too large resource version" (504).
    if code == 429:
        return TooMany(code, reason, message, _seconds(retry_after))
    if code >= 500:
        return Unavailable(code, reason, message)
    if code == 422 and _other_uid(fields.get("details")):
        return Conflict(code, reason, message)
    return _BY_STATUS.get(code, KubeError)(code, reason, message)


def _other_uid(details: Any) -> bool:
    """Tell whether a patch was for an object that was replaced by one with the same name: the uid "is immutable"."""
    causes = details.get("causes") if isinstance(details, Mapping) else None
    found = causes if isinstance(causes, list) else []
    return any(isinstance(cause, Mapping) and cause.get("field") == "metadata.uid" for cause in found)


def _seconds(text: str) -> float:
    return min(float(text), 60.0) if text.isascii() and text.isdigit() else 1.0
