"""The enforcer with real processes, signals, sockets and the stand-in driver; and the death of the enforcer itself."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jupyter_gpu_node.devices import cgroup
from jupyter_gpu_node.processes import signals
from jupyter_gpu_node.processes.rules.process_id import ProcessId
from jupyter_gpu_node.shares.enforcement import stopped_processes
from jupyter_gpu_node.shares.rules.violations import throttling
from jupyter_gpu_node.shares.rules.violations.violation_records import ViolationRecord
from jupyter_gpu_node.shares.server.clocks import microseconds
from tests.gate.standin.board import Board
from tests.gate.standin.clients import BUILD
from tests.gate.standin.conftest import FIRST, SECOND
from tests.shares.client import uses
from tests.shares.enforcing import (
    ESCAPER,
    HOG,
    HOG_BUSY,
    POLITE,
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
from tests.shares.world import until as _until

GPU, OTHER = FIRST, SECOND


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the stand-in driver."""
    folder = tmp_path_factory.mktemp("standin")
    subprocess.run([BUILD, folder], check=True)
    return folder


def escapes(folder: Path, driver: Path, owner: str) -> dict[str, str]:
    """The environment of a program that has no gate."""
    return {
        **os.environ, "LD_LIBRARY_PATH": str(driver), "JUPYTER_GPU_STANDIN": str(folder / "boards"),
        "JUPYTER_GPU_STANDIN_GPUS": f"{GPU}:64", "JUPYTER_GPU_STANDIN_OWNER": owner,
    }  # fmt: skip


async def polite(running: Running, world: EnforcingServer, pod: str, before: str = "") -> Path:
    """A program that keeps to its turns, and its log."""
    log = world.folder / f"{pod}.log"
    running.start(before + POLITE, world.socket(GPU, pod), log)
    await until(log.exists)
    return log


async def hog(running: Running, world: EnforcingServer, pod: str, gpu: str = GPU) -> subprocess.Popen[str]:
    """A client that has the GPU, and keeps it."""
    one = running.start(HOG, world.socket(gpu, pod))
    assert await line(one) == "has it\n"
    return one


# --- signals ----------------------------------------------------------------------------------------------------------


def test_a_process_is_stopped_and_runs_again(running: Running) -> None:
    """The kernel shows both, also without need; a process that its user stopped meanwhile stays stopped."""

    async def check() -> None:
        one = running.start(SPIN)
        who = process(one.pid)
        assert await line(one) == "has it\n"
        assert signals.stop([who]) == {who}
        await until(lambda: state(one.pid) == "T")
        for _ in range(2):
            signals.resume([who])
            await until(lambda: state(one.pid) == "R")
        assert signals.stopped([who]) == frozenset()
        assert signals.stop([who]) == {who}
        await until(lambda: signals.stopped([who]) == {who})
        os.kill(one.pid, signal.SIGTSTP)
        signals.resume([who])
        assert state(one.pid) == "T"
        os.kill(one.pid, signal.SIGCONT)
        await until(lambda: state(one.pid) == "R")
        assert signals.stopped([ProcessId(one.pid, who.start + 1), ProcessId(2**22 + 1, 1)]) == frozenset()

    asyncio.run(check())


def test_process_with_a_reused_pid_is_left_alone(running: Running) -> None:
    """The process that was meant has ended, or never was."""

    async def check() -> None:
        one = running.start(SPIN)
        who = process(one.pid)
        later, large = ProcessId(one.pid, who.start + 1), ProcessId(2**40, 1)
        assert signals.stop([later, large]) == frozenset()
        os.kill(one.pid, signal.SIGSTOP)
        await until(lambda: state(one.pid) == "T")
        signals.resume([later, large])
        assert state(one.pid) == "T"
        running.kill(one)
        assert signals.stop([who]) == frozenset()

    asyncio.run(check())


# --- the file ---------------------------------------------------------------------------------------------------------


def test_saved_violations_are_loaded(short: Path) -> None:
    """Processes stopped before the machine started anew are not among them: others have their pids."""
    path = short / "deep" / "violations.json"
    assert stopped_processes.load(path) == {}
    kept = {
        GPU: {
            "a": ViolationRecord(2.0, 5, stopped=frozenset({ProcessId(7, 70)})),
            "b": ViolationRecord(taken="Taken away."),
        }
    }
    stopped_processes.save(path, kept)
    assert stopped_processes.load(path) == kept
    body = json.loads(path.read_text())
    path.write_text(json.dumps(body | {"boot": "another"}))
    assert stopped_processes.load(path) == {
        GPU: {"a": ViolationRecord(2.0, 5), "b": ViolationRecord(taken="Taken away.")}
    }


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version":2,"gpus":{}}', '{"version":1,"gpus":{"g":{"a":{"stopped":[[0,1]]}}}}']
)
def test_a_broken_file_is_put_aside(short: Path, text: str) -> None:
    """It is there to be inspected."""
    path = short / "violations.json"
    path.write_text(text)
    assert stopped_processes.load(path) == {}
    assert path.with_suffix(".broken").read_text() == text
    assert not path.exists()


# --- keeping the GPU --------------------------------------------------------------------------------------------------


def test_a_hog_is_stopped_others_run_and_it_has_its_next_turn(short: Path, running: Running) -> None:
    """Its user reads why."""

    async def check() -> None:
        async with EnforcingServer(short) as world:
            await world.set({GPU: TWO})
            one = await hog(running, world, "b")
            log = await polite(running, world, "a")
            await until(lambda: state(one.pid) == "T")
            before = len(uses(log))
            await until(lambda: len(uses(log)) > before)
            await until(lambda: state(one.pid) != "T")
            assert world.told[0] == (
                GPU,
                "b",
                "Stopped until its next turn: it kept the GPU after it was asked for it.",
            )
            assert not [each for each in world.told if each[1] == "a"]

    asyncio.run(check())


@pytest.mark.root
def test_program_that_a_cpu_limit_stops_is_not_late(short: Path, running: Running) -> None:
    """It keeps the GPU while it cannot run, for most of each second, and gives it back as soon as it can."""

    async def check() -> None:
        async with EnforcingServer(short, penalties={"grace": 500_000}) as world:
            await world.set({GPU: TWO})
            with limited(running, 100_000, 1_000_000) as group:
                log = await polite(running, world, "b", enters(group) + BURNS)
                other = await polite(running, world, "a")
                await until(lambda: stopped(group) > 8)
                assert len(uses(log)) > 1
                assert len(uses(other)) > 1
                assert not world.told

    asyncio.run(check())


@pytest.mark.root
def test_a_hog_with_a_cpu_limit_is_stopped(short: Path, running: Running) -> None:
    """A hog that needs little is not stopped by the limit: it could have given back."""

    async def check() -> None:
        async with EnforcingServer(short) as world:
            await world.set({GPU: TWO})
            with limited(running, 90_000, 100_000) as group:
                one = running.start(enters(group) + HOG, world.socket(GPU, "b"))
                assert await line(one) == "has it\n"
                await polite(running, world, "a")
                await until(lambda: state(one.pid) == "T")

    asyncio.run(check())


BURNS = """
import threading
def burn():
    while True: pass
threading.Thread(target=burn, daemon=True).start()
"""


@contextmanager
def limited(running: Running, quota: int, period: int) -> Iterator[Path]:
    """A control group with a CPU limit, in microseconds; all of ``running`` is killed at its end."""
    mounts = Path("/proc/self/mountinfo").read_text()
    tree = cgroup.controller(mounts, "cpu") or cgroup.parse_mounts(mounts).unified
    if tree is None:
        pytest.skip("not run: there are no control groups")
    group = Path(tree.mount) / f"test-limited-{os.getpid()}"
    group.mkdir()
    try:
        if (group / "cpu.cfs_quota_us").exists():
            (group / "cpu.cfs_period_us").write_text(str(period))
            (group / "cpu.cfs_quota_us").write_text(str(quota))
        elif (group / "cpu.max").exists():
            (group / "cpu.max").write_text(f"{quota} {period}")
        else:
            pytest.skip("not run: there is no CPU controller")
        yield group
    finally:
        running.__exit__(None, None, None)
        _until(lambda: not cgroup.populated(group))
        group.rmdir()


def enters(group: Path) -> str:
    """The beginning of a program that is to be in that group."""
    return f"open({str(group / 'cgroup.procs')!r}, 'w').write('0')\n"


def stopped(group: Path) -> int:
    """Return the number of periods in which its limit stopped it."""
    found = throttling.parse((group / "cpu.stat").read_text(), 1)
    return found.times if found else 0


def test_a_hog_loses_its_share_and_the_others_keep_running(short: Path, running: Running) -> None:
    """It runs again when the share is taken, so that it can end in order; without its share all is forgotten."""

    async def check() -> None:
        async with EnforcingServer(short, penalties={"strikes": 3}) as world:
            await world.set({GPU: TWO})
            one = running.start(HOG_AGAIN, world.socket(GPU, "b"))
            assert await line(one) == "has it\n"
            log = await polite(running, world, "a")
            await until(lambda: world.taken)
            gpu, pod, reason = world.taken[0]
            assert (gpu, pod) == (GPU, "b")
            assert "violation 3" in reason
            before = len(uses(log))
            await until(lambda: len(uses(log)) > before)
            await world.set({GPU: {"a": 500}})
            await until(lambda: state(one.pid) != "T")
            before = len(uses(log))
            await until(lambda: len(uses(log)) > before + 3)
            await until(lambda: not kept(short))  # it may have had the GPU at that moment, and kept it once more

    asyncio.run(check())


def kept(folder: Path) -> object:
    """Return the saved record of violations."""
    return json.loads((folder / "violations.json").read_text())["gpus"]


def test_removed_share_is_forgotten(short: Path, running: Running) -> None:
    """Its program has the GPU and keeps it: it is stopped, so that others go on, and that is all."""

    async def check() -> None:
        async with EnforcingServer(short, penalties={"longest": 1_000_000}) as world:
            await world.set({GPU: TWO})
            one = await hog(running, world, "b")
            await world.set({GPU: {"a": 500}})
            log = await polite(running, world, "a")
            await until(lambda: world.told)
            await until(lambda: len(uses(log)) > 3)
            await until(lambda: state(one.pid) != "T")
            await until(lambda: not kept(short))
            assert not world.taken

    asyncio.run(check())


HOG_AGAIN = """
import sys
from pathlib import Path
from tests.shares.client import Client
from jupyter_gpu_node.shares.rules.protocol import Ask
with Client(Path(sys.argv[1])) as client:
    client.grant()
    print("has it", flush=True)
    while True:
        client.poll(0.01)
        client.send(Ask(0))  # wants it ever again, and never gives it back
"""


def test_spared_process_is_not_stopped(short: Path, running: Running) -> None:
    """A process such as the Jupyter server loses its share, without having been stopped."""

    async def check() -> None:
        spared: list[ProcessId] = []
        async with EnforcingServer(short, spare=lambda: spared, penalties={"strikes": 2}) as world:
            await world.set({GPU: TWO})
            one = await hog(running, world, "b")
            spared.append(process(one.pid))
            await polite(running, world, "a")
            await until(lambda: world.taken)
            assert not world.told

    asyncio.run(check())


@pytest.mark.parametrize("opens", ["yes", "not known"])
def test_spared_process_with_a_gpu_open_is_stopped(short: Path, running: Running, opens: str) -> None:
    """So is a Jupyter server, and one that cannot be inspected; only an inspection of the process itself spares it."""
    spared: list[ProcessId] = []

    def inspect(pid: int) -> bool:
        if opens == "not known":
            raise PermissionError(13, "not readable")
        return pid == spared[0].pid

    async def check() -> None:
        async with EnforcingServer(short, spare=lambda: spared, opens=inspect) as world:
            await world.set({GPU: TWO})
            one = await hog(running, world, "b")
            spared.append(process(one.pid))
            log = await polite(running, world, "a")
            await until(lambda: state(one.pid) == "T")
            before = len(uses(log))
            await until(lambda: len(uses(log)) > before)
            assert world.told[0][1] == "b"

    asyncio.run(check())


def test_process_is_not_stopped_without_a_record(short: Path, running: Running) -> None:
    """No process is stopped while the file cannot be written."""

    async def check() -> None:
        (short / "file").touch()
        async with EnforcingServer(short, file=short / "file" / "violations.json", penalties={"strikes": 2}) as world:
            await world.set({GPU: TWO})
            one = await hog(running, world, "b")
            await polite(running, world, "a")
            seen = set()
            await until(lambda: seen.add(state(one.pid)) or world.taken)  # type: ignore[func-returns-value]
            assert "T" not in seen
            assert not world.told

    asyncio.run(check())


# --- all processes run again ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["close", "share"])
def test_stopped_process_runs_again_at_the_end(short: Path, running: Running, end: str) -> None:
    """It does at the end of the enforcer, and of the share."""

    async def check() -> None:
        async with EnforcingServer(short) as world:
            await world.set({GPU: TWO})
            one = await hog(running, world, "b")
            holder = await hog_waiting(running, world)
            await until(lambda: state(one.pid) == "T")
            if end == "share":
                await world.set({GPU: {"a": 500}})
                await until(lambda: state(one.pid) != "T")
            running.kill(holder)
        await until(lambda: state(one.pid) != "T")

    asyncio.run(check())


async def hog_waiting(running: Running, world: EnforcingServer) -> subprocess.Popen[str]:
    """A client of the other share that waits for the GPU, and keeps it then."""
    return running.start(HOG, world.socket(GPU, "a"))


def test_next_enforcer_continues_processes_of_a_killed_one(short: Path, running: Running) -> None:
    """Its whole process group was killed, with its cleanup process, as a container is."""

    async def check() -> None:
        async with killable(short, {GPU: TWO}) as first:
            one = running.start(HOG_BUSY, short / "b" / "shares" / f"{GPU}.sock")
            assert await line(one) == "has it\n"
            running.start(HOG, short / "a" / "shares" / f"{GPU}.sock")
            await until(lambda: state(one.pid) == "T")
            first.send_signal(signal.SIGSTOP)  # it starts no other one
            await until(lambda: state(first.pid) == "T")
            for pid in children(first.pid):
                os.kill(pid, signal.SIGKILL)
            await until(lambda: not children(first.pid))
        assert state(one.pid) == "T"
        async with EnforcingServer(short):
            await until(lambda: state(one.pid) != "T")
        assert all(
            not each["stopped"] for each in json.loads((short / "violations.json").read_text())["gpus"][GPU].values()
        )

    asyncio.run(check())


def test_process_stopped_for_two_gpus_waits_for_both(short: Path, running: Running) -> None:
    """The end of one stop is not that of the other."""

    async def check() -> None:
        one = running.start(SPIN)
        assert await line(one) == "has it\n"
        who = frozenset({process(one.pid)})
        signals.stop(who)
        await until(lambda: state(one.pid) == "T")
        async with EnforcingServer(short, penalties={"longest": 600_000_000}) as world:
            for gpu in (GPU, OTHER):
                world.enforcer.watched(gpu).state = {"b": ViolationRecord(1.0, 0, stopped=who, since=microseconds())}
            await world.enforcer.set({GPU: ["a", "b"], OTHER: ["a"]})
            assert state(one.pid) == "T"
            await world.enforcer.set({GPU: ["a"], OTHER: ["a"]})
            await until(lambda: state(one.pid) != "T")

    asyncio.run(check())


# --- avoiding the gate ------------------------------------------------------------------------------------------------


def test_a_program_without_a_gate_is_stopped_in_turns_of_others(short: Path, running: Running, driver: Path) -> None:
    """It runs again in a turn of its own, and after that often its share goes; the other one never waits for it."""

    async def check() -> None:
        async with EnforcingServer(short, penalties={"strikes": 3, "kept": 0}) as world:
            await world.set({GPU: TWO})
            log = await polite(running, world, "a")
            one = running.start(ESCAPER, env=escapes(short, driver, "b"))
            assert await line(one) == "has it\n"
            world.watched = one.pid
            await until(lambda: world.told)
            await until(lambda: state(one.pid) != "T")
            before = Board(short / "boards", GPU).sums().launches
            await until(lambda: Board(short / "boards", GPU).sums().launches > before)
            await until(lambda: world.taken)
            assert set(world.seen) == {"T"}
            assert world.told[0][1:] == ("b", "Stopped until its next turn: it used the GPU in turns of others.")
            assert world.taken[0][:2] == (GPU, "b")
            assert "in turns of others, violation 3" in world.taken[0][2]
            assert not [each for each in world.told if each[1] == "a"]
            before = len(uses(log))
            await until(lambda: len(uses(log)) > before)

    asyncio.run(check())


def test_opencl_program_is_recognized_and_keeps_its_share(short: Path, running: Running, driver: Path) -> None:
    """Its way to the GPU cannot ask, and is known by its library: it is stopped between its turns, with that word."""
    folder = short / "opencl"
    folder.mkdir()
    shutil.copy(driver / "libcuda.so.1", folder / "libnvidia-opencl.so.1")
    (folder / "libcuda.so.1").symlink_to("libnvidia-opencl.so.1")

    async def check() -> None:
        async with EnforcingServer(short, penalties={"strikes": 2, "kept": 300_000}) as world:
            await world.set({GPU: TWO})
            await polite(running, world, "a")
            one = running.start(ESCAPER, env=escapes(short, folder, "b"))
            assert await line(one) == "has it\n"
            await until(lambda: len(world.told) >= 4 or world.taken)
            words = (
                "Stopped until its next turn: it used the GPU in turns of others by OpenCL, which cannot ask for turns."
            )
            assert all(each[1] == "b" and each[2].startswith(words) for each in world.told)
            assert not world.taken

    asyncio.run(check())


def test_a_program_without_a_gate_is_kept_to_its_turns(short: Path, running: Running, driver: Path) -> None:
    """After its first violation it is stopped at the end of each turn, without a message, and does no harm."""

    async def check() -> None:
        async with EnforcingServer(short, penalties={"looks": 10}) as world:  # time enough to see it before
            await world.set({GPU: TWO})
            log = await polite(running, world, "a")
            one = running.start(ESCAPER, env=escapes(short, driver, "b"))
            beside = running.start(SPIN, env=escapes(short, driver, "b"))
            assert await line(one) == "has it\n"
            assert await line(beside) == "has it\n"
            board = Board(short / "boards", GPU)

            async def both(count: int) -> tuple[float, float]:
                """Part of so many turns of the other one in which it worked as well, and of all the time."""
                begin, before = microseconds(), len(uses(log))
                await until(lambda: len(uses(log)) > before + count)
                end = microseconds()
                turns = [each for each in uses(log)[before:] if begin <= each[0] and each[1] <= end]
                work = [(max(each.start, begin), min(each.end, end)) for each in board.log() if each.end > begin]
                crossed = sum(max(0, min(a[1], b[1]) - max(a[0], b[0])) for a in turns for b in work)
                return crossed / sum(b - a for a, b in turns), sum(b - a for a, b in work) / (end - begin)

            assert (await both(20))[0] > 0.5  # it does as it likes
            await until(lambda: world.told)
            await until(lambda: state(one.pid) != "T")
            crossed, worked = await both(300)
            assert crossed < 0.2  # 0.04 where nothing else keeps the machine busy
            assert 0.05 < worked < 0.75
            assert state(beside.pid) != "T"
            assert len(world.told) == 1
            assert "For 60 s, what does not ask" in world.told[0][2]
            assert not world.taken
            running.kill(one)
            before = len(uses(log))
            await until(lambda: len(uses(log)) > before + 20)
        assert state(beside.pid) != "T"

    asyncio.run(check())


def test_program_without_a_gate_is_let_be_while_no_other_wants_the_gpu(
    short: Path, running: Running, driver: Path
) -> None:
    """It does no harm."""

    async def check() -> None:
        async with EnforcingServer(short, penalties={"looks": 1}) as world:
            await world.set({GPU: TWO})
            one = running.start(ESCAPER, env=escapes(short, driver, "b"))
            assert await line(one) == "has it\n"
            await until(lambda: Board(short / "boards", GPU).sums().busy > 1_500_000)
            assert not world.told
            await polite(running, world, "a")
            await until(lambda: world.told)

    asyncio.run(check())


HOLDER = """
import sys
from pathlib import Path
from jupyter_gpu_node.shares.rules.protocol import Ask
from tests.shares.client import Client
with Client(Path(sys.argv[1])) as client:
    client.grant()
    print("has it", flush=True)
    client.revoked()
    client.send(Ask(0, keeps=True))
    while True:
        client.poll(0.01)
"""
"""One that says that its work takes longer, and has none."""


def test_idle_holder_loses_the_gpu_after_two_scans(short: Path, running: Running) -> None:
    """It does not have the ten seconds of a long kernel. It is no violation: a stream can wait for its program."""

    async def check() -> None:
        async with EnforcingServer(short) as world:
            await world.set({GPU: TWO})
            one = running.start(HOLDER, world.socket(GPU, "b"))
            assert await line(one) == "has it\n"
            begin = microseconds()
            log = await polite(running, world, "a")
            await until(log.read_text)
            assert microseconds() - begin < 8_000_000
            assert state(one.pid) != "T"
            assert not world.told

    asyncio.run(check())
