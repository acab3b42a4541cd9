"""The GPUs of one machine and its pods, as the process that counts GPU-hours writes them for a hub's service. Pure.

The file, in which a pod's three states are those of its annotations in a cluster::

    {"format": 1, "boot": "…", "counted": 1234567, "note": "", "gpus": [{"uuid", "index", "model", …}],
     "pods": [{"uid": "…", "user": "ann", "pid": 4711, "ended": false, "requested": {…}, "allocated": {…}, …}]}

``counted`` as in the file with the accounts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .. import strict
from ..annotations import Allocated, Attached, Requested
from ..gpu import MAX_GPUS, Gpu
from .limit import read_name

NAME = "machine.json"
"""Name of the file in the state directory."""
FORMAT = 1
MAX_BYTES = 32 * 1024 * 1024
MAX_PODS = 10_000
MAX_NOTE = 1000
MAX_PID = 2**31 - 1


class MachinePod(NamedTuple):
    """One pod of the machine."""

    uid: str
    user: str
    """Name of the user that it counts for: of the hub where the pod has proven it, else of the machine."""
    pid: int
    """Number of the server's process, in its own pid namespace."""
    ended: bool = False
    """Whether its server has ended; what is still open is left of it."""
    requested: Requested | None = None
    allocated: Allocated | None = None
    attached: Attached | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        states = {"requested": self.requested, "allocated": self.allocated, "attached": self.attached}
        plain = {"uid": self.uid, "user": self.user, "pid": self.pid, "ended": self.ended}
        return {**plain, **{key: state.to_json() for key, state in states.items() if state is not None}}

    @classmethod
    def from_json(cls, value: Any, key: str = "pod") -> MachinePod:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        return cls(
            uid=strict.required(body, "uid", strict.text(64)),
            user=strict.required(body, "user", read_name),
            pid=strict.required(body, "pid", strict.integer(1, MAX_PID)),
            ended=strict.required(body, "ended", strict.boolean),
            requested=strict.optional(body, "requested", lambda value, _: Requested.from_json(value)),
            allocated=strict.optional(body, "allocated", lambda value, _: Allocated.from_json(value)),
            attached=strict.optional(body, "attached", lambda value, _: Attached.from_json(value)),
        )


class MachineUse(NamedTuple):
    """The GPUs and pods of a machine at one moment."""

    gpus: tuple[Gpu, ...]
    note: str = ""
    """Reason why there are no GPUs, or fewer than expected; empty: none is known."""
    pods: tuple[MachinePod, ...] = ()

    def encode(self, boot: str, counted: float) -> str:
        """Return the text of the file, written ``counted`` seconds after the machine's start that ``boot`` names."""
        body: Mapping[str, Any] = {
            "format": FORMAT,
            "boot": boot,
            "counted": round(counted * 1000),
            "note": strict.printable(self.note, MAX_NOTE) if self.note else "",
            "gpus": [gpu.to_json() for gpu in self.gpus],
            "pods": [pod.to_json() for pod in self.pods],
        }
        return strict.dumps(body) + "\n"


class WrittenUse(NamedTuple):
    """The content of the file."""

    use: MachineUse
    boot: str
    counted: float
    """Seconds since that boot."""


def read_use(text: bytes) -> WrittenUse:
    """Read the file; raises `FieldError`."""
    body = strict.an_object(strict.loads(text, MAX_BYTES), "The file")
    strict.required(body, "format", strict.integer(FORMAT, FORMAT))
    use = MachineUse(
        gpus=strict.required(body, "gpus", strict.list_of(Gpu.from_json, MAX_GPUS)),
        note="" if body.get("note") == "" else strict.required(body, "note", strict.label(MAX_NOTE)),
        pods=strict.required(body, "pods", strict.list_of(MachinePod.from_json, MAX_PODS)),
    )
    counted = strict.required(body, "counted", strict.integer(0, strict.MAX_GENERATION)) / 1000
    return WrittenUse(use, strict.required(body, "boot", strict.text(64)), counted)
