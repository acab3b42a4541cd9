"""Every error a user of jupyter-gpu can meet, and how each travels as JSON.

    GpuError
    ├── InvalidRequest        the request itself is wrong: nothing was changed
    │   └── TooLarge          more bytes than any valid request needs
    ├── InvalidAnnotation     a stored record cannot be read: nothing was changed
    ├── StaleGeneration       the wish was changed since you read it
    ├── LimitExceeded         more than you may have
    ├── Infeasible            more than there is, however long you wait
    ├── NoCapacity            valid, but not free now: your server is in line
    ├── Draining              a GPU cannot be given back yet: something has it open
    ├── Unhealthy             a GPU of your server does not work any more
    ├── ParkRefused           a GPU cannot be parked: the reason, and the way out
    ├── GpuDataLost           what was parked cannot be brought back
    ├── NotPermitted          you may not do this on this server
    ├── ServerUnreachable     no Jupyter server answered
    │   └── OutsideServer     your program belongs to none, and has not said that it wants the one that runs
    └── BackendUnavailable    the server cannot decide or attach right now

The message of each is a sentence for people: what, why, what to do. ``reason`` is for programs and
never changes its spelling. ``details`` holds the figures. ``http_status`` is what the server answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from .quantity import EXACT_POSITIONS, count_gpus


class GpuError(Exception):
    """Base of all errors of this package; raise one of the classes below."""

    reason: ClassVar[str] = "GpuError"
    http_status: ClassVar[int] = 500

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details: dict[str, Any] = details

    def to_json(self) -> dict[str, Any]:
        """Return ``{"reason", "message", "details"}``, the body of every error answer."""
        return {"reason": self.reason, "message": self.message, "details": self.details}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as JSON: an error raised in a worker process arrives whole in the notebook's."""
        return _made, (type(self), self.message, self.details)


class InvalidRequest(GpuError):
    """A value from outside is not acceptable; ``field`` says which one."""

    reason = "InvalidRequest"
    http_status = 400

    def __init__(self, message: str, field: str = "", **details: Any) -> None:
        super().__init__(message, field=field, **details)
        self.field = field


class TooLarge(InvalidRequest):
    """The text has more bytes than any valid request."""

    reason = "TooLarge"
    http_status = 413


class InvalidAnnotation(GpuError):
    """A stored annotation or record does not parse; ``key`` says which one."""

    reason = "InvalidAnnotation"
    http_status = 500

    def __init__(self, message: str, key: str = "", **details: Any) -> None:
        super().__init__(message, key=key, **details)
        self.key = key


class StaleGeneration(GpuError):
    """The wish was based on an older one than the current."""

    reason = "StaleGeneration"
    http_status = 409

    def __init__(self, message: str = "", *, current: int, **details: Any) -> None:
        super().__init__(
            message
            or "The server's request was changed meanwhile, in the panel or by other code. Look at it, and ask again.",
            current=current,
            **details,
        )
        self.current = current


class LimitExceeded(GpuError):
    """More was asked for than this user may have; ``limit`` is what this server may have, in milli-GPUs.

    Where the user has a limit, ``maximum`` is that of all servers of the user together (``None``: no limit of the
    amount), and ``source`` is its origin: ``{"kind": "Group", "name": "ml", "by": "root", "at": 1777766400}``, with the
    fields of `limits.source.Source`. Both are ``None`` for a limit of the server's own.
    """

    reason = "LimitExceeded"
    http_status = 422

    def __init__(
        self,
        message: str = "",
        *,
        limit: int,
        source: Mapping[str, Any] | None = None,
        maximum: int | None = None,
        **details: Any,
    ) -> None:
        of_user = {} if source is None else {"source": source, "maximum": maximum}
        super().__init__(
            message
            or f"Your server's limit is {count_gpus(limit)}, for all its notebooks together. Ask for that or less, or "
            "ask an administrator for more.",
            limit=limit,
            **of_user,
            **details,
        )
        self.limit = limit
        self.source = source
        self.maximum = maximum


class Infeasible(GpuError):
    """More was asked for than exists; ``have`` is in milli-GPUs."""

    reason = "Infeasible"
    http_status = 422

    def __init__(self, message: str = "", *, have: int, **details: Any) -> None:
        super().__init__(
            message or f"Only {count_gpus(have)} here can serve this, so it can never be granted. Ask for less.",
            have=have,
            **details,
        )
        self.have = have


class NoCapacity(GpuError):
    """Not enough is free now. The wish stands: ``have`` milli-GPUs now, ``queue`` is the position in line."""

    reason = "NoCapacity"
    http_status = 409

    def __init__(self, message: str = "", *, have: int, queue: int | None, **details: Any) -> None:
        about = "about " if queue and queue > EXACT_POSITIONS else ""
        position = f" and is {about}number {queue} in line" if queue else ""
        super().__init__(
            message
            or f"Not enough GPUs are free: your server has {count_gpus(have)}{position}. "
            "The request stands and is granted when GPUs come free; gpu.release() cancels it.",
            have=have,
            queue=queue,
            **details,
        )
        self.have = have
        self.queue = queue


class Draining(GpuError):
    """A GPU that was given back is still open in the processes named by ``holders``."""

    reason = "Draining"
    http_status = 409

    def __init__(self, message: str = "", *, holders: Sequence[Mapping[str, Any]], **details: Any) -> None:
        names = ", ".join(sorted({str(h.get("notebook") or h.get("command") or h.get("pid")) for h in holders}))
        super().__init__(
            message
            or f"Still open in: {names or 'an unknown process'}. The GPU is given back as soon as it is closed; "
            "restart that kernel to do it now.",
            holders=list(holders),
            **details,
        )
        self.holders = list(holders)


class Unhealthy(GpuError):
    """GPUs of this server stopped working; ``gpus`` are their uuids."""

    reason = "Unhealthy"
    http_status = 503

    def __init__(self, message: str = "", *, gpus: Sequence[str], **details: Any) -> None:
        super().__init__(
            message or "A GPU of your server stopped working. Give it back and ask again to get another one.",
            gpus=list(gpus),
            **details,
        )
        self.gpus = list(gpus)


class ParkRefused(GpuError):
    """A GPU cannot be parked: nothing was changed. ``why`` is a `parking.Obstacle`, as text.

    ``holders``: the processes that are the reason.
    """

    reason = "ParkRefused"
    http_status = 409

    def __init__(
        self, message: str = "", *, why: str, holders: Sequence[Mapping[str, Any]] = (), **details: Any
    ) -> None:
        super().__init__(
            message or "The GPU's memory cannot be moved to the host now. Nothing was changed: the GPU stays attached.",
            why=why,
            holders=list(holders),
            **details,
        )
        self.why = why
        self.holders = list(holders)


class GpuDataLost(GpuError):
    """The driver cannot bring back what a process had on its GPUs; ``gpus`` are their uuids. The process lives."""

    reason = "GpuDataLost"
    http_status = 410

    def __init__(self, message: str = "", *, gpus: Sequence[str], **details: Any) -> None:
        super().__init__(
            message
            or "The data of this kernel on the GPU are lost: the driver could not bring them back. Its other variables "
            "are still there: save them, then restart the kernel.",
            gpus=list(gpus),
            **details,
        )
        self.gpus = list(gpus)


class NotPermitted(GpuError):
    """The server knows you but does not allow this, or does not know you."""

    reason = "NotPermitted"
    http_status = 403


class ServerUnreachable(GpuError):
    """No Jupyter server with jupyter-gpu answered."""

    reason = "ServerUnreachable"
    http_status = 503


class OutsideServer(ServerUnreachable):
    """Servers run here, but this program was started by none of them and has not chosen one; ``servers`` names them."""

    reason = "OutsideServer"

    def __init__(self, message: str, *, servers: Sequence[Mapping[str, Any]], **details: Any) -> None:
        super().__init__(message, servers=list(servers), **details)
        self.servers = list(servers)


class BackendUnavailable(GpuError):
    """The server is there but cannot decide or attach now; nothing was changed."""

    reason = "BackendUnavailable"
    http_status = 503


_BY_REASON: dict[str, type[GpuError]] = {
    cls.reason: cls
    for cls in (
        InvalidRequest,
        TooLarge,
        InvalidAnnotation,
        StaleGeneration,
        LimitExceeded,
        Infeasible,
        NoCapacity,
        Draining,
        Unhealthy,
        ParkRefused,
        GpuDataLost,
        NotPermitted,
        ServerUnreachable,
        OutsideServer,
        BackendUnavailable,
    )
}


def from_json(body: Any) -> GpuError:
    """Return the error that `GpuError.to_json` described; a plain `GpuError` where it is not known."""
    if not isinstance(body, Mapping):
        return GpuError("The server answered with an error that could not be read.")
    message = str(body.get("message") or "The server answered with an error.")
    details = body.get("details")
    cls = _BY_REASON.get(str(body.get("reason")), GpuError)
    return _made(cls, message, details if isinstance(details, Mapping) else {})


def _made(cls: type[GpuError], message: str, details: Mapping[str, Any]) -> GpuError:
    try:
        return cls(message, **details)
    except (TypeError, AttributeError):  # details of another version: keep the sentence, which is what people need
        return GpuError(message)
