"""Programs of several servers on one GPU, by the gate that every kernel has: which runs, for how long, with how much
memory."""

import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu_node.devices import cgroup
from jupyter_gpu_node.devices.enforcement import MARK
from tests.backends.local.stage import Remote

from .machine import MIB, Machine

HOG = ("kernels:200000:1000", "sync")
"""A program that always has work."""
MODES = ["soft", pytest.param("required", id="enforced", marks=pytest.mark.root)]


def now() -> int:
    """By the clock of the boards."""
    return time.monotonic_ns() // 1000


def share(machine: Machine, milli: int, **options: Any) -> Remote:
    """A server with a share, which is served."""
    server = machine.server(**options)
    server.ask("request", milli=milli)
    machine.served(server)
    return server


def comes_to(machine: Machine, least: float, most: float, one: Remote, other: Remote) -> None:
    """Wait for two seconds of work in which a part within these bounds was of ``one``.

    At first they use what they saved while their programs were started.
    """

    def is_so() -> bool:
        begin = now()
        machine.more(2000)
        return least <= machine.part(one, (one, other), begin) <= most

    machine.until(is_so, f"{least:.0%} to {most:.0%} of the work")


@pytest.mark.parametrize("mode", MODES)
def test_two_shares_get_their_parts_and_never_overlap(machine: Machine, mode: str) -> None:
    """Programs that always have work get a quarter and three quarters of the GPU."""
    quarter, rest = share(machine, 250, enforcement=mode), share(machine, 750, enforcement=mode)
    machine.run(quarter, *HOG)
    machine.run(rest, *HOG)
    comes_to(machine, 0.22, 0.28, quarter, rest)
    assert machine.sums().overlaps == 0
    pid = machine.arbiter()
    assert cgroup.PREFIX not in Path(f"/proc/{pid}/cgroup").read_text()
    names = {entry.partition(b"=")[0] for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")}
    assert not names & {b"LD_PRELOAD", b"JUPYTER_GPU_GATE", MARK.encode()}


def test_ungranted_time_is_used_by_both_shares(machine: Machine) -> None:
    """With a quarter and a half, each gets at least what it was given, and the GPU does not rest."""
    quarter, half = share(machine, 250), share(machine, 500)
    machine.run(quarter, *HOG)
    machine.run(half, *HOG)
    comes_to(machine, 0.22, 0.53, quarter, half)
    assert machine.sums().overlaps == 0
    shares = quarter.ask("sample")["shares"][machine.uuids[0]]
    assert shares["allocated"] == 250
    assert shares["sharing"] == 1
    assert shares["guaranteed"] > 0
    machine.until(lambda: machine.conditions(quarter).keys() == {"Simulated"}, "nothing else to be told")


def test_a_share_is_resized_while_a_program_runs(machine: Machine) -> None:
    """Half to a fifth, then the neighbour grows to four fifths: both programs go on, and get what they have now."""
    first, second = share(machine, 500), share(machine, 500)
    programs = [machine.run(server, *HOG) for server in (first, second)]
    machine.more(200)
    first.ask("request", milli=200)
    second.ask("request", milli=800)
    comes_to(machine, 0.17, 0.23, first, second)
    assert not any(program.ended() for program in programs)
    assert machine.sums().overlaps == 0


def test_a_share_becomes_the_whole_gpu_and_a_share_again(machine: Machine) -> None:
    """While its program runs, which loses no work; there are no samples of a share then."""
    server = share(machine, 250)
    program = machine.run(server, "kernels:3000:500", "sync")
    machine.more(100)
    for milli in (1000, 400):
        assert server.ask("request", milli=milli)["amounts"]["attached"] == milli
        machine.more(500)
        machine.until(partial(shows, server, milli < 1000), f"the panel with {milli}")
    assert program.lines()[-1] == "done"
    assert machine.sums().launches == 3000


def shows(server: Remote, share: bool) -> bool:
    """Whether there is a share in its samples, or none."""
    return bool(server.ask("sample").get("shares")) == share


def test_whole_gpu_is_served_too(machine: Machine) -> None:
    """A gate without a server would wait: so there is one for whole GPUs as well."""
    server = machine.server()
    server.ask("request", milli=1000)
    assert machine.run(server, "kernels:100:100", "sync").lines()[-1] == "done"
    machine.until(lambda: machine.conditions(server).keys() == {"Simulated"}, "nothing else to be told")


def test_a_program_that_starts_first_waits_for_the_gpu(machine: Machine) -> None:
    """It goes on by itself as soon as its server has one."""
    server = machine.server()
    program = machine.run(server, "kernels:100:100", "sync")
    machine.until(lambda: program.said == ["ready"], "the program to begin")
    assert machine.sums().launches == 0
    assert machine.arbiters() == []
    server.ask("request", milli=500)
    assert program.lines()[-1] == "done"


def test_the_memory_of_a_share_is_limited(machine: Machine) -> None:
    """Programs see the limit as their memory, and get no more; a wish with another limit is obeyed while they run."""
    server = machine.server()
    server.ask("request", milli=500, memory=256 * MIB)
    machine.served(server)
    first = machine.run(server, "info", f"alloc:{200 * MIB}", f"alloc:{100 * MIB}", "info", "sleep:100000000")
    machine.until(lambda: len(first.said) >= 5, "the program's words")
    assert first.said[1:5] == [f"{256 * MIB} {256 * MIB}", "0", "2", f"{56 * MIB} {256 * MIB}"]
    server.ask("request", milli=500, memory=512 * MIB)
    machine.until(
        lambda: machine.run(server, "info").lines()[1] == f"{312 * MIB} {512 * MIB}", "the new limit to be seen"
    )


def test_a_whole_gpu_has_all_its_memory(machine: Machine) -> None:
    """The memory in the wish says which GPU is wanted."""
    server = machine.server()
    server.ask("request", milli=1000, memory=256 * MIB)
    machine.served(server)
    assert machine.run(server, "info").lines()[1] == f"{1024 * MIB} {1024 * MIB}"
