"""The simplest server that gives a GPU to one program after another: the baseline of the arbiter's figures."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.arbiter import GPU
from jupyter_gpu_node.shares.rules.protocol import Ask, encode

SECONDS = 30.0
GRANT_BYTES = 32


@pytest.fixture
def places(tmp_path: Path) -> Iterator[list[Path]]:
    """Return the sockets of its two shares."""
    command = [sys.executable, "-m", "benchmarks.arbiter", "fifo", str(tmp_path), "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()
        yield [tmp_path / f"pod-{number}" / "shares" / f"{GPU}.sock" for number in range(2)]
        server.kill()


def asking(place: Path) -> socket.socket:
    """Connect a program that wants the GPU."""
    line = socket.socket(socket.AF_UNIX)
    line.settimeout(SECONDS)
    line.connect(str(place))
    line.sendall(encode(Ask(0)))
    return line


def test_client_that_ends_with_the_gpu_makes_room(places: list[Path]) -> None:
    """A client that ends while it waits is not given the GPU."""
    first, second = places
    holder = asking(first)
    assert holder.recv(GRANT_BYTES)
    waiting, next_one = asking(second), asking(second)
    waiting.close()
    next_one.settimeout(0.2)
    with pytest.raises(TimeoutError):
        next_one.recv(GRANT_BYTES)
    next_one.settimeout(SECONDS)
    holder.close()
    assert next_one.recv(GRANT_BYTES)
    next_one.close()
