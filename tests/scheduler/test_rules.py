"""The rules that hold at every instant, in random worlds under random operations.

The machine plays users, the node and misfortune; `decide` runs now and then, as it does when changes come in
batches. What the rules say is checked here by code that shares nothing with the decisions: by brute force.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from jupyter_gpu.model.annotations import Allocated, Attached, Reason, Requested, Wish, record
from jupyter_gpu.model.feasible import refuse
from jupyter_gpu.model.gpu import DrainingShare, Gpu, GpuShare, total
from jupyter_gpu_scheduler.rules.queue.decide import Decision, decide
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from tests.builders import GIB, NODE, apply, inventory

UIDS = ("a", "b", "c", "d")
AMOUNTS = [
    *[(milli, None) for milli in (0, 250, 500, 500, 750, 1000, 1000, 1500, 1750, 2000, 2500, 3000)],
    *[(250, 250), (500, 250), (1000, 500), (1500, 500), (2000, 1000), (1500, 750)],
]


def _wish(amount: tuple[int, int | None], plain: bool, **fields: Any) -> Wish:
    return Wish(amount[0], amount[1]) if plain else Wish(amount[0], amount[1], **fields)


wishes = st.builds(
    _wish,
    st.sampled_from(AMOUNTS),
    plain=st.booleans(),
    memory=st.sampled_from([None, None, 5 * GIB, 20 * GIB, 30 * GIB, 60 * GIB]),
    model=st.sampled_from([(), (), ("A100",), ("h100", "B200")]),
    topology=st.sampled_from([None, "any", "island", "island", "switch"]),
    priority=st.sampled_from([None, 0, 1]),
)
uids = st.sampled_from(UIDS)
numbers = st.integers(0, 5)
soon = st.sampled_from([True, True, True, False])
"""Whether it is decided at once, or together with what comes next."""


class World(RuleBasedStateMachine):
    """One node. Its GPUs, its pods, and what each rule of the design says about them."""

    def __init__(self) -> None:
        super().__init__()
        self.snapshot = ClusterSnapshot()
        self.inventory: tuple[Gpu, ...] = ()
        self.lost: tuple[Gpu, ...] = ()

    def __repr__(self) -> str:
        """All there is, for a failure to be understood."""
        lines = [f"  {gpu.uuid} healthy={gpu.healthy} {gpu.model} {gpu.island} {gpu.switch}" for gpu in self.inventory]
        for pod in self.snapshot.pods(NODE):
            lines.append(f"  {pod.requested}\n    {pod.allocated}\n    {pod.attached}")
            lines.append(f"    {pod.uid}: busy={sorted(pod.busy)} limit={pod.limit} gone={pod.gone}/{pod.finished}")
        return "World(\n" + "\n".join(lines) + ")"

    # --- what happens -------------------------------------------------------------------------------------------

    @initialize(
        count=st.integers(1, 6),
        joined=st.sampled_from([(None, None), (2, None), (3, 2), (2, 1)]),
        models=st.sampled_from([("A100",), ("A100",), ("NVIDIA A100-SXM4-80GB", "H100 PCIe")]),
        memory=st.sampled_from([(80,), (80,), (80, 40), (40,)]),
        gate=st.booleans(),
        first=st.lists(wishes, min_size=len(UIDS), max_size=len(UIDS)),
        at_once=st.booleans(),
    )
    def start(
        self,
        count: int,
        joined: tuple[int | None, int | None],
        models: tuple[str, ...],
        memory: tuple[int, ...],
        gate: bool,
        first: list[Wish],
        at_once: bool,
    ) -> None:
        """A node with GPUs and pods."""
        found = inventory(count, island=joined[0], switch=joined[1], models=models, memory=memory)
        self._see(tuple(replace(gpu, gate=gate) for gpu in found))
        for uid, wish in zip(UIDS, first, strict=True):
            self.snapshot.put_pod(PodState(uid, NODE, record(None, wish)))
            self.run_scheduler(not at_once)
        self.run_scheduler(at_once)

    @rule(uid=uids, wish=wishes, soon=soon)
    def ask(self, uid: str, wish: Wish, soon: bool) -> None:
        """A new pod asks, or one that is there asks for something else."""
        pod = self.snapshot.pod(uid) or PodState(uid, NODE)
        if not pod.gone:
            self.snapshot.put_pod(replace(pod, requested=record(pod.requested, wish)))
        self.run_scheduler(soon)

    @rule(uid=uids, milli=st.sampled_from([0, 250, 500, 1000, 1500, 2000, 3000]), soon=soon)
    def resize(self, uid: str, milli: int, soon: bool) -> None:
        """A user drags the slider: another amount of the same."""
        pod = self.snapshot.pod(uid)
        if pod and pod.requested:
            wish = replace(pod.requested.wish, milli=milli, each=None)
            self._change(uid, requested=record(pod.requested, wish))
        self.run_scheduler(soon)

    @rule(uid=uids, numbers=st.sets(numbers, max_size=3))
    def use(self, uid: str, numbers: set[int]) -> None:
        """Programs of a pod open some of what they can, and close the rest."""
        pod = self.snapshot.pod(uid)
        can = {share.uuid for share in _attached(pod).shares}
        draining = {item.uuid for item in _attached(pod).draining}
        self._change(uid, busy=frozenset(can & {f"GPU-{number}" for number in numbers} | draining))

    @rule(uid=uids)
    def enforce(self, uid: str) -> None:
        """The node does what was decided: what is open when it is revoked drains, the rest is released."""
        pod = self.snapshot.pod(uid)
        if pod and pod.allocated and not pod.gone:
            self._enforce(pod)
        self.run_scheduler(True)

    @rule(busy=st.booleans())
    def enforce_all(self, busy: bool) -> None:
        """The node does all that was decided, and programs open all they got."""
        for pod in self.snapshot.pods(NODE):
            if pod.allocated and not pod.gone:
                self._enforce(pod)
                now = self.snapshot.pod(pod.uid)
                if busy:
                    self._change(pod.uid, busy=frozenset(_held(replace(now, allocated=None))) if now else frozenset())
        self.run_scheduler(True)

    @rule(uid=uids, number=numbers)
    def close(self, uid: str, number: int) -> None:
        """The last program of a pod closes a GPU that drains."""
        pod = self.snapshot.pod(uid)
        if pod and pod.attached:
            left = tuple(item for item in pod.attached.draining if item.uuid != f"GPU-{number}")
            busy = pod.busy - {f"GPU-{number}"}
            self.snapshot.put_pod(replace(pod, attached=replace(pod.attached, draining=left), busy=busy))
        self.run_scheduler(True)

    @rule(uid=uids, finished=st.booleans(), reaped=st.booleans(), soon=soon)
    def end(self, uid: str, finished: bool, reaped: bool, soon: bool) -> None:
        """A pod is deleted, or it finishes; sometimes nothing is left of it at once."""
        self._change(uid, gone=True, **({"finished": True} if finished else {}))
        self.run_scheduler(soon)
        if reaped:
            self.snapshot.remove_pod(uid)
            self.run_scheduler(soon)

    @rule(uid=uids, limit=st.sampled_from([None, None, 500, 1000, 2000]), wishes=st.booleans(), soon=soon)
    def administer(self, uid: str, limit: int | None, wishes: bool, soon: bool) -> None:
        """An administrator changes a limit, or removes a wish."""
        self._change(uid, **({"limit": limit} if wishes else {"requested": None}))
        self.run_scheduler(soon)

    @rule(number=numbers, kind=st.sampled_from(["breaks", "heals", "vanishes", "comes back"]), soon=soon)
    def hardware(self, number: int, kind: str, soon: bool) -> None:
        """A GPU breaks or works again, falls off the bus or is found again."""
        this = tuple(gpu for gpu in self.inventory if gpu.index == number)
        others = tuple(gpu for gpu in self.inventory if gpu.index != number)
        if kind == "vanishes":
            self.lost += this
            self._see(others)
        elif kind == "comes back":
            self._see(self.inventory + self.lost)
            self.lost = ()
        else:
            self._see(tuple(replace(gpu, healthy=kind == "heals") for gpu in this) + others)
        self.run_scheduler(soon)

    @rule()
    def settle(self) -> None:
        """All programs close what they need not, and the node follows: it comes to rest."""
        for _ in range(20):
            self.run_scheduler(True)
            for pod in self.snapshot.pods(NODE):
                idle = replace(pod, busy=frozenset())
                self.snapshot.put_pod(idle)
                if idle.allocated and not idle.gone:
                    self._enforce(idle)
            if not decide(self.snapshot, NODE):
                return
        raise AssertionError("the node does not come to rest")

    def run_scheduler(self, soon: bool) -> None:
        """The scheduler decides, and what it decides obeys the rules."""
        if not soon:
            return
        before = self.snapshot.pods(NODE)
        decisions = decide(self.snapshot, NODE)
        assert decisions == decide(self._rebuilt(before[::-1]), NODE), "the order of arrival decided"
        apply(self.snapshot, decisions)
        assert decide(self.snapshot, NODE) == (), "deciding again changed something"
        self._check(before, decisions)

    # --- what must be so at every instant -----------------------------------------------------------------------

    @invariant()
    def a_gpu_is_never_given_twice(self) -> None:
        """Rule 1 and 2: at most 1000 milli over all pods, with what drains; so an exclusive GPU has one owner."""
        held: dict[str, int] = {}
        for pod in self.snapshot.pods(NODE):
            for uuid, milli in _held(pod).items():
                held[uuid] = held.get(uuid, 0) + milli
        assert all(milli <= 1000 for milli in held.values()), held
        for gpu in self.inventory:
            assert self.snapshot.free(gpu.uuid) == 1000 - held.get(gpu.uuid, 0), "the index lost count"

    @invariant()
    def memory_is_never_given_twice(self) -> None:
        """All pods together have at most the memory of a GPU in its books, with what drains."""
        for gpu in self.inventory:
            pods = self.snapshot.pods(NODE)
            taken = sum(_bytes_held(pod, gpu) for pod in pods)
            assert taken <= gpu.memory, {pod.uid: _bytes_held(pod, gpu) for pod in pods}
            left = self.snapshot.free_memory(gpu, NODE)
            recorded = any(share.memory for pod in pods for share in _may_have(pod) if share.uuid == gpu.uuid)
            assert left == (gpu.memory - taken if recorded else None), "the index lost count"

    # --- what a decision must obey ------------------------------------------------------------------------------

    def _check(self, before: tuple[PodState, ...], decisions: tuple[Decision, ...]) -> None:
        old = {pod.uid: pod for pod in before}
        new = {pod.uid: pod for pod in self.snapshot.pods(NODE)}
        for decision in decisions:
            assert not old[decision.uid].gone, "a dead pod was granted something"
            self._check_diff(decision, old[decision.uid])
        for uid, pod in new.items():
            if not pod.gone:
                self._check_pod(old[uid], pod)
        self._check_line(old, new)

    def _check_diff(self, decision: Decision, before: PodState) -> None:
        was = set(before.allocated.shares) if before.allocated else set()
        assert set(decision.allocated.shares) == (was - set(decision.removed)) | set(decision.added)
        assert not set(decision.added) & was
        assert set(decision.removed) <= was

    def _check_pod(self, before: PodState, pod: PodState) -> None:
        """Check what one pod got."""
        wish = pod.requested.wish if pod.requested else Wish(0)
        was, has = _allocated(before), _allocated(pod)
        there = {gpu.uuid: gpu for gpu in self.inventory}
        assert set(has) <= set(there), "allocated what is not there"
        if pod.allocated is None:
            assert pod.requested is None
            return
        assert pod.requested is None or pod.allocated.observed_generation == pod.requested.generation
        kept = [share.uuid for share in (before.allocated.shares if before.allocated else ()) if share.uuid in has]
        assert [share.uuid for share in pod.allocated.shares][: len(kept)] == kept, "the oldest does not come first"
        error = refuse(wish, limit=pod.limit, gpus=self.inventory)
        if error and pod.allocated.reason:
            assert pod.allocated.reason == error.reason
            assert has == {uuid: milli for uuid, milli in was.items() if uuid in there}, "a refusal took something"
            assert pod.ticket is None
            return
        for uuid, milli in has.items():
            if milli > was.get(uuid, 0):
                assert there[uuid].healthy, "granted a broken GPU"
            assert _matches(there[uuid], wish), "granted what was not asked for"
        shares = [(there[share.uuid], share) for share in pod.allocated.shares]
        for gpu, share in shares:
            more = _bytes(gpu, share) > _bytes(gpu, _share(before, gpu.uuid))
            assert not more or (gpu.healthy and share.memory == _records(gpu, wish, share.milli)), "other memory"
        short = any(_is_short(gpu, wish, share) for gpu, share in shares)
        owed = wish.milli - sum(has.values())
        assert owed >= 0, "more than wanted"
        assert len(has) <= len(wish.pieces)
        assert len(_islands(wish, (there[uuid] for uuid in has))) <= 1
        assert (owed > 0 or short) == (pod.ticket is not None) == (pod.allocated.position is not None)
        assert pod.allocated.reason == ((Reason.PARTIAL if has else Reason.DEFERRED) if owed or short else None)
        if not owed and not short:
            assert all(share.memory == _records(gpu, wish, share.milli) for gpu, share in shares if gpu.healthy)
        if not owed:
            assert sorted(has.values(), reverse=True) == list(wish.pieces)
        if wish.topology in (None, "any"):
            good = [uuid for uuid in was if uuid in there and _matches(there[uuid], wish)]
            assert len(has) >= min(len(good), len(wish.pieces)), "a share was lost that was still wanted"
        if len(was) <= len(wish.pieces) and wish.topology in (None, "any"):
            for uuid in pod.busy & set(was) & set(there):
                if there[uuid].healthy and _matches(there[uuid], wish):
                    assert uuid in has, "a GPU in use was taken from somebody who did not ask for fewer"

    def _check_line(self, old: dict[str, PodState], new: dict[str, PodState]) -> None:
        """Check tickets and positions, and that no pod overtakes or starves."""
        line = self.snapshot.line(NODE)
        assert [pod.allocated.position for pod in line if pod.allocated] == list(range(1, len(line) + 1))
        tickets = [pod.ticket for pod in line]
        assert len(set(tickets)) == len(tickets)
        highest = max((pod.ticket or 0 for pod in old.values()), default=0)
        for pod in line:
            ticket = old[pod.uid].ticket
            assert pod.ticket == ticket if ticket is not None else (pod.ticket or 0) > highest, "a place was lost"
        for pod in line:
            for other in new.values():
                if not other.gone and _order(old[other.uid]) > _order(old[pod.uid]):
                    for uuid in self._gained(old[other.uid], other):
                        assert not self._could_use(pod, uuid), f"{other.uid} overtook {pod.uid} at {uuid}"
        if line:
            assert not any(self._ways(line[0])), "the next in line was not served though it could be"
            self._check_partial(line[0])

    def _could_use(self, pod: PodState, uuid: str) -> bool:
        """Whether the pod, still owed something, could use more of this GPU if it were free."""
        assert pod.requested is not None
        wish, has = pod.requested.wish, _allocated(pod)
        gpu = next(gpu for gpu in self.inventory if gpu.uuid == uuid)
        if not gpu.healthy or not _matches(gpu, wish):
            return False
        if uuid in has:
            return has[uuid] < wish.pieces[0] or _is_short(gpu, wish, _share(pod, uuid))
        if len(has) == len(wish.pieces):  # it waits for room where it is
            return False
        same = len(_islands(wish, (g for g in self.inventory if g.uuid in {uuid, *has}))) == 1
        peers = [g for g in self.inventory if _matches(g, wish) and len(_islands(wish, (g, gpu))) == 1]
        return same and len(peers) >= len(wish.pieces) and any(_enough(g, wish, wish.pieces[-1]) for g in peers)

    def _room(self, pod: PodState, gpu: Gpu) -> int:
        """Return the milli of a GPU that the pod may have at most, as things are."""
        others = sum(_held(other).get(gpu.uuid, 0) for other in self.snapshot.pods(NODE) if other.uid != pod.uid)
        return 1000 - others if gpu.healthy else _allocated(pod).get(gpu.uuid, 0)

    def _has_memory(self, pod: PodState, gpu: Gpu, milli: int) -> bool:
        """Whether there is memory for a share of ``milli`` on a GPU, as things are."""
        others = sum(_bytes_held(other, gpu) for other in self.snapshot.pods(NODE) if other.uid != pod.uid)
        assert pod.requested is not None
        needs = _bytes(gpu, GpuShare(gpu.uuid, milli, _records(gpu, pod.requested.wish, milli)))
        return needs <= (gpu.memory - others if gpu.healthy else _bytes(gpu, _share(pod, gpu.uuid)))

    def _gained(self, before: PodState, after: PodState) -> set[str]:
        """GPUs of which the pod now holds more than it did in any way."""
        held, has = _held(before), _allocated(after)
        more = {gpu.uuid for gpu in self.inventory if _bytes(gpu, _share(after, gpu.uuid)) > _bytes_held(before, gpu)}
        return {uuid for uuid, milli in has.items() if milli > held.get(uuid, 0)} | more

    def _ways(self, pod: PodState) -> Iterator[bool]:
        """All ways in which the whole wish could be served now without touching a GPU that is in use."""
        assert pod.requested is not None
        wish, has = pod.requested.wish, _allocated(pod)
        fixed = {gpu.uuid for gpu in self.inventory if gpu.uuid in has and gpu.uuid in pod.busy and gpu.healthy}
        pieces = wish.pieces
        for chosen in combinations(self.inventory, len(pieces)):
            if not fixed <= {gpu.uuid for gpu in chosen} or len(_islands(wish, chosen)) > 1:
                continue
            for last in chosen:
                sizes = {gpu.uuid: pieces[-1] if gpu is last else pieces[0] for gpu in chosen}
                if all(self._has_all(pod, gpu, sizes[gpu.uuid]) for gpu in chosen):
                    yield True

    def _has_all(self, pod: PodState, gpu: Gpu, milli: int) -> bool:
        assert pod.requested is not None
        fits = milli <= self._room(pod, gpu) and _enough(gpu, pod.requested.wish, milli)
        return fits and self._has_memory(pod, gpu, milli)

    def _check_partial(self, pod: PodState) -> None:
        """Check that all that can be had of a wish is had at once."""
        assert pod.requested is not None
        wish, has = pod.requested.wish, _allocated(pod)
        if wish.topology in ("island", "switch") or len(has) >= len(wish.pieces):
            return
        for gpu in self.inventory:
            if gpu.healthy and gpu.uuid not in has:
                free = self._has_all(pod, gpu, wish.pieces[0])
                assert not free or _wants_only_rest(wish, has), f"{gpu.uuid} is free, and {pod.uid} is owed it"

    # --- tools ---------------------------------------------------------------------------------------------------

    def _change(self, uid: str, **fields: Any) -> None:
        pod = self.snapshot.pod(uid)
        if pod and not pod.gone:
            self.snapshot.put_pod(replace(pod, **fields))

    def _see(self, found: tuple[Gpu, ...]) -> None:
        self.inventory = found
        self.snapshot.put_node(NODE, found)

    def _rebuilt(self, pods: Iterable[PodState]) -> ClusterSnapshot:
        fresh = ClusterSnapshot()
        for pod in pods:
            fresh.put_pod(pod)
        fresh.put_node(NODE, self.inventory[::-1])
        return fresh

    def _enforce(self, pod: PodState) -> None:
        assert pod.allocated is not None
        granted = {share.uuid for share in pod.allocated.shares}
        leaving = {share.uuid: share for share in _attached(pod).shares}
        leaving |= {item.uuid: item.share for item in _attached(pod).draining}
        draining = tuple(
            DrainingShare(uuid, share.milli, memory=share.memory)
            for uuid, share in leaving.items()
            if uuid not in granted and uuid in pod.busy
        )
        after = pod.allocated
        actual = Attached(after.observed_generation, after.shares, draining, revision=after.revision)
        self.snapshot.put_pod(replace(pod, attached=actual))


def _attached(pod: PodState | None) -> Attached:
    return (pod.attached if pod else None) or Attached(0)


def _allocated(pod: PodState) -> dict[str, int]:
    return {share.uuid: share.milli for share in (pod.allocated or Allocated(0)).shares}


def _held(pod: PodState) -> dict[str, int]:
    held: dict[str, int] = {}
    for share in _may_have(pod):
        held[share.uuid] = max(share.milli, held.get(share.uuid, 0))
    return held


def _may_have(pod: PodState) -> list[GpuShare]:
    actual = _attached(pod)
    shares = [*actual.shares, *(item.share for item in actual.draining)]
    if pod.allocated and not pod.finished:  # promises to a finished pod are void
        shares += [*pod.allocated.shares, *pod.allocated.pending(pod.attached)]
    return shares


def _bytes_held(pod: PodState, gpu: Gpu) -> int:
    return max((_bytes(gpu, share) for share in _may_have(pod) if share.uuid == gpu.uuid), default=0)


def _bytes(gpu: Gpu, share: GpuShare) -> int:
    """Return what a share has in the books of its GPU."""
    return share.memory if share.memory and share.milli < 1000 else gpu.memory * share.milli // 1000


def _records(gpu: Gpu, wish: Wish, milli: int) -> int:
    return wish.memory or 0 if gpu.gate and milli < 1000 else 0


def _is_short(gpu: Gpu, wish: Wish, share: GpuShare) -> bool:
    return _bytes(gpu, share) < _bytes(gpu, share._replace(memory=_records(gpu, wish, share.milli)))


def _share(pod: PodState, uuid: str) -> GpuShare:
    shares = pod.allocated.shares if pod.allocated else ()
    return next((share for share in shares if share.uuid == uuid), GpuShare(uuid, 0))


def _order(before: PodState) -> tuple[int, float, str]:
    """Return the order of service: priority, then age; pods that came since the last decision come last, by name."""
    return (-before.priority, float("inf") if before.ticket is None else before.ticket, before.uid)


def _enough(gpu: Gpu, wish: Wish, milli: int) -> bool:
    words = " ".join(gpu.model.lower().replace("-", " ").split())
    named = not wish.model or any(f" {name.lower()} " in f" {words} " for name in wish.model)
    return named and gpu.memory * (1 if gpu.gate else milli / 1000) >= (wish.memory or 0)


def _matches(gpu: Gpu, wish: Wish) -> bool:
    return bool(wish.pieces) and _enough(gpu, wish, wish.pieces[0])


def _islands(wish: Wish, gpus: Iterable[Gpu]) -> set[str]:
    if wish.topology not in ("island", "switch"):
        return {"all"}
    return {(gpu.island if wish.topology == "island" else gpu.switch) or gpu.uuid for gpu in gpus}


def _wants_only_rest(wish: Wish, has: dict[str, int]) -> bool:
    return sum(milli == wish.pieces[0] for milli in has.values()) == wish.pieces.count(wish.pieces[0])


@st.composite
def midway(draw: st.DrawFn) -> World:
    """Any state that a node can be in: half enforced, half closed, broken, with wishes that came meanwhile."""
    world = World()
    joined = draw(st.sampled_from([(None, None), (2, None), (3, 2), (2, 1)]))
    found = inventory(
        draw(st.integers(1, 6)),
        island=joined[0],
        switch=joined[1],
        models=draw(st.sampled_from([("A100",), ("A100", "H100 PCIe")])),
        memory=draw(st.sampled_from([(80,), (80, 40)])),
        unhealthy=draw(st.sets(numbers, max_size=1)),
    )
    gate = draw(st.booleans())
    found = tuple(replace(gpu, gate=gate) for gpu in found)
    has: dict[str, dict[str, list[GpuShare]]] = {uid: {"allocated": [], "attached": [], "draining": []} for uid in UIDS}
    busy: dict[str, set[str]] = {uid: set() for uid in UIDS}
    for gpu in found:
        room, left = 1000, gpu.memory
        for uid in draw(st.lists(uids, max_size=2, unique=True)):
            milli = draw(st.sampled_from([250, 500, 500, 750, 1000, 1000]))
            memory = draw(st.sampled_from([0, 5 * GIB, 20 * GIB, 60 * GIB])) if gate and milli < 1000 else 0
            share = GpuShare(gpu.uuid, milli, memory)
            if milli <= room and _bytes(gpu, share) <= left:
                room, left = room - milli, left - _bytes(gpu, share)
                for where in draw(st.sampled_from([("allocated", "attached")] * 4 + [("allocated",), ("draining",)])):
                    has[uid][where].append(share)
                if draw(st.booleans()):
                    busy[uid].add(gpu.uuid)
    places = draw(st.permutations(range(1, len(UIDS) + 1)))
    for uid, place in zip(UIDS, places, strict=True):
        wish = draw(wishes)
        if draw(st.booleans()):  # near to what it has
            milli = total(has[uid]["allocated"]) + draw(st.sampled_from([-1000, -500, -250, 0, 250, 500, 1000]))
            wish = replace(wish, milli=max(0, milli), each=None)
        draining = tuple(DrainingShare(one.uuid, one.milli, memory=one.memory) for one in has[uid]["draining"])
        before = Allocated(1, tuple(draw(st.permutations(has[uid]["allocated"]))))
        pod = PodState(
            uid,
            NODE,
            Requested(2, wish),
            replace(before, ticket=place) if draw(st.booleans()) else before,
            Attached(1, tuple(has[uid]["attached"]), draining),
            limit=draw(st.sampled_from([None, None, None, 1000, 2000])),
            busy=frozenset(busy[uid]),
            gone=(gone := draw(st.sampled_from([False] * 9 + [True]))),
            finished=gone and draw(st.booleans()),
        )
        world.snapshot.put_pod(pod)
    world.inventory = found
    world.snapshot.put_node(NODE, found)
    return world


@pytest.mark.uncounted(after=50)
@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(midway())
def test_decision_in_any_state_obeys_the_rules(world: World) -> None:
    """States that are rarely reached are tried as often as others; then the node comes to rest by the same rules."""
    note(repr(world))
    world.a_gpu_is_never_given_twice()
    world.memory_is_never_given_twice()
    world.run_scheduler(True)
    world.a_gpu_is_never_given_twice()
    world.memory_is_never_given_twice()
    world.settle()
    world.a_gpu_is_never_given_twice()
    world.memory_is_never_given_twice()


TestWorld = pytest.mark.uncounted(after=50)(World.TestCase)
TestWorld.settings = settings(
    max_examples=200, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
