"""Memory as an amount of its own on one machine: what does not fit yet waits, and is never given twice."""

import contextlib
import signal

import pytest

from jupyter_gpu.backends.local.sharing import room_files
from jupyter_gpu.common import faults
from tests.backends.local.stage import Remote

from .machine import Machine, Program

pytestmark = pytest.mark.root

GIB = 2**30
BIG = {"milli": 1, "memory": 12 * GIB}


def server(machine: Machine, enforcement: str = "required", **variables: str) -> Remote:
    """A server whose programs find the stand-in driver."""
    actor = machine.actor()
    actor.ask("put", LD_LIBRARY_PATH=str(machine.built), **variables)
    return machine.server(actor, enforcement=enforcement)


def program(machine: Machine, of: Remote, *commands: str) -> Program:
    """A program of that server, on a GPU with as much memory as the simulated one says."""
    return machine.run(of, *commands, JUPYTER_GPU_STANDIN_GPUS=f"{machine.uuids[0]}:{24 * 1024}")


def has(of: Remote) -> list[dict[str, int]]:
    """Return what is attached, without the GPU's name."""
    shares = (of.ask("view").get("attached") or {}).get("shares", [])
    return [{key: value for key, value in share.items() if key != "uuid"} for share in shares]


def full(machine: Machine, **variables: str) -> tuple[Remote, Program]:
    """A server with half of the GPU, whose program took 15 of the 24 GiB while it could. It starts the arbiter."""
    plain = server(machine, **variables)
    plain.ask("request", milli=500)
    machine.served(plain)
    taker = program(machine, plain, f"alloc:{15 * GIB}", "sleep:100000000")
    machine.until(lambda: len(taker.said) >= 2, "the program's memory")
    assert taker.said[1] == "0"
    return plain, taker


def test_memory_alone_is_a_share_where_it_is_enforced(machine: Machine) -> None:
    """It has the memory that it names and the least part of the time; without a guard it is refused with the reason."""
    one = server(machine)
    assert one.ask("request", milli=1, memory=10 * GIB)["phase"] == "Ready"
    assert has(one) == [{"milli": 1, "memory": 10 * GIB}]
    machine.served(one)
    assert program(machine, one, "info").lines()[1] == f"{10 * GIB} {10 * GIB}"
    with pytest.raises(RuntimeError, match="Memory is not enforced here"):
        server(machine, enforcement="soft").ask("request", milli=1, memory=10 * GIB)


@pytest.mark.parametrize("point", [None, *room_files.POINTS])
def test_what_others_use_is_waited_for(machine: Machine, point: str | None) -> None:
    """The others get no more at once, and keep what they have; also if the arbiter is killed when there is room."""
    told = machine.state.parent / "point"
    plain, taker = full(machine, **{faults.VARIABLE: f"@{told}"})
    big = server(machine)
    view = big.ask("request", **BIG)
    assert (view["phase"], view["reason"], has(big)) == ("Attaching", "Draining", [])
    machine.until(lambda: "0" not in program(machine, plain, f"alloc:{GIB}").lines(), "the lower limit")
    pid = machine.arbiter()
    if point:
        told.write_text(point)
    taker.send(signal.SIGKILL)
    machine.until(lambda: has(big) == [BIG], "the memory")
    if point:
        machine.arbiter(but=pid)
    machine.served(big)
    limits = [program(machine, one, "info").lines()[1].split()[1] for one in (plain, big)]
    assert limits == [str(12 * GIB)] * 2


def test_a_share_that_grows_keeps_what_it_has_while_it_waits(machine: Machine) -> None:
    """Nothing that runs is closed; and what is given up meanwhile is free."""
    plain, taker = full(machine)
    small = server(machine)
    small.ask("request", milli=250, memory=3 * GIB)
    machine.until(lambda: has(small) == [{"milli": 250, "memory": 3 * GIB}], "its first share")
    runs = program(machine, small, f"alloc:{2 * GIB}", "sleep:100000000")
    machine.until(lambda: len(runs.said) >= 2, "its memory")
    small.ask("request", milli=250, memory=10 * GIB)
    assert has(small) == [{"milli": 250, "memory": 3 * GIB}]
    taker.send(signal.SIGKILL)
    machine.until(lambda: has(small) == [{"milli": 250, "memory": 10 * GIB}], "the memory")
    assert not runs.ended()
    assert plain.ask("view")["phase"] == "Ready"


def test_a_server_killed_with_its_memory_leaves_it_to_the_next(machine: Machine) -> None:
    """Killed between its rules and its record: what it opened is not known, so nothing of it may be left."""
    plain, taker = full(machine)
    big, late = server(machine), server(machine)
    big.ask("request", **BIG)
    big.ask("crash_at", point="rules:applied")
    kernel = machine.kernel(big)
    taker.send(signal.SIGKILL)
    with contextlib.suppress(EOFError, ConnectionError):
        machine.until(lambda: big.ask("view") is None, "its death")
    assert late.ask("request", **BIG)["amounts"]["attached"] == 0
    kernel.kill()
    machine.until(lambda: has(late) == [BIG], "the memory")
    assert plain.ask("view")["phase"] == "Ready"
