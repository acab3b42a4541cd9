"""Placement of a wish on the GPUs of one node, with the least change to what the pod has.

`jupyter_gpu.model.feasible` says which GPUs fit a share, and which groups of them could serve the whole wish. Where
topology is no demand, several GPUs are taken from one island, then from one switch, where that is possible.

What a pod has changes only where the wish says so:

* A share that does not fit any more, or is one too many, is given back: unhealthy ones first, then closed ones, then
  open ones that rest, then the newest.
* A share that is too large shrinks in place. One that is too small grows in place where there is room. Without
  room it moves to another GPU, if no process has it open; else it waits where it is.
* A GPU that the pod still holds because it is being closed is taken again first: a shrink that is cancelled.
* An unhealthy GPU gets no new share. A share on one stays until it must change.
* A share has its memory in the books beside its milli (`jupyter_gpu.model.demand`), and needs room for both.
* A GPU that an outside program uses is taken only where no other one would do, and given back before others; after
  these a GPU that is slow. Nothing moves because of it.
* Of GPUs that are equal otherwise, one with a higher priority is taken first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.demand import booked, share_memory, wished_bytes
from jupyter_gpu.model.feasible import fits, groups, islands, topology_group
from jupyter_gpu.model.gpu import Gpu, GpuShare, total
from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu.model.use_class import UseClass
from jupyter_gpu_scheduler.rules.state.books import memory_beside

MIDDLE_PRIORITY = 4.5
"""Priority of GPUs that the settings do not name."""


@dataclass(frozen=True, slots=True)
class Spot:
    """One GPU as one pod sees it; amounts in milli."""

    gpu: Gpu
    room: int
    """Milli that the pod may have here now, including what it has."""
    held: int = 0
    """Milli that the pod holds here in any way: allocated, attached or draining."""
    share: int = 0
    """Milli that is allocated to the pod here."""
    age: int = 0
    """Age rank among its shares: 0 is the oldest."""
    use: UseClass = UseClass.CLOSED
    """Use that the pod makes of it."""
    used: bool = False
    """Whether an outside process uses it, one that was not granted the GPU: such a GPU is taken last."""
    memory: int = 0
    """Memory that the share here records, as in `GpuShare`."""
    memory_room: int | None = None
    """Bytes that the pod may have here now, including what it has; ``None``: those that go with ``room``."""
    priority: int | None = None
    """Priority of the GPU, 0 to 9; ``None``: the settings do not name it."""

    @property
    def busy(self) -> bool:
        """Whether some process has it open."""
        return self.use is not UseClass.CLOSED

    @property
    def now(self) -> GpuShare:
        """The share that is allocated to the pod here."""
        return GpuShare(self.gpu.uuid, self.share, self.memory)

    def shared(self, wish: Wish, milli: int) -> GpuShare:
        """Return a share of ``milli`` here as ``wish`` asks for it."""
        return GpuShare(self.gpu.uuid, milli, share_memory(self.gpu, wish, milli))

    def has_memory(self, share: GpuShare) -> bool:
        """Tell whether there is memory enough for a share here, for which there is room."""
        if self.memory_room is None and not share.memory:
            return True
        left = memory_beside(self.gpu.memory, self.room) if self.memory_room is None else self.memory_room
        return booked(self.gpu.memory, share.milli, share.memory) <= left


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The shares a pod should have now, and what it still waits for."""

    shares: tuple[GpuShare, ...]
    """Oldest first."""
    owed: int = 0
    """Milli."""
    owed_memory: int = 0
    """Bytes that shares lack which the pod has, as they could not grow where they are."""
    wanted: frozenset[str] = frozenset()
    """UUIDs of GPUs that could serve what is owed: pods further back get nothing more of them."""


def fulfils(wish: Wish, shares: Sequence[GpuShare], gpus: Mapping[str, Gpu]) -> bool:
    """Tell whether ``shares`` are exactly what ``wish`` asks for."""
    if sorted((share.milli for share in shares), reverse=True) != list(wish.pieces):
        return False
    found = [gpus.get(share.uuid) for share in shares]
    if not all(gpu and _is_as_wished(gpu, wish, share) for gpu, share in zip(found, shares, strict=True)):
        return False
    return len(islands([gpu for gpu in found if gpu], wish.topology)) <= 1


def _is_as_wished(gpu: Gpu, wish: Wish, share: GpuShare) -> bool:
    """Tell whether a share is one of those that ``wish`` asks for, apart from its milli."""
    return fits(gpu, wish, share.milli) and share.memory == share_memory(gpu, wish, share.milli)


def arrange(wish: Wish, spots: Sequence[Spot]) -> Arrangement:
    """Return the least change that gives the pod as much of a feasible ``wish`` as there is room for now.

    ``spots``: all GPUs of the node, by index.
    """
    if not wish.milli:
        return Arrangement(())
    by_uuid = {spot.gpu.uuid: spot for spot in spots}
    options = []
    for group in groups((spot.gpu for spot in spots), wish):
        inside = {gpu.uuid: by_uuid[gpu.uuid] for gpu in group}
        outside = [spot for spot in spots if spot.share and spot.gpu.uuid not in inside]
        options.append(_option(list(inside.values()), outside, wish))
    rank, best, _ = min(options, key=lambda option: option[0])
    shares = tuple(best.shares.values())
    owed = wish.milli - total(shares)
    owed_memory = sum(_lacks(by_uuid[share.uuid].gpu, wish, share) for share in shares)
    if not owed and not owed_memory:
        return Arrangement(shares)
    reachable = [spot for other, _, inside in options if other[0] == rank[0] for spot in inside]
    return Arrangement(shares, owed, owed_memory, frozenset(_wanted(reachable, best, wish)))


def _lacks(gpu: Gpu, wish: Wish, share: GpuShare) -> int:
    """Return the bytes that a share of ``gpu`` has too few for ``wish``."""
    if share.memory == share_memory(gpu, wish, share.milli):
        return 0
    return max(0, wished_bytes(gpu, wish, share.milli) - booked(gpu.memory, share.milli, share.memory))


def _option(
    inside: Sequence[Spot], outside: Sequence[Spot], wish: Wish
) -> tuple[tuple[int, int, _Cost, int], _Layout, Sequence[Spot]]:
    """Return the best layout in one group, and how good the group is: the least is the best.

    First, how many shares ``outside`` of it are lost that work and are in use; then how many GPUs that work it has
    too few; then what the layout costs; then how much of the group is left over.
    """
    layout = min(_layouts(inside, wish), key=lambda layout: layout.cost)
    lost = sum(spot.busy and spot.gpu.healthy for spot in outside)
    working = sum(spot.gpu.healthy or spot.share > 0 for spot in inside)
    cost = layout.cost._replace(gone=layout.cost.gone + len(outside))
    left_over = sum(spot.room > 0 and not spot.share for spot in inside)
    return (lost, max(0, len(wish.pieces) - working), cost, left_over), layout, inside


def _wanted(reachable: Iterable[Spot], layout: _Layout, wish: Wish) -> Iterator[str]:
    """Yield the GPUs that could serve what is owed if they came free."""
    for spot in reachable:
        has = layout.shares.get(spot.gpu.uuid)
        small = has and (has.milli < wish.pieces[0] or _lacks(spot.gpu, wish, has))
        if spot.gpu.healthy and (small if has else not layout.bound):
            yield spot.gpu.uuid


class _Cost(NamedTuple):
    """The cost of a layout; the first difference decides between two."""

    missing: int
    """Milli of the pieces that are not served."""
    gone: int
    """Shares given back."""
    taken: int
    """Shares on other GPUs than before."""
    unhealthy: int
    """Shares kept on GPUs that do not work."""
    busy: int
    """Shares given back that some process has open."""
    working: int
    """Those of them that do not rest."""
    used: int
    """Shares on GPUs that an outside process uses."""
    slow: int
    """Shares on GPUs that are slow."""
    resized: int
    """Shares kept with another size."""
    resized_busy: int
    """Resized shares that some process has open."""
    newest: tuple[int, ...]
    """Least where the shares touched are the newest."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """One way to serve a wish within one group of GPUs."""

    shares: dict[str, GpuShare]
    """By uuid, oldest first."""
    bound: bool
    """Whether all that is owed must come on GPUs that the pod has: they are busy."""
    cost: _Cost


def _layouts(group: Sequence[Spot], wish: Wish) -> Iterator[_Layout]:
    mine = sorted((spot for spot in group if spot.share), key=lambda spot: spot.age)
    sizes = sorted(set(wish.pieces), reverse=True)
    for targets in _targets(mine, wish):
        for order in (sizes, sizes[::-1])[: len(sizes)]:
            yield _serve(group, mine, targets, wish, order)


def _targets(mine: Sequence[Spot], wish: Wish) -> Iterator[dict[str, int]]:
    """Yield ways to assign the pod's shares to pieces, by uuid; shares that are missing are given back.

    All pieces are of one size but for one smaller *rest*: try each share as that, and none where a new one may be it:
    what is left over then is given back, so no process may have it open.
    """
    big, rest = wish.pieces[0], wish.pieces[-1]
    bigs = wish.pieces.count(big)
    holders: list[Spot | None] = [spot for spot in mine if rest < big and fits(spot.gpu, wish, rest)]
    best = sorted(mine, key=lambda spot: _worth(spot, wish, big))
    if len(mine) <= bigs or not holders:
        holders.insert(0, None)
    elif not any(spot.busy for spot in best[bigs:]):
        holders.append(None)
    for holder in holders:
        others = [spot for spot in best if spot is not holder]
        targets = {spot.gpu.uuid: big for spot in others[:bigs]}
        yield {**targets, holder.gpu.uuid: rest} if holder else targets


def _worth(spot: Spot, wish: Wish, target: int) -> tuple[bool, bool, int, bool, bool, bool, int]:
    """Return the key that sorts shares by which one to keep as ``target``, best first."""
    share = spot.shared(wish, target)
    resized = spot.share != target or spot.memory != share.memory
    return (not spot.gpu.healthy, not _in_place(spot, share), -spot.use, spot.used, spot.gpu.slow, resized, spot.age)


def _in_place(spot: Spot, share: GpuShare) -> bool:
    """Tell whether the pod's share can become ``share`` where it is, now."""
    if share.milli > max(spot.share, spot.room):
        return False
    return spot.has_memory(share) or _is_less(spot, share)


def _is_less(spot: Spot, share: GpuShare) -> bool:
    """Tell whether ``share`` has no more of the GPU in the books than the pod's share has now."""
    memory = spot.gpu.memory
    bytes_now, then = booked(memory, spot.share, spot.memory), booked(memory, share.milli, share.memory)
    return share.milli <= spot.share and then <= bytes_now


def _serve(
    group: Sequence[Spot], mine: Sequence[Spot], targets: dict[str, int], wish: Wish, order: Sequence[int]
) -> _Layout:
    """Carry ``targets`` out as far as there is room, and take new GPUs for the other pieces, sizes in ``order``."""
    kept: dict[str, GpuShare] = {}
    movers: dict[int, list[Spot]] = {size: [] for size in order}
    for spot in mine:
        target = targets.get(spot.gpu.uuid, 0)
        share = spot.shared(wish, target)
        if share == spot.now or (target and spot.gpu.healthy and _in_place(spot, share)):
            kept[spot.gpu.uuid] = share
        elif target and spot.gpu.healthy and spot.busy:
            kept[spot.gpu.uuid] = _stuck(spot, wish, target)  # it waits in place
        elif target:
            movers[target].append(spot)
    missing = Counter(wish.pieces) - Counter(targets.values())
    taken: dict[str, GpuShare] = {}
    stay: dict[str, GpuShare] = {}
    for size in order:
        others = (spot for spot in group if not spot.share and spot.gpu.uuid not in taken)
        spots = [spot for spot in others if _may_take(spot, wish, size)]
        near = [spot.gpu for spot in group if spot.gpu.uuid in kept or spot.gpu.uuid in taken]
        chosen = choose(spots, size, missing[size] + len(movers[size]), near)
        taken |= {spot.gpu.uuid: spot.shared(wish, size) for spot in chosen}
        stuck = movers[size][max(0, len(chosen) - missing[size]) :]
        stay |= {spot.gpu.uuid: _stuck(spot, wish, size) for spot in stuck}
    kept |= stay
    shares = {spot.gpu.uuid: kept[spot.gpu.uuid] for spot in mine if spot.gpu.uuid in kept} | taken
    bound = len(shares) == len(wish.pieces) and not stay
    return _Layout(shares, bound, _cost(group, mine, shares, wish))


def _may_take(spot: Spot, wish: Wish, size: int) -> bool:
    """Tell whether a share of ``size`` may be taken here, if there are so many milli."""
    if not fits(spot.gpu, wish, size):
        return False
    plain = spot.memory_room is None and not wish.memory  # for speed: then room is all that matters
    return plain or spot.has_memory(spot.shared(wish, size))


def _stuck(spot: Spot, wish: Wish, size: int) -> GpuShare:
    """Return the share of a spot that should become one of ``size`` and can neither do that nor move."""
    smaller = spot.shared(wish, min(spot.share, size))
    return smaller if _is_less(spot, smaller) else spot.now._replace(milli=smaller.milli)


def _cost(group: Sequence[Spot], mine: Sequence[Spot], shares: Mapping[str, GpuShare], wish: Wish) -> _Cost:
    gone = [spot for spot in mine if spot.gpu.uuid not in shares]
    kept = [spot for spot in mine if spot.gpu.uuid in shares]
    resized = [spot for spot in kept if shares[spot.gpu.uuid] != spot.now]
    missing = Counter(wish.pieces) - Counter(_served(group, shares, wish))
    return _Cost(
        missing=sum(size * count for size, count in missing.items()),
        gone=len(gone),
        taken=len(shares) - len(kept),
        unhealthy=sum(not spot.gpu.healthy for spot in kept),
        busy=sum(spot.busy for spot in gone),
        working=sum(spot.use is UseClass.WORKING for spot in gone),
        used=sum(spot.used for spot in group if spot.gpu.uuid in shares),
        slow=sum(spot.gpu.slow for spot in group if spot.gpu.uuid in shares),
        resized=len(resized),
        resized_busy=sum(spot.busy for spot in resized),
        newest=tuple(-spot.age for spot in reversed([*resized, *gone])),
    )


def _served(group: Sequence[Spot], shares: Mapping[str, GpuShare], wish: Wish) -> list[int]:
    """Return the milli of those of ``shares`` that have the memory that is wished."""
    if not wish.memory and not any(share.memory for share in shares.values()):  # for speed
        return [share.milli for share in shares.values()]
    having = ((spot.gpu, shares[spot.gpu.uuid]) for spot in group if spot.gpu.uuid in shares)
    return [share.milli for gpu, share in having if share.memory == share_memory(gpu, wish, share.milli)]


def choose(spots: Iterable[Spot], size: int, count: int, near: Sequence[Gpu] = ()) -> list[Spot]:
    """Choose up to ``count`` of ``spots`` for new shares of ``size`` milli; ``near``: the GPUs of the other shares.

    First those that no outside program uses, and of these the ones that the pod still holds, then those that are not
    slow. Then whole GPUs, and several at once, from as few islands and switches as possible, near the others, and so
    that large groups of free GPUs stay whole. A single part of a GPU goes where the least is left over. Of equal ones
    the higher priority comes first.
    """
    able = [spot for spot in spots if spot.gpu.healthy and spot.room >= size]
    able.sort(key=_preferred_first)
    chosen: list[Spot] = []
    for used in (False, True):
        beside = [*near, *(spot.gpu for spot in chosen)]
        chosen += _best([spot for spot in able if spot.used is used], size, count - len(chosen), beside)
    return chosen


def _best(able: Sequence[Spot], size: int, count: int, near: Sequence[Gpu]) -> list[Spot]:
    """Choose as `choose` does among spots that outside programs all use, or none of which they use."""
    own = [spot for spot in able if spot.held][:count]
    rest = [spot for spot in able if not spot.held]
    if size < MILLI_PER_GPU and count - len(own) == 1:
        return own + rest[:1]
    chosen = own
    for slow in (False, True):
        alike = [spot for spot in rest if spot.gpu.slow is slow]
        beside = [*near, *(spot.gpu for spot in chosen)]
        chosen = chosen + _together(alike, count - len(chosen), beside, ("island", "switch"))
    return chosen


def _preferred_first(spot: Spot) -> tuple[bool, int, float, int, int, str]:
    """Return the key that sorts spots for a new share: by room, so that the least is left over."""
    priority = MIDDLE_PRIORITY if spot.priority is None else spot.priority
    return (spot.gpu.slow, spot.room, -priority, spot.gpu.memory, spot.gpu.index, spot.gpu.uuid)


def _together(spots: Sequence[Spot], count: int, near: Sequence[Gpu], levels: Sequence[str]) -> list[Spot]:
    """Choose ``count`` of ``spots``, split over as few groups of each level as possible."""
    if not levels or count >= len(spots):
        return list(spots[:count])
    level, *inner = levels
    left: dict[tuple[str, str], list[Spot]] = {}
    for spot in spots:
        left.setdefault(topology_group(spot.gpu, level), []).append(spot)
    chosen: list[Spot] = []
    neighbours = Counter(topology_group(gpu, level) for gpu in near)
    while count > len(chosen):
        wanted = count - len(chosen)

        def worth(name: tuple[str, str], wanted: int = wanted) -> tuple[int, bool, int]:
            size = len(left[name])
            return (-neighbours[name], size < wanted, size if size >= wanted else -size)

        name = min(left, key=worth)  # the first of equals: spots come in order of preference
        chosen += _together(left.pop(name), wanted, near, inner)
    return chosen
