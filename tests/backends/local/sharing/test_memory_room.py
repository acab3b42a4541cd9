"""The memory of one machine's GPU over its servers' and its arbiter's steps: it is never given twice. Pure."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jupyter_gpu.backends.local.records.record import Record
from jupyter_gpu.backends.local.sharing.rules import memory_room
from jupyter_gpu.backends.local.sharing.rules.claims import claims, parted, served
from jupyter_gpu.backends.local.sharing.rules.memory_room import FoundRoom, LimitedPod
from jupyter_gpu.model.annotations import Allocated, Attached, Reason
from jupyter_gpu.model.demand import booked, held_memory, part
from jupyter_gpu.model.gpu import DrainingShare, GpuShare
from jupyter_gpu.model.strict import FieldError
from jupyter_gpu_node.processes.rules.process_id import ProcessId
from jupyter_gpu_node.shares.rules.divided_memory import MemoryUse
from jupyter_gpu_node.shares.rules.turns.terms import Terms

GPU, ALL = "GPU-0", 80
BIG, PLAIN = GpuShare(GPU, 1, 40), GpuShare(GPU, 500)
PODS = ("a" * 32, "b" * 32, "c" * 32)
A, B, C = PODS


def record(
    pod: str, allocated: GpuShare | None = None, attached: GpuShare | None = None, *,
    draining: GpuShare | None = None, gate: bool = True,
) -> Record:  # fmt: skip
    """Return one with these shares."""
    leaving = (DrainingShare(GPU, draining.milli, memory=draining.memory),) if draining else ()
    return Record(
        pod, ProcessId(1, 2), "boot", 1, gate=gate,
        allocated=Allocated(3, (allocated,), revision=4) if allocated else None,
        attached=Attached(2, (attached,) if attached else (), leaving) if attached or leaving else None,
    )  # fmt: skip


def may_open(own: Record, *others: Record, found: tuple[FoundRoom, ...] = ()) -> tuple[GpuShare, ...]:
    """Return what a server may attach."""
    return memory_room.permitted(own, others, {GPU: ALL}, found)


def room(*records: Record, dead: str = "", ungated: str = "", **used: int) -> memory_room.Rooms:
    """Return what the arbiter finds, where programs use so much."""
    by_uid = {one.uid: one for one in records}
    limited = {uid: LimitedPod(one, uid == dead) for uid, one in by_uid.items() if uid != ungated}
    uses = {pod[0]: pod for pod in PODS}
    return memory_room.find_room(
        by_uid, limited, {GPU: MemoryUse(ALL, {uses[pod]: size for pod, size in used.items()})}
    )


# --- the file ---------------------------------------------------------------------------------------------------------


def test_file_comes_back_and_garbage_is_refused() -> None:
    """It is the arbiter's, but anybody may have made one."""
    found = (FoundRoom(3, 4, BIG), FoundRoom(3, 4, PLAIN))
    assert memory_room.decode(memory_room.encode(found)) == found
    for text in (b"", b"{}", b'{"room": [{"generation": 1}]}', b'{"room": [{"generation": -1, "revision": 0}]}'):
        with pytest.raises(FieldError):
            memory_room.decode(text)


# --- a server ---------------------------------------------------------------------------------------------------------


def test_a_divided_gpu_is_opened_only_for_the_very_decision_that_has_room() -> None:
    """Another generation, revision or share is another decision."""
    own, other = record(A, BIG), record(B, PLAIN, PLAIN)
    assert may_open(own, other) == ()
    assert may_open(own, other, found=(FoundRoom(3, 4, BIG),)) == (BIG,)
    for one in (FoundRoom(2, 4, BIG), FoundRoom(3, 3, BIG), FoundRoom(3, 4, PLAIN)):
        assert may_open(own, other, found=(one,)) == ()


def test_what_is_alone_or_on_a_gpu_that_is_not_divided_does_not_wait() -> None:
    """A pod without the gate opens no divided GPU, as nobody could limit it."""
    assert may_open(record(A, BIG)) == (BIG,)
    assert may_open(record(A, BIG, gate=False)) == ()
    assert may_open(record(A, PLAIN), record(B, PLAIN, PLAIN)) == (PLAIN,)
    assert may_open(record(A)) == ()


def test_what_grows_keeps_what_it_has() -> None:
    """And what shrinks, or stays, needs no room."""
    has = GpuShare(GPU, 250, 10)
    other = record(B, BIG)
    assert may_open(record(A, GpuShare(GPU, 250, 30), has), other) == (has,)
    assert may_open(record(A, GpuShare(GPU, 250, 5), has), other) == (GpuShare(GPU, 250, 5),)
    assert may_open(record(A, PLAIN, draining=PLAIN), other) == ()


def test_a_record_that_cannot_be_read_may_hold_anything() -> None:
    """Nothing grows then, and nothing is closed."""
    own = record(A, GpuShare(GPU, 750), PLAIN)
    assert memory_room.permitted(own, None, {GPU: ALL}, ()) == (PLAIN,)
    assert memory_room.permitted(record(A, PLAIN), None, {GPU: ALL}, ()) == ()


def test_a_server_that_waits_says_so() -> None:
    """By a reason where nothing drains; another reason stays."""
    waits = memory_room.told(Attached(3, ()), None)
    assert (waits.observed_generation, waits.reason) == (0, Reason.DRAINING)
    assert memory_room.told(Attached(3, (), reason=Reason.UNHEALTHY), Attached(2, ())).reason is Reason.UNHEALTHY


# --- the arbiter ------------------------------------------------------------------------------------------------------


def test_shares_that_name_their_memory_are_limited_to_it() -> None:
    """Also where the rules part the memory, and those beside them have what is left in the books."""
    records = {A: record(A, GpuShare(GPU, 1, 50), GpuShare(GPU, 1, 50)), B: record(B, GpuShare(GPU, 250), PLAIN)}
    wanted = [claim for one in records.values() for claim in claims(one)]
    assert [claim.recorded for claim in wanted] == [True, False]
    shares = served(wanted, {})
    assert parted(shares, {GPU: ALL}, {(A, GPU)})[GPU] == {A: Terms(1, 50), B: Terms(500, 40)}
    divided = memory_room.divided(records.values(), {GPU: ALL, "GPU-9": 7})
    assert divided == {GPU: ALL}
    assert memory_room.lowered(shares, records, divided)[GPU] == {A: Terms(1, 50), B: Terms(500, 20)}
    assert memory_room.lowered(shares, records, {}) == shares


def test_memory_drains_with_its_share() -> None:
    """A share that was given back goes on with what it had; a whole GPU has no limit."""
    records = {A: record(A, draining=BIG), B: record(B, BIG)}
    (claim,) = claims(records[A])
    assert (claim.milli, claim.limit) == (1, 40)
    assert memory_room.lowered({GPU: {A: Terms(1, 40)}}, records, {GPU: ALL}) == {GPU: {A: Terms(1, 40)}}
    whole = {A: record(A, GpuShare(GPU, 1000), GpuShare(GPU, 1000)), B: record(B, BIG)}
    assert memory_room.lowered({GPU: {A: Terms(1000)}}, whole, {GPU: ALL}) == {GPU: {A: Terms(1000)}}


def test_room_is_what_others_neither_have_in_the_books_nor_hold() -> None:
    """Two decisions that wait count for each other, so both never get the same room."""
    one, waits = record(A, PLAIN, PLAIN), record(B, BIG)
    assert memory_room.waiting((one, waits), {GPU: ALL}) == {GPU}
    assert room(one, waits, a=40) == {B: (FoundRoom(3, 4, BIG),)}
    assert room(one, waits, a=41) == {}
    late = record(C, GpuShare(GPU, 1, 10))
    less = record(A, GpuShare(GPU, 250), GpuShare(GPU, 250))
    assert room(less, waits, late, a=30).keys() == {B, C}
    assert room(less, waits, late, a=31) == {}
    assert memory_room.waiting((one,), {GPU: ALL}) == frozenset()


def test_only_pods_with_the_gate_are_known() -> None:
    """A dead pod may have opened what it was given and not recorded; it is given nothing."""
    waits = record(B, BIG)
    assert room(record(A, PLAIN, PLAIN), waits) == {}
    assert room(record(A, PLAIN, PLAIN), waits, a=0, ungated=A) == {}
    assert room(record(A, PLAIN, PLAIN), waits, a=0, ungated=B) == {}
    assert room(record(A, PLAIN), waits) != {}
    assert room(record(A, PLAIN), waits, dead=A) == {}
    assert room(record(A, PLAIN, PLAIN), waits, a=0, dead=A) != {}
    assert room(record(A, PLAIN, PLAIN), waits, a=0, dead=B) == {}


class World:
    """One GPU, three servers, and an arbiter whose files and limits may be older than the records."""

    def __init__(self) -> None:
        self.records = {pod: record(pod) for pod in PODS}
        self.used = dict.fromkeys(PODS, 0)
        self.limits: dict[str, int | None] = {}
        self.room: memory_room.Rooms = {}
        self.seen = dict(self.records)

    def _booked(self, pod: str) -> tuple[int, int]:
        one = self.records[pod]
        shares = [*(one.allocated.shares if one.allocated else ()), *(one.attached.shares if one.attached else ())]
        shares += [item.share for item in one.attached.draining] if one.attached else []
        memory = held_memory(one.allocated, one.attached)
        milli = max((share.milli for share in shares), default=0)
        return milli, memory[GPU].booked(ALL) if GPU in memory else part(ALL, milli)

    def decide(self, pod: str, milli: int, memory: int) -> None:
        """Decide where the books have room, and take the server's step, in one lock or not."""
        others = [self._booked(other) for other in PODS if other != pod]
        share = GpuShare(GPU, milli, memory if 0 < milli < 1000 else 0)
        if milli + sum(one for one, _ in others) > 1000:
            return
        if booked(ALL, milli, share.memory) + sum(size for _, size in others) > ALL:
            return
        one = self.records[pod]
        before = one.allocated or Allocated(0)
        after = before.with_shares((share,) if milli else (), one.attached)
        self.records[pod] = one._replace(allocated=after)

    def step(self, pod: str, _milli: int, _memory: int) -> None:
        """Attach what may be attached; what its program holds drains."""
        one = self.records[pod]
        if one.allocated is None:
            return
        others = [other for uid, other in self.records.items() if uid != pod]
        shares = memory_room.permitted(one, others, {GPU: ALL}, self.room.get(pod, ()))
        had = one.attached.shares or tuple(item.share for item in one.attached.draining) if one.attached else ()
        drains = tuple(DrainingShare(s.uuid, s.milli, memory=s.memory) for s in had if not shares and self.used[pod])
        self.records[pod] = one._replace(attached=Attached(0, shares, drains, revision=one.allocated.revision))

    def look(self, _pod: str, _milli: int, _memory: int) -> None:
        """Have the arbiter read the records, as a first look."""
        self.seen = dict(self.records)

    def serve(self, _pod: str, _milli: int, _memory: int) -> None:
        """Have it set limits by what it read, and look for room if nothing has changed by then."""
        divided = memory_room.divided(self.seen.values(), {GPU: ALL})
        self.room = {pod: some for pod, some in self.room.items() if divided}
        shares = served((claim for one in self.seen.values() for claim in claims(one)), {})
        now = memory_room.lowered(shares, self.seen, divided).get(GPU, {})
        self.limits = {pod: terms.limit for pod, terms in now.items()}
        if self.seen == self.records:
            uses = {
                gpu: MemoryUse(ALL, {pod: self.used[pod] for pod in now})
                for gpu in memory_room.waiting(self.seen.values(), divided)
            }
            limited = {pod: LimitedPod(one, dead=False) for pod, one in self.seen.items()}
            self.room = memory_room.find_room(self.seen, limited, uses)

    def use(self, pod: str, _milli: int, size: int) -> None:
        """Have the pod's program take so much in all, as far as its limit and the GPU allow; less is given back."""
        free = ALL - sum(self.used.values()) + self.used[pod]
        limit = self.limits.get(pod, 0)
        most = min(free, ALL if limit is None else limit)
        if size <= max(most, self.used[pod]):
            self.used[pod] = size

    def check(self) -> None:
        """Check that what was attached beyond its part is there for each pod."""
        for pod, one in self.records.items():
            for share in one.attached.shares if one.attached else ():
                if not share.exclusive and share.memory > part(ALL, share.milli):
                    others = sum(size for other, size in self.used.items() if other != pod)
                    assert share.memory <= ALL - others, (self.records, self.used)

    def ask(self, pod: str, milli: int, memory: int) -> None:
        """Decide and attach."""
        self.decide(pod, milli, memory)
        self.step(pod, milli, memory)

    def arbitrate(self, pod: str, milli: int, memory: int) -> None:
        """Have the arbiter read and write."""
        self.look(pod, milli, memory)
        self.serve(pod, milli, memory)


operations = st.tuples(
    st.sampled_from([World.ask, World.decide, World.step, World.look, World.serve, World.arbitrate, World.use]),
    st.sampled_from(PODS),
    st.sampled_from([0, 1, 250, 500]),
    st.sampled_from([0, 10, 40, 60]),
)


@pytest.mark.uncounted(after=25)
@example(60, [(World.ask, B, 1, 40), (World.arbitrate, B, 0, 0), (World.step, B, 0, 0)])
@given(st.sampled_from([40, 60]), st.lists(operations, max_size=20))
def test_memory_is_never_given_twice(used: int, steps: list[tuple[object, str, int, int]]) -> None:
    """In whichever order servers decide and attach, programs take memory and the arbiter reads and writes."""
    world = World()
    world.ask(A, 500, 0)
    world.arbitrate(A, 500, 0)
    world.use(A, 500, used)
    for act, pod, milli, memory in steps:
        act(world, pod, milli, memory)  # type: ignore[operator]
        world.check()
