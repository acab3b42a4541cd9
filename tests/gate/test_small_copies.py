"""Small copies from the host and words never wait for a turn, as others may wait for them: their share pays for them later."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.shares.serve import Serving

from .place import GPU, Place, Program
from .standin.board import busy

SLOW = {"JUPYTER_GPU_STANDIN_COPY": "2048", "JUPYTER_GPU_STANDIN_LOG": str(1 << 21)}
"""Bytes in a microsecond: what the gate reckons for a small copy. The log has room for each of them."""


@pytest.fixture
def server(short: Path) -> Iterator[Serving]:
    """A fifth of the GPU, and the rest of it."""
    with Serving(short, grace=100_000) as serving:
        serving.set({GPU: {"one": 200, "two": 800}})
        yield serving


def _run(place: Place, server: Serving, owner: str, *arguments: str) -> Program:
    return place.run("dlsym", *arguments, owner=owner, sockets=server.socket(GPU, owner).parent, **SLOW)


def _paid(server: Serving, owner: str) -> int:
    account = server.usage(GPU, owner)["account"]
    return sum(int(account[name]) for name in ("guaranteed", "borrowed", "idle", "overrun"))


def test_a_program_that_only_makes_small_copies_pays_for_them(place: Place, server: Serving) -> None:
    """Beside another program: what its share paid is what its copies took."""
    with (
        _run(place, server, "two", "kernels:1000000:1000") as two,
        _run(place, server, "one", "trickle:1000:4096", "sync", "say:copied", "wait-line", "kernels:1000:1000") as one,
    ):
        assert two.line() == one.line() == "ready"
        copies = int(one.line())
        assert one.line() == "copied"
        took = busy(place.log(), "one")
        print(copies, took, _paid(server, "one"), server.usage(GPU, "one"))
        assert took == 2 * copies > 200_000
        assert abs(_paid(server, "one") - took) < 0.03 * took
