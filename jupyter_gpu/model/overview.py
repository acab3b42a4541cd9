"""The facts that may be shown about a machine's GPUs and the servers that have them; pure.

Servers of the same user are shown with their folder, those of other users by the user's name, or only in sum. In a
cluster, a pod sees the sums of its node and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .gpu import Gpu
from .machine import MAX_SERVERS, UNKNOWN, GpuPart, Machine, MachineGpu, Server, Shown, Totals
from .quantity import MAX_MILLI, MILLI_PER_GPU
from .view import GpuLoad


@dataclass(frozen=True, slots=True)
class ServerClaim:
    """The GPUs that one server has and waits for, and the facts that may be shown about it."""

    uid: str
    user: str
    mine: bool
    """Whether it belongs to the user of the server that answers."""
    here: bool = False
    """Whether it is the server that answers."""
    folder: str = ""
    port: int | None = None
    ended: bool = False
    """Its server is gone; what it had is not proven closed."""
    held: Mapping[str, int] = field(default_factory=dict)
    """Milli by uuid of the GPU."""
    draining: frozenset[str] = frozenset()
    """Uuids of those that it gives back."""
    owed: int = 0
    """Milli that it waits for."""
    position: int | None = None
    """Position in line."""


def overview(gpus: Sequence[Gpu], claims: Iterable[ServerClaim], loads: Mapping[str, GpuLoad], shown: Shown) -> Machine:
    """Return the machine as far as it may be shown. ``claims`` on more than a whole GPU are cut, this server's last."""
    ordered = sorted(claims, key=_order)
    named = [claim for claim in ordered if claim.mine or shown is Shown.EVERYBODY] if shown is not Shown.TOTALS else []
    places = {claim.uid: place for place, claim in enumerate(named[:MAX_SERVERS])}
    cards = tuple(_gpu(gpu, ordered, places, loads) for gpu in sorted(gpus, key=lambda gpu: gpu.index))
    totals = Totals(
        gpus=len(cards),
        free=sum(gpu.free for gpu in cards if gpu.healthy),
        used=sum(MILLI_PER_GPU - gpu.free for gpu in cards),
        waiting=sum(claim.owed > 0 for claim in ordered),
    )
    if shown is Shown.TOTALS:
        return Machine(shown, totals)
    return Machine(shown, totals, cards, tuple(_server(claim) for claim in named[:MAX_SERVERS]))


def _order(claim: ServerClaim) -> tuple[bool, bool, bool, int, str, str]:
    line = claim.position or 10**6
    return not claim.here, not claim.mine, claim.owed == 0, line, claim.user, claim.uid


def _gpu(
    gpu: Gpu, claims: Iterable[ServerClaim], places: Mapping[str, int], loads: Mapping[str, GpuLoad]
) -> MachineGpu:
    room = MILLI_PER_GPU
    named: list[GpuPart] = []
    nameless: dict[bool, int] = {}
    for claim in claims:
        milli = min(room, claim.held.get(gpu.uuid, 0))
        if milli <= 0:
            continue
        room -= milli
        draining = claim.ended or gpu.uuid in claim.draining
        if claim.uid in places:
            named.append(GpuPart(milli, places[claim.uid], draining))
        else:
            nameless[draining] = nameless.get(draining, 0) + milli
    parts = (*named, *(GpuPart(milli, None, draining) for draining, milli in sorted(nameless.items())))
    return MachineGpu(gpu.uuid, gpu.index, gpu.model, gpu.memory, gpu.healthy, loads.get(gpu.uuid, UNKNOWN), parts)


def _server(claim: ServerClaim) -> Server:
    folder, port = (claim.folder, claim.port) if claim.mine else ("", None)
    has = min(MAX_MILLI, sum(claim.held.values()))
    return Server(claim.user, claim.here, folder, port, claim.ended, has, claim.owed, claim.position)
