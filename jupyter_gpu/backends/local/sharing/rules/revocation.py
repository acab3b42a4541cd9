"""The revocation of a pod's share by the arbiter: the text of its file, and how long it is in force. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from jupyter_gpu.backends.local.processes.identity import process_json, read_process
from jupyter_gpu.backends.local.records.record import Record
from jupyter_gpu.model import strict
from jupyter_gpu.model.gpu import read_uuid
from jupyter_gpu_node.processes.rules.process_id import ProcessId

MAX_BYTES = 64 * 1024
MAX_REVOCATIONS = 64
MAX_PROCESSES = 256
MAX_REASON = 512
NAME = "revocations.json"
"""Name of the file, beside the sockets of the pod."""

_read_processes = strict.list_of(read_process, MAX_PROCESSES)


class Revocation(NamedTuple):
    """The decision to take away a share of one GPU."""

    key: str
    """Unique key: the pod's record names the revocations that were carried out."""
    gpu: str
    reason: str
    """Reason in plain words for the user."""
    processes: tuple[ProcessId, ...] = ()
    """Processes that used the GPU for that share then."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "key": self.key,
            "gpu": self.gpu,
            "reason": strict.printable(self.reason, MAX_REASON),
            "processes": [process_json(process) for process in self.processes[:MAX_PROCESSES]],
        }

    @classmethod
    def from_json(cls, value: Any, key: str = "revocation") -> Revocation:
        """Parse and check such an object; raises `FieldError`."""
        body = strict.an_object(value, key)
        return cls(
            key=strict.required(body, "key", strict.text(64)),
            gpu=strict.required(body, "gpu", read_uuid),
            reason=strict.required(body, "reason", strict.label(MAX_REASON)),
            processes=strict.required(body, "processes", _read_processes),
        )


_read_revocations = strict.list_of(Revocation.from_json, MAX_REVOCATIONS)


def encode(revocations: Iterable[Revocation]) -> bytes:
    """Write the text of the file."""
    return strict.dumps({"revocations": [revocation.to_json() for revocation in revocations]}).encode()


def decode(text: bytes) -> tuple[Revocation, ...]:
    """Read that text; raises `FieldError`."""
    body = strict.an_object(strict.loads(text, MAX_BYTES), "the revocations")
    return strict.required(body, "revocations", _read_revocations)


def is_in_force(revocation: Revocation, record: Record) -> bool:
    """Tell whether the pod may still not use that GPU.

    Its server writes the key of the revocation and the smaller decision at once. So a GPU that is allocated after that
    was granted anew, and one that only drains is what was taken away.
    """
    attached, allocated = record.attached, record.allocated
    in_hand = {one.uuid for one in attached.shares} | {one.uuid for one in attached.draining} if attached else set()
    has = revocation.gpu in in_hand
    if revocation.key not in record.revocations:
        return has
    granted = allocated is not None and any(one.uuid == revocation.gpu for one in allocated.shares)
    return has and not granted
