"""For how long a worker's kernel has had no client, whoever else connects to it."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from jupyter_gpu.remote.rules.client_times import PROOF, ClientTimes
from jupyter_gpu.worker import pinned


def test_client_counts_while_it_is_there() -> None:
    """From its connection on, also before that is known to be a client's, to its end."""
    times = ClientTimes(100)
    assert times.alone(160) == 60
    times.made(7, 160)
    assert times.alone(160 + PROOF) == 60
    times.proved(160.1)
    times.made(8, 170)  # a stranger
    times.ended(8, 175)
    assert times.alone(500) == 0
    times.ended(7, 501)
    assert times.alone(511) == 10


def test_short_visit_of_a_client_counts() -> None:
    """Its key was proved while it was there."""
    times = ClientTimes(100)
    times.made(7, 690)
    times.proved(690.2)
    times.ended(7, 692)
    assert times.alone(700) == 8


def test_time_for_a_proof() -> None:
    """It is longer than ZeroMQ waits for one."""
    assert PROOF * 1000 > pinned.HANDSHAKE


@example([(0, 5), (4, 5), (4, 5)])  # the first comes as the kernel starts
@given(st.lists(st.tuples(st.floats(0, 4), st.floats(0, pinned.HANDSHAKE / 1000)), max_size=200))
def test_strangers_are_no_clients(visits: list[tuple[float, float]]) -> None:
    """However many connect, and whenever: the kernel counts as alone but for the time of the last proofs."""
    times, now, most = ClientTimes(0), 0.0, pinned.HANDSHAKE / 1000
    there: list[tuple[float, int]] = []
    for number, (pause, stay) in enumerate(visits):
        now += pause
        for end, connection in sorted(one for one in there if one[0] <= now):
            times.ended(connection, end)
        there = [one for one in there if one[0] > now]
        times.made(number, now)
        there.append((now + stay, number))
        assert now - most - 1e-6 <= times.alone(now) <= now
