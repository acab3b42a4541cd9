"""Programs that a user or a debugger stops while they have the GPU: that is no violation, and others continue."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jupyter_gpu_node.shares.rules.protocol import Ask, Done, Revoke
from tests.shares.enforcing import EnforcingServer, process, state, until
from tests.shares.world import until as wait_until

from .building import Built, build_driver, build_gate
from .place import GPU, Place, Program

ALWAYS = "kernels:1000000:1000"
STOPS = 7
DEBUGGER = """
import ctypes, os, sys
c, pid = ctypes.CDLL(None, use_errno=True), int(sys.argv[1])
for thread in os.listdir(f"/proc/{pid}/task"):
    assert c.ptrace(16, int(thread), None, None) == 0
    os.waitpid(int(thread), 0x40000000)
print("has it", flush=True)
sys.stdin.readline()
"""
"""Attaches to all threads (PTRACE_ATTACH) until it ends."""


@contextmanager
def _stopped(pid: int, how: str) -> Iterator[None]:
    if how == "Ctrl-Z":
        os.kill(pid, signal.SIGSTOP)
        yield
        os.kill(pid, signal.SIGCONT)
        return
    debugs = [sys.executable, "-c", DEBUGGER, str(pid)]
    with subprocess.Popen(debugs, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as debugger:
        assert debugger.stdout
        assert debugger.stdout.readline() == "has it\n"
        yield


def _run(place: Place, world: EnforcingServer, pod: str, *arguments: str) -> Program:
    return place.run("dlsym", *arguments, owner=pod, sockets=world.socket(GPU, pod).parent)


def _had(place: Place, pod: str) -> int:
    return sum(work.owner == pod for work in place.log())


async def _goes_on(place: Place, pod: str, launches: int = 20) -> None:
    before = _had(place, pod)
    await until(lambda: _had(place, pod) > before + launches)


@pytest.mark.parametrize("how", ["Ctrl-Z", "a debugger"])
def test_program_stopped_by_its_user_is_no_violation(place: Place, short: Path, how: str) -> None:
    """Stopped again and again during its turns it is not resumed, and its neighbour does not wait for long."""

    async def check() -> None:
        async with EnforcingServer(short) as world:
            await world.set({GPU: {"a": 500, "b": 500}})
            with _run(place, world, "a", ALWAYS), _run(place, world, "b", ALWAYS) as one:
                await until(lambda: place.board.exists())
                for _ in range(STOPS):
                    await _goes_on(place, "b")
                    while True:
                        await until(lambda: world.server.holder(GPU) == "b")
                        with _stopped(one.process.pid, how):
                            if world.server.holder(GPU) != "b":
                                continue
                            await _goes_on(place, "a", 300)
                            assert state(one.process.pid) in "Tt"
                            break
            assert not world.told
            assert not world.taken
        # A thread stopped between the gate's check and the driver launches that one kernel when it resumes.
        assert place.sums().overlaps <= STOPS

    asyncio.run(check())


@pytest.mark.parametrize("threads", [1, 8])
def test_each_thread_stopped_before_the_driver_launches_once_more(built: Built, short: Path, threads: int) -> None:
    """Between the gate's check and the driver: when it resumes, its lease is over, and nothing else passes."""
    stops = short / "stops"
    build_driver(stops / "driver", f"-DSTANDIN_STOPS={threads}")
    gate = build_gate(stops / "gate", stops / "driver" / "libcuda.so.1")
    place = Place(built, short)
    work = f"threads:{threads}:100"
    with place.stub() as stub, place.run("dlsym", work, LD_LIBRARY_PATH=str(gate)) as program:
        connection = stub.accept()
        connection.expect(Ask)
        lease = connection.grant(500_000)
        wait_until(lambda: state(program.process.pid) == "T")
        time.sleep(0.6)  # the time of its lease is over
        connection.say(Revoke(lease))
        assert place.launches() == 0
        os.kill(program.process.pid, signal.SIGCONT)
        assert connection.expect(Done).number == lease
        time.sleep(0.2)
        assert place.launches() == threads


def test_lease_read_after_the_end_of_its_server_lets_nothing_pass(place: Place) -> None:
    """A program that was stopped meanwhile waits for the next server, which may have given the GPU to another share."""
    stub = place.stub()
    with place.run("dlsym", "threads:64:10") as program:
        for _ in range(20):
            connection = stub.accept()
            connection.expect(Ask)
            os.kill(program.process.pid, signal.SIGSTOP)
            wait_until(lambda: program.states == {"T"})  # another could still read the grant
            connection.grant(60_000_000)
            stub.close()
            stub = place.stub()
            os.kill(program.process.pid, signal.SIGCONT)
        with stub:
            connection = stub.accept()
            connection.expect(Ask)
            assert place.launches() == 0
            connection.grant(60_000_000)
            connection.serve()
            assert program.lines()[-1] == "done"
    assert place.launches() == 64 * 20


def test_stopped_program_whose_work_runs_on_is_late(place: Place, short: Path) -> None:
    """With an endless kernel the GPU is not free although the program is stopped, and its user can resume it."""

    async def check() -> None:
        async with EnforcingServer(short, penalties={"longest": 1_000_000, "strikes": 2}) as world:
            await world.set({GPU: {"a": 500, "b": 500}})
            with _run(place, world, "b", "kernels:1:60000000", "sync") as one:
                await until(lambda: place.launches() == 1)
                os.kill(one.process.pid, signal.SIGSTOP)
                with _run(place, world, "a", ALWAYS):
                    await until(lambda: world.taken)
                    assert state(one.process.pid) == "T"
                    assert not world.told

    asyncio.run(check())


def test_program_that_its_user_stopped_too_is_not_resumed(place: Place, short: Path) -> None:
    """It stays stopped when its turn comes; when its user resumes it, it runs."""

    async def check() -> None:
        async with EnforcingServer(short) as world:
            await world.set({GPU: {"a": 500, "b": 500}})
            with _run(place, world, "b", ALWAYS) as one:
                await until(lambda: place.board.exists() and place.launches() > 20)
                processes = frozenset({process(one.process.pid)})
                world.enforcer.resume_guard.stop(processes)
                await until(lambda: state(one.process.pid) == "T")
                os.kill(one.process.pid, signal.SIGSTOP)
                world.enforcer.resume_guard.resume(processes)
                assert state(one.process.pid) == "T"
                os.kill(one.process.pid, signal.SIGCONT)
                await _goes_on(place, "b")

    asyncio.run(check())
