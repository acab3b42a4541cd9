"""Processes of a pod that are one program: by lists of their parents, and by those of real processes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from jupyter_gpu_node.processes import proc
from jupyter_gpu_node.shares.rules.turns.programs import is_on_several, program
from tests.shares.world import until

INIT, SERVER, OTHER, KERNEL, AGENT, RANK = ((number, number * 10) for number in range(1, 7))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ((SERVER, INIT), SERVER),
        ((KERNEL, SERVER, INIT), KERNEL),
        ((RANK, AGENT, KERNEL, SERVER, INIT), KERNEL),
        ((KERNEL, SERVER, AGENT, OTHER, INIT), KERNEL),
        ((RANK, INIT), None),
        ((RANK,), None),
        ((RANK, AGENT, (SERVER[0], SERVER[1] + 1), INIT), None),
    ],
    ids=[
        "a server",
        "a kernel",
        "what it started",
        "servers in servers",
        "none",
        "alone",
        "an earlier one of that pid",
    ],
)
def test_child_of_the_nearest_server_stands_for_a_program(
    line: tuple[tuple[int, int], ...], expected: tuple[int, int] | None
) -> None:
    """All below that child are one program."""
    assert program(line, {SERVER, OTHER}) == expected


def test_processes_below_no_server_are_one_program() -> None:
    """They belong to their pod: nothing tells which of them belong together."""
    assert is_on_several([(None, "0"), (None, "1")])
    assert is_on_several([(KERNEL, "0"), (AGENT, "01")])
    assert is_on_several([(KERNEL, "0"), (AGENT, "0"), (KERNEL, "1")])
    assert not is_on_several([(KERNEL, "0"), (AGENT, "1"), (None, "2"), (None, "2")])
    assert not is_on_several([])


def test_the_parents_of_a_process() -> None:
    """Ours are those of a child, after itself; the list has an end."""
    ours = proc.ancestry(os.getpid(), proc.process_start_time(os.getpid()) or 0)
    assert ours[1][0] == os.getppid()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        start = proc.process_start_time(child.pid) or 0
        assert proc.ancestry(child.pid, start) == ((child.pid, start), *ours)
        assert proc.ancestry(child.pid, start, most=2) == ((child.pid, start), ours[0])
        assert proc.ancestry(child.pid, start - 1) == ((child.pid, start - 1),)
        child.kill()
        child.wait()
        assert proc.ancestry(child.pid, start) == ((child.pid, start),)


def test_a_parent_that_has_ended() -> None:
    """The process that took its place is the parent then."""
    code = "import os, time\nif os.fork() == 0:\n    print(os.getpid(), flush=True)\n    time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            parent.wait()
            start = proc.process_start_time(child) or 0
            until(lambda: parent.pid not in {pid for pid, _ in proc.ancestry(child, start)})
        finally:
            os.kill(child, 9)
