"""Bytes of one share over all its processes, by what they tell and by what the driver says."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_node.processes.rules.process_id import ProcessId
from jupyter_gpu_node.shares.rules.measured_memory import by_client
from jupyter_gpu_node.shares.rules.protocol import Memory, Need
from jupyter_gpu_node.shares.rules.turns.actions import Send
from jupyter_gpu_node.shares.rules.turns.arbiter import Arbiter
from jupyter_gpu_node.shares.rules.turns.lease_manager import LeaseManager
from jupyter_gpu_node.shares.rules.turns.memory import MeasuredMemory, Pool
from jupyter_gpu_node.shares.rules.turns.terms import Terms
from jupyter_gpu_node.shares.rules.turns.timing import Timing

GIB = 2**30


def test_processes_share_one_limit() -> None:
    """Memory that one process frees is free for another."""
    pool = Pool(10 * GIB)
    assert [pool.need("a", 0), pool.need("b", 0)] == [0, 0]
    assert pool.need("a", 6 * GIB) == 6 * GIB
    assert pool.need("b", 5 * GIB) == 0
    assert pool.need("b", 4 * GIB) == 4 * GIB
    assert pool.need("a", GIB) == GIB
    assert pool.need("b", 9 * GIB) == 9 * GIB
    assert (pool.used, pool.size("a"), pool.size("nobody")) == (10 * GIB, GIB, 0)


def test_process_that_leaves_frees_its_memory() -> None:
    """Leaving twice, and leaving without having come, change nothing."""
    pool = Pool(GIB)
    pool.need("a", GIB)
    for _ in range(2):
        pool.leave("a")
    assert pool.used == 0
    assert "a" not in pool


def test_first_report_of_a_process_is_believed() -> None:
    """Nothing can be taken from it; everything more is refused until there is room."""
    pool = Pool(GIB)
    assert pool.need("a", 3 * GIB) == 3 * GIB
    assert pool.need("a", 3 * GIB + 1) == 3 * GIB
    assert pool.need("a", 2 * GIB) == 2 * GIB
    assert pool.need("a", 3 * GIB) == 2 * GIB
    assert pool.need("b", 0) == 0
    assert pool.need("b", 1) == 0


def test_share_without_a_limit_has_all_memory() -> None:
    """Use is counted only to be shown."""
    pool = Pool()
    assert [pool.need("a", 0), pool.need("a", 2**60)] == [0, 2**60]
    assert pool.used == 2**60


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12)), max_size=60), st.integers(0, 10))
def test_growth_never_goes_above_the_limit(events: list[tuple[int, int]], limit: int) -> None:
    """The sum is always right; 11 and 12 stand for a process that leaves and for one that says nothing new."""
    pool = Pool(limit)
    for process in range(4):
        pool.need(process, 0)
    for process, size in events:
        before = pool.used
        if size == 11:
            pool.leave(process)
            pool.need(process, 0)
        else:
            granted = pool.need(process, pool.size(process) if size == 12 else size)
            assert granted == pool.size(process)
        assert pool.used == sum(pool.size(one) for one in range(4))
        assert pool.used <= max(limit, before)


# --- by the driver's word ---------------------------------------------------------------------------------------------


def test_unreported_memory_is_taken_from_the_others() -> None:
    """They get it back when it is freed. Processes that never reported anything count, connected or not."""
    pool = Pool(10)
    pool.need("liar", 1)
    pool.need("other", 2)
    assert pool.measured({"liar": MeasuredMemory(6, 1), "other": MeasuredMemory(2, 2)}, 0)
    assert (pool.used, pool.need("other", 5), pool.need("other", 4), pool.untold) == (8, 2, 4, 0)
    assert not pool.measured({"liar": MeasuredMemory(6, 1), "other": MeasuredMemory(4, 4)}, 0)
    assert pool.measured(
        {"liar": MeasuredMemory(1, 1), "other": MeasuredMemory(4, 4), "silent": MeasuredMemory(2, 0)}, 2
    )
    assert (pool.used, pool.untold) == (9, 0)
    assert pool.measured({"silent": MeasuredMemory(2, 0)}, 4)
    assert (pool.used, pool.untold) == (11, 1)
    assert pool.measured({}, 0)
    assert (pool.used, pool.untold) == (5, 0)


def test_process_can_reuse_memory_that_it_keeps() -> None:
    """It counts while it is kept, once, as in memory pools."""
    pool = Pool(10)
    pool.need("pooled", 0)
    assert pool.need("pooled", 8) == 8
    pool.need("other", 0)
    assert pool.need("pooled", 2) == 2
    pool.measured({"pooled": MeasuredMemory(8, 2)}, 0)
    assert (pool.used, pool.need("other", 3), pool.need("pooled", 8), pool.used) == (8, 0, 8, 8)
    pool.limit = 4
    assert pool.need("pooled", 2) == 2
    pool.measured({"pooled": MeasuredMemory(8, 2)}, 0)
    assert (pool.used, pool.untold) == (8, 0)  # the limit came down, that is all
    assert pool.need("pooled", 3) == 2


def test_memory_freed_since_the_measurement_is_free() -> None:
    """It is free before the answer too, but not twice in a row: reports that alternate would hide memory else."""
    pool = Pool(10)
    pool.need("a", 8)
    pool.measured({"a": MeasuredMemory(8, 8)}, 0)
    assert (pool.need("a", 3), pool.used) == (3, 3)
    pool.measured({"a": MeasuredMemory(8, 8)}, 0)
    assert pool.used == 3
    pool.measured({"a": MeasuredMemory(8, 8)}, 0)
    assert pool.used == 8
    pool.measured({"a": MeasuredMemory(8, 8)}, 0)
    assert pool.used == 3


def test_a_limit_that_is_broken_around_the_gate_cannot_be_made_good_by_telling() -> None:
    """Memory held above the limit is not granted afterwards. Without a limit there is nothing to break."""
    pool = Pool(4)
    pool.need("liar", 0)
    pool.measured({"liar": MeasuredMemory(9, 0)}, 0)
    assert (pool.untold, pool.need("liar", 9), pool.untold) == (5, 0, 5)
    pool.limit = None
    assert (pool.used, pool.untold) == (9, 0)


def test_a_process_counts_once_however_often_it_is_connected() -> None:
    """It counts without its contexts; a client that connected while the driver was asked is not measured yet."""
    one, two, outside = ProcessId(1, 1), ProcessId(2, 2), ProcessId(3, 3)
    held = {one: 100, two: 50, outside: 30, ProcessId(4, 4): 5}
    found = by_client({"a": one, "b": one, "new": two}, held, 10, {"a": 20, "b": 40})
    assert found == ({"a": MeasuredMemory(50, 20)}, 20)
    assert by_client({"a": one, "new": one}, {one: 100}, 10, {"a": 20}) == ({}, 0)


CONTEXT = 4
NAMES = "abc"
SIZES = st.integers(0, 12)
EVENTS = st.lists(
    st.tuples(st.sampled_from(("need", "keep", "scan", "leave")), st.sampled_from(NAMES), SIZES), max_size=60
)


@given(EVENTS, st.integers(0, 12), st.lists(st.integers(0, CONTEXT), min_size=3, max_size=3))
def test_the_honest_are_never_offenders(events: list[tuple[str, str, int]], limit: int, contexts: list[int]) -> None:
    """They are not, whatever they allocate, free, keep in pools, and whatever their contexts take, up to the constant.

    Nor do they count for more than they hold, and telling and scanning in any order never makes a charge negative.
    """
    pool = Pool(limit)
    extra = dict(zip(NAMES, contexts, strict=True))
    told, kept, clients = Counter[str](), Counter[str](), {name: ProcessId(i, i) for i, name in enumerate(NAMES, 1)}
    for name in NAMES:
        pool.need(name, 0)
    for event, name, size in events:
        if event == "need":
            told[name] = pool.need(name, size)
            kept[name] = max(kept[name], told[name])
        elif event == "keep":  # gives back what it freed, but for some
            kept[name] = min(kept[name], max(told[name], size))
        elif event == "leave":
            pool.leave(name)
            told[name] = kept[name] = pool.need(name, 0)
        else:
            measured = {clients[one]: kept[one] + extra[one] for one in NAMES}
            pool.measured(*by_client(clients, measured, CONTEXT, told))
            assert pool.used <= sum(kept.values())
        assert pool.untold == 0
        assert sum(told.values()) <= pool.used <= limit


@given(EVENTS, st.integers(0, 12), st.integers(1, 20))
def test_hidden_memory_is_charged_after_two_scans(events: list[tuple[str, str, int]], limit: int, hidden: int) -> None:
    """It is charged whatever its processes tell meanwhile, and also by an arbiter that begins anew."""
    pool, told = Pool(limit), Counter[str]()
    for name in NAMES:
        pool.need(name, 0)
    before = dict(told)
    for event, name, size in [*events, ("scan", "a", 0), ("restart", "a", 0), ("scan", "a", 0), ("scan", "a", 0)]:
        if event == "restart":
            pool = Pool(limit)
            for one in NAMES:
                pool.need(one, told[one])
        elif event == "scan":
            for asked in (before, dict(told)):
                pool.measured(
                    {one: MeasuredMemory(told[one] + hidden * (one == "a"), asked.get(one, 0)) for one in NAMES}, 0
                )
            assert pool.used == sum(told.values()) + hidden
            before = dict(told)
        elif event == "need":
            told[name] = pool.need(name, size) if name != "a" else told[name]
    assert pool.untold == max(0, min(hidden, sum(told.values()) + hidden - limit))


def test_memory_that_the_driver_finds_is_told_to_the_share() -> None:
    """Processes outside the gate count for all of its clients, and what is known already is not told again."""
    manager = LeaseManager(Arbiter(Timing(), 0), 0)
    manager.set({"a": Terms(500, 100)}, 0)
    client, _ = manager.join("a", 0)
    manager.receive(client, Need(70), 0)
    assert manager.measured("a", {client: MeasuredMemory(70, 70)}, 20) == [Send(client, Memory(70, 100, 90))]
    assert manager.measured("a", {client: MeasuredMemory(70, 70)}, 20) == []
