"""Stopped processes run again though their enforcer was killed for ever: real processes, real signals."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpu_node.processes.rules.process_id import ProcessId
from jupyter_gpu_node.shares.enforcement.resume_guard import ResumeGuard
from tests.gate.standin.conftest import FIRST as GPU
from tests.shares.enforcing import (
    HOG,
    HOG_BUSY,
    SPIN,
    TWO,
    EnforcingServer,
    Running,
    children,
    killable,
    line,
    process,
    state,
    until,
)


@pytest.fixture
def resume_guard() -> Iterator[ResumeGuard]:
    """One that is closed at the end."""
    found = ResumeGuard()
    yield found
    found.close()


async def spinning(running: Running) -> ProcessId:
    """A program that runs."""
    one = running.start(SPIN)
    assert await line(one) == "has it\n"
    return process(one.pid)


async def stopped(resume_guard: ResumeGuard, *processes: ProcessId) -> None:
    """They are, as the kernel shows it."""
    resume_guard.stop(processes)
    await until(lambda: all(state(one.pid) == "T" for one in processes))


def descriptors(pid: int) -> list[str]:
    """Return the files that it has open; it may close some of them while we read."""
    found = []
    for entry in sorted(Path(f"/proc/{pid}/fd").iterdir()):
        with contextlib.suppress(FileNotFoundError):
            found.append(str(entry.readlink()))
    return found


def kinds(pid: int) -> list[str]:
    """Return the kinds of files, without the numbers of pipes."""
    return [each.partition(":")[0] for each in descriptors(pid)]


# --- the enforcer is killed -------------------------------------------------------------------------------------------


def test_stopped_process_runs_again_without_another_enforcer(short: Path, running: Running) -> None:
    """The whole process group of the enforcer is killed."""

    async def check() -> None:
        async with killable(short, {GPU: TWO}) as first:
            one = running.start(HOG_BUSY, short / "b" / "shares" / f"{GPU}.sock")
            assert await line(one) == "has it\n"
            assert not children(first.pid)
            running.start(HOG, short / "a" / "shares" / f"{GPU}.sock")
            await until(lambda: state(one.pid) == "T")
            (resume_guard,) = children(first.pid)
            os.killpg(first.pid, signal.SIGKILL)
            await until(lambda: state(one.pid) == "R")
            await until(lambda: not Path(f"/proc/{resume_guard}").exists())

    asyncio.run(check())


@pytest.mark.parametrize("deaf", [False, True])
def test_an_end_in_order_leaves_no_resume_guard(short: Path, running: Running, deaf: bool) -> None:
    """No guard is left, not even one that hears nothing; nor is there one before a process is stopped."""

    async def check() -> None:
        async with EnforcingServer(short) as world:
            await world.set({GPU: TWO})
            one = running.start(HOG, world.socket(GPU, "b"))
            assert await line(one) == "has it\n"
            assert world.enforcer.resume_guard.cleanup_process.pid is None
            running.start(HOG, world.socket(GPU, "a"))
            await until(lambda: state(one.pid) == "T")
            pid = world.enforcer.resume_guard.cleanup_process.pid
            assert pid is not None
            assert pid in children(os.getpid())
            if deaf:
                os.kill(pid, signal.SIGSTOP)
                await until(lambda: state(pid) == "T")
        assert not Path(f"/proc/{pid}").exists()
        await until(lambda: state(one.pid) != "T")

    asyncio.run(check())


# --- what it does -----------------------------------------------------------------------------------------------------


def test_it_holds_nothing_of_its_enforcer(running: Running, short: Path, resume_guard: ResumeGuard) -> None:
    """The guard keeps no lock open that the next enforcer waits for, and has a session of its own."""

    async def check() -> None:
        with (short / "lock").open("w") as lock:
            os.set_inheritable(lock.fileno(), True)
            await stopped(resume_guard, await spinning(running))
            pid = resume_guard.cleanup_process.pid
            assert pid is not None
            await until(lambda: "pipe:" in "".join(descriptors(pid)))  # until it is another program
            await until(lambda: str(short / "lock") not in descriptors(pid))
            # an interpreter that still starts has folders open
            await until(lambda: kinds(pid) == ["pipe", "/dev/null", "/dev/null"])
            assert os.getsid(pid) == pid

    asyncio.run(check())


def test_process_that_a_later_enforcer_stopped_stays_stopped(running: Running, resume_guard: ResumeGuard) -> None:
    """So does one that this one continued itself: only what it holds runs again when it is gone."""

    async def check() -> None:
        ours, earlier, theirs = [await spinning(running) for _ in range(3)]
        await stopped(resume_guard, ours, earlier)
        resume_guard.resume([earlier])
        for one in (earlier, theirs):
            os.kill(one.pid, signal.SIGSTOP)
        await until(lambda: state(earlier.pid) == state(theirs.pid) == "T")
        resume_guard.close()  # the pipe ends: no more is seen of a death
        await until(lambda: state(ours.pid) == "R")
        assert state(earlier.pid) == state(theirs.pid) == "T"

    asyncio.run(check())


def test_process_with_a_reused_pid_is_left_stopped(running: Running, resume_guard: ResumeGuard) -> None:
    """It costs the others nothing, as do those that have ended."""

    async def check() -> None:
        ours, other, gone = [await spinning(running) for _ in range(3)]
        os.kill(other.pid, signal.SIGSTOP)
        await stopped(resume_guard, ours, gone)
        os.kill(gone.pid, signal.SIGKILL)
        resume_guard.stop([ProcessId(other.pid, other.start + 1), ProcessId(2**40, 1)])
        resume_guard.close()
        await until(lambda: state(ours.pid) == "R")
        assert state(other.pid) == "T"

    asyncio.run(check())


@pytest.mark.parametrize("sign", ["+", "-"])
def test_half_a_message_is_none(running: Running, resume_guard: ResumeGuard, sign: str) -> None:
    """The sender died while it wrote: the half message has no effect."""

    async def check() -> None:
        ours, other = [await spinning(running) for _ in range(2)]
        await stopped(resume_guard, ours, other) if sign == "-" else await stopped(resume_guard, ours)
        if sign == "+":
            os.kill(other.pid, signal.SIGSTOP)
        await until(lambda: state(other.pid) == "T")
        pipe = Path(f"/proc/{resume_guard.cleanup_process.pid}/fd/0")
        pipe.write_bytes(f"{sign}{other.pid} {other.start}0".encode())  # and more was to follow
        resume_guard.close()
        await until(lambda: state(ours.pid) == "R")
        if sign == "+":
            assert state(other.pid) == "T"
        else:
            await until(lambda: state(other.pid) == "R")

    asyncio.run(check())


def test_process_that_its_user_stopped_too_is_left_stopped(running: Running, resume_guard: ResumeGuard) -> None:
    """It is also left so if this process ends: Ctrl-Z is not undone."""

    async def check() -> None:
        ours, other = [await spinning(running) for _ in range(2)]
        await stopped(resume_guard, ours, other)
        os.kill(other.pid, signal.SIGTSTP)
        resume_guard.close()
        await until(lambda: state(ours.pid) == "R")
        assert state(other.pid) == "T"

    asyncio.run(check())


# --- the cleanup process itself fails ---------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["killed", "deaf"])
def test_another_one_is_started_at_the_next_stop(running: Running, resume_guard: ResumeGuard, end: str) -> None:
    """It knows of those before, too; one that does not read is killed, and delays nothing."""

    async def check() -> None:
        before, after, released = [await spinning(running) for _ in range(3)]
        await stopped(resume_guard, before, released)
        first = resume_guard.cleanup_process.pid
        assert first is not None
        os.kill(first, signal.SIGKILL if end == "killed" else signal.SIGSTOP)
        await until(lambda: state(first) == ("Z" if end == "killed" else "T"))
        if end == "deaf":
            resume_guard.stop(ProcessId(2**31 - 1 - number, 1) for number in range(10_000))
            await until(lambda: not Path(f"/proc/{first}").exists())
        resume_guard.resume([released])
        os.kill(released.pid, signal.SIGSTOP)
        await stopped(resume_guard, after)
        assert resume_guard.cleanup_process.pid not in (None, first)
        await until(lambda: state(released.pid) == "T")
        resume_guard.close()
        await until(lambda: state(before.pid) == state(after.pid) == "R")
        assert state(released.pid) == "T"

    asyncio.run(check())


def test_offender_is_stopped_without_a_resume_guard(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    """Else it would only have to use up all processes of its user; it is logged once."""

    async def check() -> None:
        resume_guard = ResumeGuard("/nowhere/python")
        one, two = [await spinning(running) for _ in range(2)]
        await stopped(resume_guard, one)
        await stopped(resume_guard, two)
        resume_guard.resume([one, two])
        await until(lambda: state(one.pid) == state(two.pid) == "R")
        resume_guard.close()

    asyncio.run(check())
    assert ["at its next start only" in each.message for each in caplog.records] == [True]
