"""The pace of connections: enough for all programs that start, without costing others their time."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from jupyter_gpu_node.shares.rules.pace import RATE
from jupyter_gpu_node.shares.rules.protocol import Done
from tests.shares.client import Ended, now
from tests.shares.serve import Serving
from tests.shares.world import GPU, connect, programs, serves, until, written

FLOOD = """
import socket, sys
while True:
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(sys.argv[1])
"""


@contextlib.contextmanager
def flooding(server: Serving, pod: str, gpu: str = GPU) -> Iterator[None]:
    """A program that connects in a loop, after it has used up its reserve."""
    with subprocess.Popen([sys.executable, "-c", FLOOD, str(server.socket(gpu, pod))]) as process:
        try:
            until(lambda: "connect too often" in server.log)
            yield
        finally:
            process.kill()


def refusals(server: Serving) -> int:
    """Make sixty connections of pod ``c`` on another GPU, at once."""
    found = 0
    with contextlib.ExitStack() as stack:
        for one in [stack.enter_context(connect(server, "c", "GPU-2")) for _ in range(60)]:
            try:
                one.need(0)
            except Ended:
                found += 1
    return found


def spent(server: Serving) -> float:
    """Seconds of CPU of the server."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cost(server: Serving) -> float:
    """Return which part of a core the server needs, measured for three seconds."""
    before, since = spent(server), now()
    until(lambda: now() - since > 3_000_000)
    return (spent(server) - before) / (now() - since) * 1_000_000


def test_a_loop_of_connects_costs_the_others_nothing(tmp_path: Path) -> None:
    """It costs the server two hundredths of a core; a loaded machine takes longer, so a calm time counts."""
    with Serving(tmp_path) as server:
        server.set({GPU: {"a": 400, "b": 400, "c": 200}})
        with flooding(server, "c"):
            until(lambda: cost(server) <= 0.04, "it costs the server more")
            with programs(server, tmp_path, "a", "b"):
                until(lambda: all(len(times) > 60 for times in written(tmp_path).values()))
            serves(server, "a")
        until(lambda: not any(one["pod"] == "c" for one in server.members()))
        serves(server, "c")


def test_as_many_as_one_share_can_have_start_at_once(server: Serving) -> None:
    """A program of many processes is no flood."""
    with contextlib.ExitStack() as stack:
        many = [stack.enter_context(connect(server, "a")) for _ in range(256)]
        for one in many:
            one.need(1)
        assert "too often" not in server.log


def test_the_pace_is_that_of_a_pod(tmp_path: Path) -> None:
    """It counts for all its GPUs together, also if shares are given back and had again; others have their own."""
    shares = {GPU: {"a": 500, "c": 500}, "GPU-2": {"c": 500}}
    with Serving(tmp_path) as server:
        server.set(shares)
        with flooding(server, "c"):
            assert refusals(server) > 20, "it has what the other GPU's share left of it"
            server.set({GPU: {"a": 500}})
            server.set(shares)
            assert refusals(server) > 20
            for _ in range(RATE):
                with connect(server, "a") as good:
                    good.send(Done(None, 0, good.grant().number))


def test_another_user_uses_up_nothing(server: Serving) -> None:
    """A user that connects to the sockets of others in a loop is refused, and takes nothing of their pace."""
    if os.geteuid():
        return  # only root can be another
    script = FLOOD.replace("while", "import os\nos.setgroups([])\nos.setgid(65534)\nos.setuid(65534)\nwhile", 1)
    for folder in server.socket(GPU, "a").parents[:-2]:
        if not folder.stat().st_mode & 0o5:
            folder.chmod(folder.stat().st_mode | 0o5)
    with subprocess.Popen([sys.executable, "-c", script, str(server.socket(GPU, "a"))]) as process:
        try:
            until(lambda: "connect too often" in server.log)
            for _ in range(3):
                serves(server, "a")
        finally:
            process.kill()


def test_the_time_of_a_client_that_waits_is_its_own(server: Serving) -> None:
    """A connection that waits in the socket is taken when the pause is over: no connection is forgotten."""
    with flooding(server, "a"):
        pass
    end = now() + 20_000_000
    while now() < end:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as one:
            one.connect(str(server.socket(GPU, "a")))
            one.settimeout(0.2)
            try:
                if one.recv(1) == b"":
                    continue
            except TimeoutError:
                return  # it is admitted: a client that asks nothing is sent nothing
    raise AssertionError("no client is admitted")
