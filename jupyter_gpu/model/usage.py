"""A server's use of its GPUs since it started, as it is sent to clients. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from . import strict
from .gpu import MAX_GPUS, read_uuid

_MOST_SECONDS = 1e12


@dataclass(frozen=True, slots=True)
class GpuUse:
    """The use of one GPU; all times are in seconds."""

    uuid: str
    index: int
    model: str
    whole: float = 0.0
    """It was held as a whole: attached, or not given back yet."""
    watched: float = 0.0
    """The part of ``whole`` of which the load is known: it is read only while a viewer is open."""
    busy: float = 0.0
    """The part of ``watched`` in which programs ran on it."""
    shared: float = 0.0
    """A part of it was held."""
    worth: float = 0.0
    """The GPU time of these parts: half a GPU for an hour is half an hour."""
    ran: float = 0.0
    """The GPU time that programs used of these parts, as the node reported it last."""
    waited: float = 0.0
    """Time in which they had work, and another share ran."""
    node: str = ""
    """The name of the other node that it is on; empty: it is of the server's own.

    There ``index`` is that which programs see, and nothing is known of what ran on a part.
    """

    @property
    def held(self) -> float:
        """Time in which any of it was held."""
        return self.whole + self.shared

    @property
    def gpu_time(self) -> float:
        """GPU time that was held."""
        return self.whole + self.worth

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {name: value for name, value in asdict(self).items() if name != "node" or value}

    @classmethod
    def from_json(cls, value: Any, key: str = "gpu") -> GpuUse:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        times = ("whole", "watched", "busy", "shared", "worth", "ran", "waited")
        return cls(
            strict.required(body, "uuid", read_uuid),
            strict.required(body, "index", strict.integer(0, 4095)),
            strict.required(body, "model", strict.label(128)),
            **{name: strict.required(body, name, seconds) for name in times},
            node=strict.optional(body, "node", strict.text(253)) or "",
        )


@dataclass(frozen=True, slots=True)
class Usage:
    """The use of one server's GPUs, from its start to now."""

    since: float
    """Seconds since the epoch, on the server's clock."""
    seconds: float
    """Seconds since then."""
    gpus: tuple[GpuUse, ...] = ()
    """GPUs that were ever held, by index."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {"since": self.since, "seconds": self.seconds, "gpus": [gpu.to_json() for gpu in self.gpus]}

    @classmethod
    def from_json(cls, value: Any) -> Usage:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, "usage")
        return cls(
            strict.required(body, "since", seconds),
            strict.required(body, "seconds", seconds),
            strict.required(body, "gpus", strict.list_of(GpuUse.from_json, 16 * MAX_GPUS)),
        )


def seconds(value: Any, key: str) -> float:
    """Read a time that is not negative; raises `FieldError`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _MOST_SECONDS:
        raise strict.FieldError(f"{key!r} must be a number of seconds.", key)
    return float(value)
