"""The memory of the GPUs of one machine where a share has more of it than its part: which decisions wait for it. Pure.

The arbiter limits the other shares of such a *divided* GPU, sees what their programs hold, and writes for which
decisions there is room; a server attaches these alone. Only a pod whose programs take memory through the gate counts
for what it holds. What is decided counts for all others from the moment at which it is recorded, so two decisions are
never given the same room, in whichever order they are attached.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from jupyter_gpu.backends.local.records.record import Record
from jupyter_gpu.model import strict
from jupyter_gpu.model.annotations import Attached, Reason, held_shares
from jupyter_gpu.model.demand import booked
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu_node.shares.rules.divided_memory import MemoryUse, is_divided, kept, room
from jupyter_gpu_node.shares.rules.divided_memory import limits as booked_limits

from .claims import Shares

NAME = "room.json"
"""Name of the file, beside the sockets of the pod."""
MAX_BYTES = 64 * 1024
MAX_FOUND = 256

_revision = strict.integer(0, strict.MAX_GENERATION)


class FoundRoom(NamedTuple):
    """One share of one decision about a pod, for which there is room now."""

    generation: int
    """Generation of the wish that the decision answers."""
    revision: int
    """Revision of the decision."""
    share: GpuShare

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {"generation": self.generation, "revision": self.revision, "share": self.share.to_json()}

    @classmethod
    def from_json(cls, value: Any, key: str = "room") -> FoundRoom:
        """Parse and check such an object; raises `FieldError`."""
        body = strict.an_object(value, key)
        return cls(
            generation=strict.required(body, "generation", _revision),
            revision=strict.required(body, "revision", _revision),
            share=strict.required(body, "share", GpuShare.from_json),
        )


Rooms = Mapping[str, tuple[FoundRoom, ...]]
"""The decisions for which there is room, by pod."""
_read_found = strict.list_of(FoundRoom.from_json, MAX_FOUND)


def encode(found: Iterable[FoundRoom]) -> bytes:
    """Write the text of the file."""
    return strict.dumps({"room": [one.to_json() for one in found]}).encode()


def decode(text: bytes) -> tuple[FoundRoom, ...]:
    """Read that text; raises `FieldError`."""
    body = strict.an_object(strict.loads(text, MAX_BYTES), "the room")
    return strict.required(body, "room", _read_found)


# --- what the records say ---------------------------------------------------------------------------------------------


def named(records: Iterable[Record]) -> frozenset[str]:
    """Return the uuids of the GPUs on which some share names its memory: no other can be divided."""
    return frozenset(share.uuid for record in records for share in _held(record) if share.memory)


def divided(records: Iterable[Record], memory: Mapping[str, int]) -> dict[str, int]:
    """Return the memory of those GPUs, in bytes by uuid, on which some share has more of it than its part."""
    known = tuple(records)
    shares = [share for record in known for share in _held(record)]
    return {
        uuid: memory[uuid]
        for uuid in named(known) & memory.keys()
        if is_divided(memory[uuid], (share for share in shares if share.uuid == uuid))
    }


def _held(record: Record) -> list[GpuShare]:
    return held_shares(record.allocated, record.attached)


def _booked(record: Record, uuid: str, memory: int) -> int:
    """Return the most that the pod has in the books of one GPU."""
    found = (booked(memory, share.milli, share.memory) for share in _held(record) if share.uuid == uuid)
    return max(found, default=0)


def _attached(record: Record, uuid: str) -> GpuShare:
    """Return what the pod has attached of that GPU; 0 milli: nothing."""
    shares = record.attached.shares if record.attached else ()
    return next((share for share in shares if share.uuid == uuid), GpuShare(uuid, 0))


# --- the server's side ------------------------------------------------------------------------------------------------


def permitted(
    record: Record, others: Collection[Record] | None, memory: Mapping[str, int], found: Collection[FoundRoom]
) -> tuple[GpuShare, ...]:
    """Return those of the shares decided for a pod that may be open now; what grows stays as it is while it waits.

    ``others``: the records of the other pods, None if one can't be read; ``memory``: bytes by uuid; ``found``: what the
    arbiter found room for.
    """
    shares = (_permitted(share, record, others, memory.get(share.uuid, 0), found) for share in _decided(record))
    return tuple(share for share in shares if share)


def _permitted(
    share: GpuShare, record: Record, others: Collection[Record] | None, memory: int, found: Collection[FoundRoom]
) -> GpuShare | None:
    stays = kept(share, _attached(record, share.uuid), memory, 0)
    if stays == share or _decision(share, record) in found:
        return share
    if others is None:
        return stays
    alone = record.gate and not any(one.uuid == share.uuid for other in others for one in _held(other))
    return share if alone or not divided((record, *others), {share.uuid: memory}) else stays


def _decision(share: GpuShare, record: Record) -> FoundRoom | None:
    allocated = record.allocated
    return FoundRoom(allocated.observed_generation, allocated.revision, share) if allocated else None


def told(attached: Attached, before: Attached | None) -> Attached:
    """Return what is attached while some share waits for memory: that the decision is not carried out yet, and why."""
    generation = before.observed_generation if before else 0
    return replace(attached, observed_generation=generation, reason=attached.reason or Reason.DRAINING)


# --- the arbiter's side -----------------------------------------------------------------------------------------------


def lowered(shares: Shares, records: Mapping[str, Record], divided_memory: Mapping[str, int]) -> Shares:
    """Return the shares, those of divided GPUs limited to what their pods have in the books."""
    found = dict(shares)
    for gpu in shares.keys() & divided_memory.keys():
        has = {pod: _served(records[pod], gpu)._replace(milli=terms.milli) for pod, terms in shares[gpu].items()}
        decided = {pod: share for pod in has for share in _decided(records[pod]) if share.uuid == gpu}
        booked_bytes = booked_limits(divided_memory[gpu], has, decided)
        found[gpu] = {
            pod: terms if has[pod].exclusive else replace(terms, limit=_least(terms.limit, booked_bytes[pod]))
            for pod, terms in shares[gpu].items()
        }
    return found


def waiting(records: Iterable[Record], divided_memory: Mapping[str, int]) -> frozenset[str]:
    """Return the divided GPUs on which a decision would give some pod more memory than it has attached."""
    return frozenset(
        share.uuid
        for record in records
        for share in _decided(record)
        if share.uuid in divided_memory and _grows(share, record, divided_memory[share.uuid])
    )


class LimitedPod(NamedTuple):
    """A pod whose programs can take memory through the gate alone."""

    record: Record
    dead: bool
    """Whether its server is gone: nothing is attached to it any more, and what it opened last is not recorded."""


def find_room(records: Mapping[str, Record], limited: Mapping[str, LimitedPod], uses: Mapping[str, MemoryUse]) -> Rooms:
    """Return by pod the decisions for which there is room, of those that wait.

    ``records``: those of all pods; ``uses``: what is used of the GPUs on which something waits, now that the limits of
    all shares there are in force.
    """
    known = {uuid: _known(uuid, use, limited) for uuid, use in uses.items()}
    found = {pod: tuple(_found(pod, records, known)) for pod, one in limited.items() if not one.dead}
    return {pod: some for pod, some in found.items() if some}


def _found(pod: str, records: Mapping[str, Record], uses: Mapping[str, MemoryUse]) -> Iterator[FoundRoom]:
    for share in _decided(records[pod]):
        use, decision = uses.get(share.uuid), _decision(share, records[pod])
        if use and decision and _grows(share, records[pod], use.memory):
            others = {other: _booked(one, share.uuid, use.memory) for other, one in records.items() if other != pod}
            if booked(use.memory, share.milli, share.memory) <= room(use, others):
                yield decision


def _known(uuid: str, use: MemoryUse, limited: Mapping[str, LimitedPod]) -> MemoryUse:
    """Return what is known for sure: of pods with the gate alone; one that lives and was not let in has nothing."""
    used = {pod: size for pod, size in use.used.items() if pod in limited}
    closed = (pod for pod, one in limited.items() if not one.dead and not _served(one.record, uuid).milli)
    return MemoryUse(use.memory, {**used, **dict.fromkeys(closed, 0)})


def _grows(share: GpuShare, record: Record, memory: int) -> bool:
    return kept(share, _attached(record, share.uuid), memory, 0) != share


def _decided(record: Record) -> tuple[GpuShare, ...]:
    return record.allocated.shares if record.allocated else ()


def _served(record: Record, uuid: str) -> GpuShare:
    """Return what the pod's programs run on: what is attached, else what drains."""
    attached = _attached(record, uuid)
    draining = record.attached.draining if record.attached else ()
    return attached if attached.milli else next((item.share for item in draining if item.uuid == uuid), attached)


def _least(limit: int | None, other: int) -> int:
    return other if limit is None else min(limit, other)
