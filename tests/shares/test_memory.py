"""Bytes of one share over all its processes."""

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_node.shares.rules.turns.memory import Pool

GIB = 2**30


def test_processes_share_one_limit() -> None:
    """What one frees another may have."""
    pool = Pool(10 * GIB)
    assert [pool.need("a", 0), pool.need("b", 0)] == [0, 0]
    assert pool.need("a", 6 * GIB) == 6 * GIB
    assert pool.need("b", 5 * GIB) == 0
    assert pool.need("b", 4 * GIB) == 4 * GIB
    assert pool.need("a", GIB) == GIB
    assert pool.need("b", 9 * GIB) == 9 * GIB
    assert (pool.used, pool.size("a"), pool.size("nobody")) == (10 * GIB, GIB, 0)


def test_who_leaves_frees_all() -> None:
    """Also twice, and who was never there."""
    pool = Pool(GIB)
    pool.need("a", GIB)
    for _ in range(2):
        pool.leave("a")
    assert pool.used == 0
    assert "a" not in pool


def test_what_a_process_has_is_believed_when_it_comes() -> None:
    """Nothing can be taken from it; everything more is refused until there is room."""
    pool = Pool(GIB)
    assert pool.need("a", 3 * GIB) == 3 * GIB
    assert pool.need("a", 3 * GIB + 1) == 3 * GIB
    assert pool.need("a", 2 * GIB) == 2 * GIB
    assert pool.need("a", 3 * GIB) == 2 * GIB
    assert pool.need("b", 0) == 0
    assert pool.need("b", 1) == 0


def test_a_share_without_a_limit_has_what_there_is() -> None:
    """Nobody counts but for showing."""
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
