"""The record of one pod in the state directory, and its text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from jupyter_gpu.backends.local.processes.identity import process_json, read_process
from jupyter_gpu.model import strict
from jupyter_gpu.model.annotations import Allocated, Attached, Requested, Wish
from jupyter_gpu.model.limits.hub_user import HubUserProof
from jupyter_gpu.model.quantity import MAX_MILLI
from jupyter_gpu_node.processes.rules.process_id import ProcessId

MAX_BYTES = 256 * 1024
"""Limit of one record: three annotations of 64 KiB and some."""

FORMAT = 1

read_uid = strict.text(64)
MAX_REVOCATIONS = 16
_read_processes = strict.list_of(read_process, 4096)
_read_revocations = strict.list_of(strict.text(64), MAX_REVOCATIONS)


class Record(NamedTuple):
    """One pod: its server, where its processes are, and the three states of its GPUs."""

    uid: str
    server: ProcessId
    boot: str
    namespace: int
    place: str | None = None
    """Control group of its enforcement; ``None`` in soft mode. Trusted only from root, who alone makes groups."""
    ended: bool = False
    """Whether its server has ended; only what is still open is left of it."""
    limit: int | None = None
    """Milli."""
    requested: Requested | None = None
    allocated: Allocated | None = None
    attached: Attached | None = None
    outside: tuple[ProcessId, ...] = ()
    """Processes outside every pod that had one of its GPUs open before it was granted, such as a display server."""
    revocations: tuple[str, ...] = ()
    """Keys of the latest revocations by the arbiter that were carried out."""
    gate: bool = False
    """Whether its programs can take memory of GPUs through the gate alone. Trusted only from root, as ``place``."""
    hub_user: HubUserProof | None = None
    """Its user in a hub, as the pod says it: true only if the process that has the hub's key finds it so."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "format": FORMAT,
            "uid": self.uid,
            "server": process_json(self.server),
            "boot": self.boot,
            "namespace": self.namespace,
            "place": self.place,
            "ended": self.ended,
            "limit": self.limit,
            "requested": self.requested.to_json() if self.requested else None,
            "allocated": self.allocated.to_json() if self.allocated else None,
            "attached": self.attached.to_json() if self.attached else None,
            "outside": [process_json(process) for process in self.outside],
            "revocations": list(self.revocations),
            "gate": self.gate or None,
            "hubUser": self.hub_user.to_json() if self.hub_user else None,
        }

    def encode(self) -> bytes:
        """Return the text of the file; reading it gives the same record again."""
        return strict.dumps(self.to_json()).encode()

    @classmethod
    def decode(cls, text: bytes) -> Record:
        """Parse and check the text of a record; raises `FieldError`."""
        body = strict.an_object(strict.loads(text, MAX_BYTES), "record")
        strict.required(body, "format", strict.integer(FORMAT, FORMAT))
        return cls(
            uid=strict.required(body, "uid", read_uid),
            server=strict.required(body, "server", read_process),
            boot=strict.required(body, "boot", strict.text(64)),
            namespace=strict.required(body, "namespace", strict.integer(0, strict.MAX_GENERATION)),
            place=strict.optional(body, "place", strict.text(4096)),
            ended=strict.required(body, "ended", strict.boolean),
            limit=strict.optional(body, "limit", strict.integer(0, MAX_MILLI)),
            requested=strict.optional(body, "requested", lambda value, _: Requested.from_json(value)),
            allocated=strict.optional(body, "allocated", lambda value, _: Allocated.from_json(value)),
            attached=strict.optional(body, "attached", lambda value, _: Attached.from_json(value)),
            outside=strict.optional(body, "outside", _read_processes) or (),
            revocations=strict.optional(body, "revocations", _read_revocations) or (),
            gate=strict.optional(body, "gate", strict.boolean) or False,
            hub_user=strict.optional(body, "hubUser", HubUserProof.from_json),
        )


def without_use(record: Record) -> Record:
    """Return the record without what its pod does with its GPUs, which no decision of another server depends on."""
    return record._replace(attached=record.attached and replace(record.attached, open=(), rests=()))


def without(record: Record, gpu: str) -> Wish | None:
    """Return the wish of a pod that does not want its share of ``gpu`` any more; None if it has none."""
    share = next((one for one in record.allocated.shares if one.uuid == gpu), None) if record.allocated else None
    if share is None or record.requested is None:
        return None
    milli = max(0, record.requested.milli - share.milli)
    return replace(record.requested.wish, milli=milli, base=None) if milli else Wish(0)
