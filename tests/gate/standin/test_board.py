"""Figures computed from the log of a board."""

from tests.gate.standin.board import Work, busy, outside


def work(start: int, end: int, owner: str = "one", cut: bool = False) -> Work:
    """Return a piece of work."""
    return Work(start, end, owner, pid=1, process=1, kernels=1, queued=start, overlapped=False, cut=cut)


def test_busy_time_is_of_one_owner_or_all() -> None:
    """Only the requested part of the time counts."""
    log = [work(0, 10), work(10, 15, "two"), work(20, 30)]
    assert busy(log) == 25
    assert busy(log, "one") == 20
    assert busy(log, "one", 5, 22) == 7
    assert busy(log, "three") == 0


def test_work_outside_leases_is_found() -> None:
    """Work must lie wholly in one lease; adjacent leases do not join; of cut work only the start counts."""
    leases = [(20, 30), (0, 10), (10, 20)]
    assert outside([work(0, 10), work(22, 30)], leases) == []
    late, across, none = work(25, 31), work(5, 15), work(40, 41)
    assert outside([late, across, none], leases) == [late, across, none]
    assert outside([work(25, 40, cut=True)], leases) == []
    assert len(outside([work(31, 40, cut=True)], leases)) == 1
