"""Small host copies and words never wait for a turn, as other work may wait for them: their share pays later."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.shares.serve import Serving
from tests.shares.world import until

from .place import GPU, Place, Program
from .standin.board import busy

RATE = {"trickle:1000:4096": 2048, "words:1000": 2}
"""By what it does, bytes in a microsecond: each takes the two microseconds that the gate reckons for it."""
LOG = {"JUPYTER_GPU_STANDIN_LOG": str(1 << 21)}
"""Room for each of them."""
LONG = "kernels:1000000:50000"
"""Kernels that last: on a busy machine a program of short ones has moments without demand."""
MS = 1000


@pytest.fixture
def server(short: Path) -> Iterator[Serving]:
    """Serve a hundredth of the GPU, and the rest of it."""
    with Serving(short, grace=100_000) as serving:
        serving.set({GPU: {"one": 10, "two": 990}})
        yield serving


def _run(place: Place, server: Serving, owner: str, rate: int, *arguments: str) -> Program:
    env = LOG | {"JUPYTER_GPU_STANDIN_COPY": str(rate)}
    return place.run("dlsym", *arguments, owner=owner, sockets=server.socket(GPU, owner).parent, **env)


def _account(server: Serving) -> dict[str, int]:
    account: dict[str, int] = server.usage(GPU, "one")["account"]
    return account


def _paid(server: Serving) -> int:
    account = _account(server)
    return sum(account[name] for name in ("guaranteed", "borrowed", "idle", "overrun"))


@pytest.mark.parametrize("work", RATE)
def test_program_of_small_copies_pays_for_them(place: Place, server: Serving, work: str) -> None:
    """Beside another program, without a turn, it is charged what it took and owes what exceeds its share."""
    with _run(place, server, "two", RATE[work], LONG) as two, contextlib.ExitStack() as other:
        assert two.line() == "ready"
        until(lambda: place.launches() > 0)  # before that it has no demand, and copies of the other are free
        one = other.enter_context(_run(place, server, "one", RATE[work], work, "sync", "say:copied", "wait-line"))
        assert one.line() == "ready"
        count = int(one.line())
        assert one.line() == "copied"
        took = busy(place.log(), "one")
        assert took == 2 * count > 50 * MS
        assert abs(_paid(server) - took) < 0.05 * took
        account = _account(server)
        assert account["idle"] < 0.05 * took
        assert account["overrun"] > took / 2
        assert account["slice"] < -took / 3


def test_lone_program_of_small_copies_pays_nothing(place: Place, server: Serving) -> None:
    """As with all work then, it is counted, but nothing is owed or taken from its bank."""
    with _run(place, server, "one", 2048, "trickle:500:4096", "sync", "say:copied", "wait-line") as one:
        assert one.line() == "ready"
        count = int(one.line())
        assert one.line() == "copied"
        account = _account(server)
        assert abs(_paid(server) - 2 * count) < max(6 * MS, 0.05 * 2 * count)
        assert account["overrun"] == account["borrowed"] == 0
        assert account["slice"] >= 0
