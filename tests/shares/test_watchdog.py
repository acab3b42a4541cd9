"""Whoever is stopped runs again though his bouncer was killed for ever: real processes, real signals."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpu_node.processes.rules.process_id import ProcessId
from jupyter_gpu_node.shares.resume_guard import Watchdog
from tests.gate.standin.conftest import FIRST as GPU
from tests.shares.bouncing import HOG, HOG_BUSY, Bouncing, Running, children, killable, line, process, state, until

TWO = {"a": 500, "b": 500}
SPIN = "print('has it', flush=True)\nwhile True: pass"


@pytest.fixture
def watchdog() -> Iterator[Watchdog]:
    """One that is closed at the end."""
    found = Watchdog()
    yield found
    found.close()


async def spinning(running: Running) -> ProcessId:
    """A program that runs."""
    one = running.start(SPIN)
    assert await line(one) == "has it\n"
    return process(one.pid)


async def stopped(watchdog: Watchdog, *processes: ProcessId) -> None:
    """They are, as the kernel shows it."""
    watchdog.stop(processes)
    await until(lambda: all(state(one.pid) == "T" for one in processes))


def descriptors(pid: int) -> list[str]:
    """What it has open; it may close some of it while we read."""
    found = []
    for entry in sorted(Path(f"/proc/{pid}/fd").iterdir()):
        with contextlib.suppress(FileNotFoundError):
            found.append(str(entry.readlink()))
    return found


def kinds(pid: int) -> list[str]:
    """What that is, without the numbers of pipes."""
    return [each.partition(":")[0] for each in descriptors(pid)]


# --- the bouncer is killed --------------------------------------------------------------------------------------------


def test_whoever_was_stopped_runs_again_though_no_other_bouncer_comes(short: Path, running: Running) -> None:
    """The whole process group of the bouncer is killed."""

    async def check() -> None:
        async with killable(short, {GPU: TWO}) as first:
            one = running.start(HOG_BUSY, short / "b" / "shares" / f"{GPU}.sock")
            assert await line(one) == "has it\n"
            assert not children(first.pid)
            running.start(HOG, short / "a" / "shares" / f"{GPU}.sock")
            await until(lambda: state(one.pid) == "T")
            (watchdog,) = children(first.pid)
            os.killpg(first.pid, signal.SIGKILL)
            await until(lambda: state(one.pid) == "R")
            await until(lambda: not Path(f"/proc/{watchdog}").exists())

    asyncio.run(check())


@pytest.mark.parametrize("deaf", [False, True])
def test_an_end_in_order_leaves_no_watchdog(short: Path, running: Running, deaf: bool) -> None:
    """Not even one that hears nothing; nor is there one before somebody is stopped."""

    async def check() -> None:
        async with Bouncing(short) as world:
            await world.set({GPU: TWO})
            one = running.start(HOG, world.socket(GPU, "b"))
            assert await line(one) == "has it\n"
            assert world.bouncer._watchdog.deputy.pid is None
            running.start(HOG, world.socket(GPU, "a"))
            await until(lambda: state(one.pid) == "T")
            pid = world.bouncer._watchdog.deputy.pid
            assert pid is not None
            assert pid in children(os.getpid())
            if deaf:
                os.kill(pid, signal.SIGSTOP)
                await until(lambda: state(pid) == "T")
        assert not Path(f"/proc/{pid}").exists()
        await until(lambda: state(one.pid) != "T")

    asyncio.run(check())


# --- what it does -----------------------------------------------------------------------------------------------------


def test_it_holds_nothing_of_its_bouncer(running: Running, short: Path, watchdog: Watchdog) -> None:
    """Such as a lock that the next one waits for, even one that is inherited; it has a session of its own."""

    async def check() -> None:
        with (short / "lock").open("w") as lock:
            os.set_inheritable(lock.fileno(), True)
            await stopped(watchdog, await spinning(running))
            pid = watchdog.deputy.pid
            assert pid is not None
            await until(lambda: "pipe:" in "".join(descriptors(pid)))  # until it is another program
            await until(lambda: str(short / "lock") not in descriptors(pid))
            # an interpreter that still starts has folders open
            await until(lambda: kinds(pid) == ["pipe", "/dev/null", "/dev/null"])
            assert os.getsid(pid) == pid

    asyncio.run(check())


def test_what_a_later_bouncer_stopped_stays_so(running: Running, watchdog: Watchdog) -> None:
    """As does what this one continued itself: only what it holds runs again when it is gone."""

    async def check() -> None:
        ours, earlier, theirs = [await spinning(running) for _ in range(3)]
        await stopped(watchdog, ours, earlier)
        watchdog.resume([earlier])
        for one in (earlier, theirs):
            os.kill(one.pid, signal.SIGSTOP)
        await until(lambda: state(earlier.pid) == state(theirs.pid) == "T")
        watchdog.close()  # the pipe ends: no more is seen of a death
        await until(lambda: state(ours.pid) == "R")
        assert state(earlier.pid) == state(theirs.pid) == "T"

    asyncio.run(check())


def test_whoever_has_the_pid_of_another_is_left_stopped(running: Running, watchdog: Watchdog) -> None:
    """And costs the others nothing, as do those that have ended."""

    async def check() -> None:
        ours, other, gone = [await spinning(running) for _ in range(3)]
        os.kill(other.pid, signal.SIGSTOP)
        await stopped(watchdog, ours, gone)
        os.kill(gone.pid, signal.SIGKILL)
        watchdog.stop([ProcessId(other.pid, other.start + 1), ProcessId(2**40, 1)])
        watchdog.close()
        await until(lambda: state(ours.pid) == "R")
        assert state(other.pid) == "T"

    asyncio.run(check())


@pytest.mark.parametrize("sign", ["+", "-"])
def test_half_a_message_is_none(running: Running, watchdog: Watchdog, sign: str) -> None:
    """Whoever died while he wrote it has not done what it says."""

    async def check() -> None:
        ours, other = [await spinning(running) for _ in range(2)]
        await stopped(watchdog, ours, other) if sign == "-" else await stopped(watchdog, ours)
        if sign == "+":
            os.kill(other.pid, signal.SIGSTOP)
        await until(lambda: state(other.pid) == "T")
        pipe = watchdog.deputy._process
        assert pipe is not None
        assert pipe.stdin is not None
        pipe.stdin.write(f"{sign}{other.pid} {other.start}0".encode())  # and more was to follow
        watchdog.close()
        await until(lambda: state(ours.pid) == "R")
        if sign == "+":
            assert state(other.pid) == "T"
        else:
            await until(lambda: state(other.pid) == "R")

    asyncio.run(check())


def test_what_its_user_stopped_too_is_left_so(running: Running, watchdog: Watchdog) -> None:
    """Also if this process ends: Ctrl-Z is not undone."""

    async def check() -> None:
        ours, other = [await spinning(running) for _ in range(2)]
        await stopped(watchdog, ours, other)
        os.kill(other.pid, signal.SIGTSTP)
        watchdog.close()
        await until(lambda: state(ours.pid) == "R")
        assert state(other.pid) == "T"

    asyncio.run(check())


# --- the watchdog itself fails ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["killed", "deaf"])
def test_another_one_is_started_at_the_next_stop(running: Running, watchdog: Watchdog, end: str) -> None:
    """It knows of those before, too; one that does not read is killed, and holds nobody up."""

    async def check() -> None:
        before, after, released = [await spinning(running) for _ in range(3)]
        await stopped(watchdog, before, released)
        first = watchdog.deputy.pid
        assert first is not None
        os.kill(first, signal.SIGKILL if end == "killed" else signal.SIGSTOP)
        await until(lambda: state(first) == ("Z" if end == "killed" else "T"))
        if end == "deaf":
            watchdog.stop(ProcessId(2**31 - 1 - number, 1) for number in range(10_000))
            await until(lambda: not Path(f"/proc/{first}").exists())
        watchdog.resume([released])
        os.kill(released.pid, signal.SIGSTOP)
        await stopped(watchdog, after)
        assert watchdog.deputy.pid not in (None, first)
        await until(lambda: state(released.pid) == "T")
        watchdog.close()
        await until(lambda: state(before.pid) == state(after.pid) == "R")
        assert state(released.pid) == "T"

    asyncio.run(check())


def test_whoever_offends_is_stopped_though_there_can_be_no_watchdog(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """Else he would only have to use up all processes of his user; it is said once."""

    async def check() -> None:
        watchdog = Watchdog("/nowhere/python")
        one, two = [await spinning(running) for _ in range(2)]
        await stopped(watchdog, one)
        await stopped(watchdog, two)
        watchdog.resume([one, two])
        await until(lambda: state(one.pid) == state(two.pid) == "R")
        watchdog.close()

    asyncio.run(check())
    assert ["at its next start only" in each.message for each in caplog.records] == [True]
