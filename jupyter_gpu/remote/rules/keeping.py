"""Pure: the GPUs that a worker's kernel is given, and how long a kernel without a call is kept for the next one.

One process can use the GPUs of one node only. So what is attached is divided by *places*: the notebook's own node, and
the nodes of the workers of its pod. The own node comes first, then the nearest one that has enough.

CUDA looks for GPUs once in the life of a process, so a kernel serves calls that want exactly the GPUs that it was given
at its start. A program that used a GPU keeps it open. So a kernel that rests must end before one of its GPUs is given
back: nothing else would close it, and the GPU would drain for ever.

| the kernel | what happens | and then |
|---|---|---|
| – | a call | a new kernel is given the GPUs of now |
| rests | a call that wants the GPUs that it was given | it serves the call |
| rests | a call that wants some of its GPUs, or another part of one | it ends, and a new one serves the call |
| works | a call that wants one of its GPUs | the call waits for its turn, after those that were made before it |
| works | the call ends, and had asked for more GPUs than the server had | it ends, before they are given back |
| works | the call ends | it rests if `is_kept`, else it ends |
| rests | the GPUs change in any way | it is kept if `is_kept`, else it ends |
| rests | this program asks for fewer GPUs than it was given | it ends before the server hears of that |
| works | the GPUs change in any way | the call goes on; what is given back is closed when it ends |
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from jupyter_gpu.model.view import GpuState, View

Gpus = frozenset[tuple[str, int]]
"""GPUs by uuid, each with the milli that can be used of it."""
HERE = ""
"""The place of the GPUs of the notebook's own node; those of others are the ids of their workers."""
_NEAREST = ("node", "switch", "unknown", "other")


class Choice(NamedTuple):
    """The GPUs of one place."""

    place: str
    gpus: Gpus


def usable(view: View, place: str = HERE) -> Gpus:
    """Return the GPUs of a place that can be used now."""
    if place == HERE:
        return frozenset((item.gpu.uuid, item.milli) for item in view.gpus if item.state is GpuState.ATTACHED)
    found = next((worker for worker in view.workers if worker.id == place and worker.usable), None)
    broken = {share.uuid for share in found.unhealthy} if found else ()
    return frozenset((one.uuid, one.milli) for one in found.gpus if one.uuid not in broken) if found else frozenset()


def places(view: View) -> tuple[str, ...]:
    """Return the places with GPUs: the own one, then the others, nearest first."""
    others = sorted((worker for worker in view.workers), key=lambda one: _NEAREST.index(one.relation))
    return (HERE, *(worker.id for worker in others if worker.usable))


def choice(view: View, milli: int) -> Choice | None:
    """Return the first place that has an amount; None: only several have it together, and one is waited for."""
    known = places(view)
    found = (Choice(place, usable(view, place)) for place in known)
    if len(known) == 1:
        return next(found)
    return next((one for one in found if milli_of(one.gpus) >= milli), None)


def is_kept(given: Gpus, view: View, place: str = HERE) -> bool:
    """Tell whether a kernel that rests is kept: all that it was given can be used, and nothing is being given back.

    It may have other GPUs open than its own, as libraries ask all that they can open about their memory.
    """
    if not given <= usable(view, place):
        return False
    if place == HERE:
        return all(item.state is not GpuState.DRAINING for item in view.gpus)
    return not any(worker.leaving for worker in view.workers if worker.id == place)


def gained(before: View, after: View) -> frozenset[str]:
    """Return the places whose GPUs are not those of before, so that some of them are given back afterwards."""
    return frozenset(place for place in places(after) if usable(after, place) != usable(before, place))


def milli_of(gpus: Gpus) -> int:
    """Return the amount."""
    return sum(milli for _, milli in gpus)


def share_one(some: Gpus, others: Gpus) -> bool:
    """Tell whether both have a part of the same GPU."""
    return not {uuid for uuid, _ in some}.isdisjoint(uuid for uuid, _ in others)


def has_room(chosen: Choice, working: Iterable[Choice], earlier: Iterable[Choice | None], most: int) -> bool:
    """Tell whether a call may have its GPUs now, while others work.

    ``earlier``: what calls want that were made before it and wait; those that still wait for GPUs stand in nobody's
    way. ``most``: the kernels that a place may have.
    """
    there = [one for one in working if one.place == chosen.place]
    before = [one for one in earlier if one is not None]
    return len(there) < most and not any(share_one(one.gpus, chosen.gpus) for one in (*there, *before))


def sets(gpus: Gpus, milli: int, taken: Iterable[Gpus] = ()) -> list[Gpus]:
    """Divide what is not ``taken`` of some GPUs into sets of at least ``milli``, for one process each.

    The largest parts come first. What is left, and is less than ``milli``, is in no set.
    """
    busy = {uuid for one in taken for uuid, _ in one}
    found: list[Gpus] = []
    current: Gpus = frozenset()
    for uuid, part in sorted(gpus, key=lambda one: (-one[1], one[0])):
        if uuid in busy:
            continue
        current |= {(uuid, part)}
        if milli_of(current) >= milli:
            found.append(current)
            current = frozenset()
    return found


def free_set(view: View, milli: int, taken: Iterable[Gpus]) -> Choice | None:
    """Return the first set of at least an amount in which nothing is ``taken``; None if there is none."""
    busy = tuple(taken)
    found = ((place, next(iter(sets(usable(view, place), milli, busy)), None)) for place in places(view))
    return next((Choice(place, gpus) for place, gpus in found if gpus is not None), None)
