"""Faults of time shares on one machine: each time the work goes on, or the user learns why not."""

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from jupyter_gpu.backends.local.processes.identity import identify
from jupyter_gpu.backends.local.sharing import files, supervisor, trust
from jupyter_gpu_node.shares.enforcement import stopped_processes
from jupyter_gpu_node.shares.rules.violations import violation_records
from tests.backends.local.stage import PATIENCE, Remote
from tests.shares.enforcing import state

from .machine import Machine, Program
from .test_shares import HOG, share

ROOT = Path(__file__).parents[4]
OFFENDER = """
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from jupyter_gpu_node.shares.rules.protocol import Ask, Revoke
from tests.shares.client import Client
with Client(Path(sys.argv[1])) as client:
    client.grant()
    print("has it", flush=True)
    while True:
        if isinstance(client.poll(0.01), Revoke):
            client.send(Ask(0))  # wants more, and keeps what it has
"""
STRIKES = 4
"""Record of a violator in these tests, which has been one before: it would take many seconds to become one."""


def bad_share(machine: Machine, milli: int, **wish: int) -> Remote:
    """A server with a share that is taken away at the next violation on any GPU."""
    server = machine.server()
    files.make_home(machine.state)
    before = {server.uid: violation_records.ViolationRecord(STRIKES, time.monotonic_ns() // 1000)}
    stopped_processes.save(
        files.home(machine.state) / files.OWN / "violations.json", dict.fromkeys(machine.uuids, before)
    )
    server.ask("request", milli=milli, **wish)
    machine.served(server)
    return server


def start_violator(machine: Machine, server: Remote, gpu: int = 0) -> Program:
    """A program of that server that does not give the GPU back."""
    path = str(machine.socket(server, gpu))
    violator = machine.start_program(server, [sys.executable, "-c", OFFENDER, path], PYTHONPATH=str(ROOT))
    machine.until(lambda: violator.said == ["has it"], "the violation")
    return violator


def told(machine: Machine, server: Remote) -> str:
    """Why its programs wait, as the panel says; empty if they do not."""
    return machine.conditions(server).get("ShareServerMissing", "")


def goes_on(machine: Machine, launches: int = 200) -> None:
    """Programs run."""
    machine.more(launches)


# --- the arbiter ------------------------------------------------------------------------------------------------------


def test_an_arbiter_that_is_killed_is_replaced(machine: Machine) -> None:
    """Programs wait for the next one, go on, and never run at once, whenever it is killed."""
    first, second = share(machine, 400), share(machine, 600)
    programs = [machine.run(server, "kernels:1500:1000", "sync") for server in (first, second)]
    pid = 0
    for launches in (1, 50, 333, 700):
        machine.more(launches)
        pid = machine.arbiter(but=pid)
        os.kill(pid, signal.SIGKILL)
    for program in programs:
        assert program.lines()[-1] == "done"
    assert machine.sums().overlaps == 0
    assert machine.sums().launches == 3000
    machine.until(lambda: not machine.conditions(first).keys() - {"Simulated"}, "nothing else to be told")


def test_the_server_that_started_the_arbiter_is_killed(machine: Machine) -> None:
    """The arbiter goes on, and the programs of the other server do not notice; the next one is started by that."""
    first = share(machine, 400)
    second = share(machine, 600)
    program = machine.run(second, *HOG)
    machine.more(100)
    pid = machine.arbiter()
    first.kill()
    goes_on(machine)
    assert machine.arbiter() == pid
    os.kill(pid, signal.SIGKILL)
    assert machine.arbiter(but=pid)
    goes_on(machine)
    assert not program.ended()


def test_the_programs_of_a_dead_server_are_served_until_they_end(machine: Machine) -> None:
    """No other pod gets their GPU, and they are not stuck for ever."""
    first = share(machine, 400)
    program = machine.run(first, *HOG)
    machine.more(50)
    first.kill()
    goes_on(machine)
    second = share(machine, 600)
    machine.run(second, *HOG)
    goes_on(machine, 500)
    assert machine.sums().overlaps == 0
    program.send(signal.SIGKILL)


def test_arbiter_ends_when_no_server_has_a_gpu(machine: Machine) -> None:
    """Its server lives on, and gets another one with the next GPU."""
    server = share(machine, 500)
    pid = machine.arbiter()
    server.ask("request", milli=0)
    machine.until(lambda: not machine.arbiters(), "the arbiter's end")
    assert "No server has a GPU any more" in machine.log()
    server.ask("request", milli=250)
    assert machine.arbiter() != pid
    assert machine.run(server, "kernels:10:100", "sync").lines()[-1] == "done"


def test_an_arbiter_ends_when_all_servers_are_killed(machine: Machine) -> None:
    """A machine is left as it was."""
    servers = [share(machine, 250) for _ in range(2)]
    machine.arbiter()
    for server in servers:
        server.kill()
    machine.until(lambda: not machine.arbiters(), "the arbiter's end")


def test_gpu_of_a_moment_starts_no_arbiter(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None is started for a moment's GPU, nor after the end of the server."""
    monkeypatch.setattr(supervisor, "NOT_YET", 3600.0)
    kept = supervisor.Supervisor(short_tmp, lambda _: None, lambda: None)
    kept.need(True)
    kept.stop()
    kept.need(True)
    for thread in threading.enumerate():
        if thread.name == "jupyter-gpu-arbiter":
            thread.join(PATIENCE)
            assert not thread.is_alive()
    assert list(short_tmp.iterdir()) == []


def test_hanging_arbiter_is_reported(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its programs wait, and the user reads why; they go on when it does."""
    server = share(machine, 500)
    pid = machine.arbiter()
    os.kill(pid, signal.SIGSTOP)
    machine.until(lambda: state(pid) == "T", "it to stand still")
    sign = files.home(machine.state) / files.OWN / files.NOTIFY_SOCKET
    old = sign.stat().st_mtime_ns - 3600 * 10**9  # as if an hour had passed
    os.utime(sign, ns=(old, old))
    server.ask("notify")
    machine.until(lambda: "no sign of life" in told(machine, server), "the condition")
    os.kill(pid, signal.SIGCONT)

    def gone() -> bool:
        server.ask("notify")
        return "ShareServerMissing" not in machine.conditions(server)

    machine.until(gone, "its end")


def test_arbiter_that_cannot_start_is_reported_and_tried_again(machine: Machine) -> None:
    """The condition says what is in its place, and goes when that is gone."""
    server = machine.server()
    (machine.state / files.ARBITERS).write_text("in the way")
    server.ask("request", milli=500)
    machine.until(lambda: "Not a directory" in told(machine, server), "the condition")
    (machine.state / files.ARBITERS).unlink()
    machine.until(lambda: "ShareServerMissing" not in machine.conditions(server), "its end")
    assert machine.run(server, "kernels:10:100", "sync").lines()[-1] == "done"


def test_lock_that_another_process_keeps_is_reported(machine: Machine) -> None:
    """A process that holds the lock and serves no share: the other servers say so."""
    server = machine.server()
    lock = files.open_lock(machine.state)
    fcntl.flock(lock, fcntl.LOCK_EX)
    server.ask("request", milli=500)
    machine.until(lambda: "Nobody answers" in told(machine, server), "the condition")
    os.close(lock)
    machine.until(lambda: "ShareServerMissing" not in machine.conditions(server), "its end")


def test_arbiter_of_another_container_is_reported(machine: Machine) -> None:
    """It cannot see whose programs these are, so it refuses them."""
    server = share(machine, 500)
    (files.home(machine.state) / files.OWN / files.NAMESPACE).write_text("7")
    server.ask("notify")
    machine.until(lambda: "another container" in told(machine, server), "the condition")


def test_a_whole_gpu_that_is_given_back_without_an_arbiter_is_not_used_on(machine: Machine) -> None:
    """Its program needs no arbiter while it has the GPU for itself, and waits as soon as that is over."""
    server = machine.server()
    server.ask("request", milli=1000)
    machine.served(server)
    program = machine.run(server, *HOG)
    machine.more(100)
    with nobody(machine):
        server.ask("request", milli=500)

        def rests() -> bool:
            before = machine.sums().launches
            time.sleep(2)
            return machine.sums().launches == before

        machine.until(rests, "the program to wait")
        assert not program.ended()
    machine.more(300)


def test_a_gpu_that_changes_hands_without_an_arbiter_has_one_user(machine: Machine) -> None:
    """A program that had a whole GPU does not run beside the next owner, though the next arbiter serves its other GPU.

    What it had queued ends there: with a real GPU nobody else gets it before its programs have closed it.
    """
    machine.gpus = 2
    before, after = machine.server(), machine.server()
    before.ask("request", milli=2000)
    for gpu, uuid in enumerate(machine.uuids):
        machine.served(before, gpu)
        machine.run(before, *HOG, CUDA_VISIBLE_DEVICES=uuid)
        machine.more(50, gpu)
    pid = machine.arbiter()
    os.kill(pid, signal.SIGKILL)
    before.ask("request", milli=1000)
    (gpu,) = after.ask("request", milli=1000)["gpus"]
    index = machine.uuids.index(gpu["uuid"])
    machine.arbiter(but=pid)
    machine.run(after, *HOG, CUDA_VISIBLE_DEVICES=gpu["uuid"])
    machine.more(2500, index)
    assert {work.owner for work in machine.board(index).log()[-500:]} == {after.uid}
    assert not machine.socket(before, index).exists()


def test_a_wish_alone_starts_no_arbiter(machine: Machine) -> None:
    """A server that waits for a GPU that a dead server's program holds needs no arbiter yet."""
    dead, server = machine.server(), machine.server()
    view = dead.ask("request", milli=1000)
    kernel = machine.kernel(dead)
    kernel.ask("open", path=view["gpus"][0]["path"])
    dead.kill()
    assert server.ask("request", milli=1000)["phase"] == "Waiting"
    machine.until(lambda: not machine.arbiters(), "the end of the dead server's arbiter")
    server.ask("notify")
    time.sleep(1)
    assert not machine.arbiters()
    kernel.ask("close", path=view["gpus"][0]["path"])
    kernel.kill()
    server.ask("until", phase="Ready")
    machine.served(server)


def test_a_program_that_outlives_its_server_finds_its_sockets(machine: Machine) -> None:
    """It goes on after the next kill of an arbiter, too; the link goes with the record."""
    first, second = share(machine, 500), share(machine, 250)
    program = machine.run(first, *HOG)
    kernel = machine.kernel(first)
    kernel.ask("open", path=machine.paths[0])
    machine.more(50)
    first.ask("stop")
    pid = machine.arbiter()
    os.kill(pid, signal.SIGKILL)
    machine.arbiter(but=pid)
    machine.more(100)
    link = machine.socket(first).parent
    assert link.is_symlink()
    program.send(signal.SIGKILL)
    kernel.kill()
    second.ask("request", milli=1000)
    first.kill()
    second.ask("until", phase="Ready", attached=1000)
    machine.until(lambda: not link.is_symlink(), "the link to go")


def test_process_that_an_arbiter_stopped_runs_again_when_it_is_killed(machine: Machine) -> None:
    """The server that started it lets them run again, as the next one may belong to another user."""
    share(machine, 500)
    program = machine.run(machine.actors[0], "sleep:600000000")
    process = identify(program.pid)
    assert process is not None
    os.kill(program.pid, signal.SIGSTOP)
    stopped = violation_records.ViolationRecord(1.0, 1, stopped=frozenset([process]))
    machine.arbiter()
    kept = files.home(machine.state) / files.OWN / "violations.json"
    stopped_processes.save(kept, {machine.uuids[0]: {machine.actors[0].uid: stopped}})
    with nobody(machine):

        def runs() -> bool:
            return Path(f"/proc/{program.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T"

        machine.until(runs, "the program to run")


def test_a_lock_file_that_is_removed_ends_its_arbiter(machine: Machine) -> None:
    """The server that makes the file anew starts another one, and programs go on by that, one at a time."""
    first, second = share(machine, 500), share(machine, 500)
    for server in (first, second):
        machine.run(server, *HOG)
    machine.more(100)
    pid = machine.arbiter()
    (machine.state / files.LOCK).unlink()
    machine.until(lambda: pid not in machine.arbiters(), "the end of the arbiter")
    machine.arbiter(but=pid)
    machine.more(300)
    assert machine.sums().overlaps == 0


LASTING = """
import sys
import time
from pathlib import Path
from jupyter_gpu_node.shares.rules.protocol import Ask, Revoke
from tests.shares.client import Client, Ended
try:
    with Client(Path(sys.argv[1])) as client:
        client.grant()
        print("has it", flush=True)
        while True:
            if isinstance(client.poll(0.01), Revoke):
                client.send(Ask(0))
except Ended:
    print("runs on", flush=True)
time.sleep(600)
"""
"""A violator that outlives its arbiter."""


def test_stopped_process_runs_again_when_arbiter_and_servers_are_killed(machine: Machine) -> None:
    """They are killed at once while a program is stopped: no server starts another arbiter."""
    bad, good = share(machine, 500), share(machine, 500)
    path = str(machine.socket(bad))
    violator = machine.start_program(bad, [sys.executable, "-c", LASTING, path], PYTHONPATH=str(ROOT))
    machine.until(lambda: violator.said == ["has it"], "the violation")
    pid = machine.arbiter()
    machine.run(good, *HOG)

    def stopped() -> bool:
        """And the arbiter with it, which would let it run in its next turn."""
        if state(violator.pid) != "T":
            return False
        os.kill(pid, signal.SIGSTOP)
        machine.until(lambda: state(pid) == "T", "the arbiter to stand still")
        if state(violator.pid) == "T":
            return True
        os.kill(pid, signal.SIGCONT)
        return False

    machine.until(stopped, "the program to be stopped")
    for one in (bad.pid, good.pid, pid):
        os.kill(one, signal.SIGKILL)
    machine.until(lambda: violator.said == ["has it", "runs on"], "the program to run")
    assert state(violator.pid) != "T"
    assert machine.arbiters() == []


@contextlib.contextmanager
def nobody(machine: Machine) -> Iterator[None]:
    """No arbiter runs: the one that did was killed, and another process has the lock."""
    lock = files.open_lock(machine.state)
    try:
        pid = machine.arbiter()
        os.kill(machine.actors[0].pid, signal.SIGSTOP)  # its server starts none meanwhile
        os.kill(pid, signal.SIGKILL)
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.kill(machine.actors[0].pid, signal.SIGCONT)
        yield
    finally:
        os.close(lock)


# --- the state directory ----------------------------------------------------------------------------------------------


def test_a_state_directory_that_is_removed_ends_its_arbiter(machine: Machine) -> None:
    """Its servers make it anew, start another one, and their programs go on."""
    server = share(machine, 500)
    program = machine.run(server, *HOG)
    machine.more(50)
    pid = machine.arbiter()
    simulated = machine.state / "simulated"
    simulated.rename(machine.state.parent / "kept")  # the GPUs themselves stay
    shutil.rmtree(machine.state, ignore_errors=True)
    machine.state.mkdir(exist_ok=True)
    machine.state.chmod(0o1777)
    (machine.state.parent / "kept").rename(simulated)
    machine.until(lambda: pid not in machine.arbiters(), "the end of the arbiter")
    server.ask("request", milli=400)
    machine.arbiter(but=pid)
    goes_on(machine)
    assert not program.ended()


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"\0" * 100, b'{"revocations": [7]}', b"[" * 100_000],
    ids=["empty", "list", "zeros", "fields", "deep"],
)
def test_damaged_files_of_an_arbiter_are_left_out(machine: Machine, text: bytes) -> None:
    """The next arbiter begins without damaged books, violations, revocations and use."""
    server = share(machine, 500)
    program = machine.run(server, *HOG)
    machine.more(300)
    pid = machine.arbiter()
    home = files.home(machine.state)
    for file in (*home.rglob("*.json"), files.sockets(machine.state, os.geteuid(), server.uid) / "revocations.json"):
        file.write_bytes(text)
    server.ask("sample")
    os.kill(pid, signal.SIGKILL)
    machine.arbiter(but=pid)
    goes_on(machine)
    assert not program.ended()
    assert server.ask("view")["phase"] == "Ready"


def test_damaged_record_costs_no_turn(machine: Machine) -> None:
    """The arbiter goes on with what it knew, and the server writes it again."""
    server = share(machine, 500)
    machine.run(server, *HOG)
    machine.more(50)
    record = machine.state / "pods" / f"{server.uid}.json"
    socket_file = machine.socket(server).stat().st_ino
    os.kill(server.pid, signal.SIGSTOP)  # it would write the record when it reads it next
    machine.until(lambda: state(server.pid) == "T", "it to stand still")
    record.write_text("nonsense")
    sign = files.home(machine.state) / files.OWN / files.NOTIFY_SOCKET
    for _ in range(2):
        seen = {sign.stat().st_mtime_ns}
        assert trust.arbiter_user(machine.state) == os.geteuid()  # which notifies it
        machine.until(partial(_changes, sign, seen), "a read of the records")
    goes_on(machine)
    assert machine.socket(server).stat().st_ino == socket_file
    assert record.read_text() == "nonsense"
    os.kill(server.pid, signal.SIGCONT)
    server.ask("notify")
    machine.until(lambda: record.read_text().startswith("{"), "the record")
    goes_on(machine)


def _changes(sign: Path, seen: set[int]) -> bool:
    return sign.stat().st_mtime_ns not in seen


def test_files_of_dead_pods_are_removed(machine: Machine) -> None:
    """Folders and links of servers that were killed go."""
    dead, server = share(machine, 250), share(machine, 500)
    link = machine.socket(dead).parent
    assert link.is_symlink()
    dead.kill()
    (machine.state / "pods" / f"{dead.uid}.json").unlink()
    machine.until(lambda: not link.is_symlink(), "the link to go")
    machine.until(lambda: not (files.home(machine.state) / dead.uid).exists(), "the folder to go")
    assert machine.socket(server).exists()


# --- programs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["soft", pytest.param("required", id="enforced", marks=pytest.mark.root)])
def test_a_program_of_another_pod_is_refused(machine: Machine, mode: str) -> None:
    """It knows where the socket is, and nothing that it says counts."""
    owner, other = share(machine, 500, enforcement=mode), share(machine, 250, enforcement=mode)
    thief = machine.start_program(
        other, [str(machine.built / "client"), "dlsym", *HOG], JUPYTER_GPU_GATE=str(machine.socket(owner).parent)
    )
    machine.until(lambda: f"process {thief.pid}" in machine.log(), "the refusal")
    assert machine.sums().launches == 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
        stranger.settimeout(30)
        stranger.connect(str(machine.socket(owner)))
        assert stranger.recv(1) == b""
    assert machine.run(owner, "kernels:10:100", "sync").lines()[-1] == "done"


def test_a_program_that_keeps_the_gpu_loses_the_share(machine: Machine) -> None:
    """It is stopped some times, then ended; the user reads why until the next wish, and the neighbour gets the GPU."""
    bad, good = bad_share(machine, 500), share(machine, 500)
    violator = start_violator(machine, bad)
    program = machine.run(good, *HOG)
    machine.until(lambda: "ShareTakenAway" in machine.conditions(bad), "the revocation")
    assert machine.until(lambda: violator.status, "its end") == -signal.SIGKILL
    view = bad.ask("view")
    assert (view["amounts"]["requested"], view["amounts"]["attached"]) == (0, 0)
    assert "GPU 0" in machine.conditions(bad)["ShareTakenAway"]
    assert bad.ask("request", milli=250)["amounts"]["attached"] == 250
    assert "ShareTakenAway" not in machine.conditions(bad)
    assert machine.run(bad, "kernels:10:100", "sync").lines()[-1] == "done"
    assert not program.ended()
    assert machine.sums().overlaps == 0


def test_only_the_share_that_was_misused_is_taken_away(machine: Machine) -> None:
    """Its other GPUs stay with the server."""
    machine.gpus = 2
    bad = bad_share(machine, 1000, each=500)
    good = machine.server()
    good.ask("request", milli=1000, each=500)
    for gpu in (0, 1):
        machine.served(bad, gpu)
        machine.served(good, gpu)
    start_violator(machine, bad, 1)
    waiting = machine.start_program(
        good, [str(machine.built / "client"), "dlsym", *HOG], CUDA_VISIBLE_DEVICES=machine.uuids[1]
    )
    machine.until(lambda: "ShareTakenAway" in machine.conditions(bad), "the revocation")
    assert [gpu["index"] for gpu in bad.ask("view")["gpus"] if gpu["state"] == "attached"] == [0]
    machine.more(100, gpu=1)
    waiting.send(signal.SIGKILL)


def test_share_that_the_server_itself_holds_open_is_reported(machine: Machine) -> None:
    """The server, whose extension uses CUDA, is not ended: the GPU drains until it is closed."""
    bad, good = bad_share(machine, 500), share(machine, 500)
    path = bad.ask("view")["gpus"][0]["path"]
    assert bad.ask("open", path=path) == ""
    violator = start_violator(machine, bad)
    program = machine.run(good, *HOG)
    machine.until(lambda: "ShareTakenAway" in machine.conditions(bad), "the revocation")
    assert machine.until(lambda: violator.status, "its end") == -signal.SIGKILL
    machine.until(lambda: "HeldByServer" in machine.conditions(bad), "a word about it")
    view = bad.ask("view")
    assert view["phase"] == "Releasing"
    assert [user["pid"] for user in view["gpus"][0]["users"]] == [bad.pid]
    said = machine.conditions(bad)["HeldByServer"]
    assert said.startswith("GPU 0 is given back, but not free: this Jupyter server itself has it open (")
    assert f"process {bad.pid}" in said
    assert "start the server again" in said
    program.send(signal.SIGKILL)
    assert good.ask("request", milli=1000)["amounts"]["attached"] == 500
    time.sleep(1.5)  # longer than between two reads of the records
    assert good.ask("view")["amounts"]["attached"] == 500
    bad.ask("close", path=path)
    machine.until(lambda: good.ask("view")["amounts"]["attached"] == 1000, "the GPU")
    machine.until(lambda: "HeldByServer" not in machine.conditions(bad), "no word about it")


def test_a_revocation_is_known_to_the_next_arbiter(machine: Machine) -> None:
    """It is killed right after it; the server does not know of it yet, as it is stopped."""
    bad, good = bad_share(machine, 500), share(machine, 500)
    start_violator(machine, bad)
    program = machine.run(good, *HOG)
    bad.tell("freeze")
    revocations = files.sockets(machine.state, os.geteuid(), bad.uid) / "revocations.json"
    machine.until(revocations.exists, "the revocation")
    pid = machine.arbiter()
    os.kill(pid, signal.SIGKILL)
    machine.arbiter(but=pid)
    machine.more(300)
    assert not machine.socket(bad).exists()
    os.kill(bad.pid, signal.SIGCONT)
    bad.answer()
    machine.until(lambda: "ShareTakenAway" in machine.conditions(bad), "the revocation to be carried out")
    assert not program.ended()


def test_an_installation_without_a_gate_says_so(machine: Machine) -> None:
    """Shares are counted then, and nothing more; no arbiter is needed."""
    server = machine.actor()
    server.ask("without_gate")
    machine.start(server)
    server.ask("request", milli=500)
    assert "no gate" in machine.conditions(server)["ShareNotEnforced"]
    assert server.ask("environment").keys() == {"JUPYTER_GPU_POD", "JUPYTER_GPU_SIMULATED"}
    with contextlib.suppress(FileNotFoundError):
        assert machine.arbiters() == []
    server.ask("request", milli=1000)
    assert "ShareNotEnforced" not in machine.conditions(server)
