"""The kernel that stands by: real processes, taken once, replaced, and gone with the worker."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from jupyter_gpu.kernel.blocks import owner
from jupyter_gpu.model import strict
from jupyter_gpu.remote import PYTHON
from jupyter_gpu.remote.connection import Connection
from jupyter_gpu.remote.errors import WorkerLost, WorkerRefused
from jupyter_gpu.remote.first_process import ask
from jupyter_gpu.remote.local_worker import LocalWorker
from jupyter_gpu.remote.rules.control import Look, Running, Start, Started, Tell, Told
from jupyter_gpu.worker import plugin_socket, standby
from tests.shares.world import until
from tests.worker.pods import plugin, worker_pod
from tests.worker.strangers import KINDS, refused
from tests.worker.test_connection import ran
from tests.worker.test_pod import accepts, until_accepted
from tests.worker.test_processes import awaited, gone

WHO = "import os; print(os.getpid(), os.getcwd(), _dh)"
NAMES = "print(sorted(name for name in globals() if not name.startswith('_')))"


def kernels(first: int) -> list[int]:
    """Return the pids of all kernels, also of the one that stands by."""
    tasks = Path(f"/proc/{first}/task").glob("*/children")
    return [int(pid) for one in tasks for pid in one.read_text().split()]


def standing_by(first: int, known: set[int]) -> int:
    """Wait for a kernel that nobody has, beside those that are known; return its pid."""
    until(lambda: bool(set(kernels(first)) - known), "a kernel to stand by")
    (pid,) = set(kernels(first)) - known
    return pid


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalWorker]:
    """Start a worker with a kernel that stands by."""
    monkeypatch.setenv(standby.VARIABLE, "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.delenv("PYTEST_CURRENT_TEST", raising=False)
    made = LocalWorker()
    yield made
    made.close()


def test_it_becomes_the_kernel_of_one_notebook_and_another_follows(worker: LocalWorker, tmp_path: Path) -> None:
    """In that one's folder, with its owner, with the names of a new kernel; nothing is left for the next one."""
    first = standing_by(worker.pid, set())
    assert ask(worker.address, Look()) == Running(())
    one = Connection(worker.address, "one", str(tmp_path))
    assert ran(one, WHO) == f"{first} {tmp_path} [{str(tmp_path)!r}]\n"
    assert [known.owner for known in ask(worker.address, Look()).kernels] == [owner()]  # type: ignore[union-attr]
    clean = ran(one, NAMES)
    ran(one, "secret = os.environ['SECRET'] = 'x'")
    again = Connection(worker.address, "one", "/")
    assert ran(again, "print(secret, os.getpid())") == f"x {first}\n"
    again.kill()
    second = standing_by(worker.pid, {first})
    two = Connection(worker.address, "two", str(tmp_path / "missing"))
    assert ran(two, WHO).split()[0] == str(second)
    assert ran(two, NAMES) == clean
    assert ran(two, "print(os.environ.get('SECRET'))") == "None\n"
    for connection in (one, again, two):
        connection.close()


def test_two_at_once_never_share_one(worker: LocalWorker) -> None:
    """The first has the one that stands by; the other has a new one."""
    standing_by(worker.pid, set())
    found: list[int] = []

    def start(name: str) -> None:
        connection = Connection(worker.address, name, "/")
        found.append(int(ran(connection, "import os; print(os.getpid())")))
        connection.close()

    threads = [threading.Thread(target=start, args=(f"k{number}",)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 2


def test_killed_one_is_replaced(worker: LocalWorker) -> None:
    """One that is killed when it is loading, or is taken at once, harms nobody."""
    killed = standing_by(worker.pid, set())
    os.kill(killed, signal.SIGKILL)
    pid = standing_by(worker.pid, {killed})
    os.kill(pid, signal.SIGSTOP)
    asked = threading.Thread(target=lambda: told.append(ask(worker.address, Start("k", "/", PYTHON, owner()))))
    told: list[object] = []
    asked.start()
    os.kill(pid, signal.SIGCONT)
    asked.join()
    assert isinstance(told[0], Started)
    connection = Connection(worker.address, "k", "/")
    assert ran(connection, "import os; print(os.getpid())") == f"{pid}\n"
    connection.close()


class Taking:
    """A notebook that asks for a kernel while the one that stands by, which it gets, is stopped and cannot answer."""

    def __init__(self, worker: LocalWorker, folder: Path) -> None:
        self.pid = standing_by(worker.pid, set())
        command = Path(f"/proc/{self.pid}/cmdline")
        until(lambda: b"kernel_process" in command.read_bytes(), "it to run: whoever starts it waits for that")
        os.kill(self.pid, signal.SIGSTOP)
        self.answer: object = None
        self._thread = threading.Thread(target=self._ask, args=(worker, folder))
        self._thread.start()
        until(lambda: ask(worker.address, Look()) != Running(()), "it to be taken")

    def _ask(self, worker: LocalWorker, folder: Path) -> None:
        try:
            self.answer = ask(worker.address, Start("k", str(folder), PYTHON, owner()))
        except (WorkerLost, WorkerRefused) as error:
            self.answer = error

    def answered(self) -> object:
        """Return the answer, or the error."""
        self._thread.join()
        return self.answer


def test_another_one_answers_for_one_that_is_killed_when_it_is_taken(worker: LocalWorker, tmp_path: Path) -> None:
    """It has run nothing, so the notebook does not learn of it."""
    taking = Taking(worker, tmp_path)
    os.kill(taking.pid, signal.SIGKILL)
    assert isinstance(taking.answered(), Started)
    assert ask(worker.address, Tell("k")) == Told("k", True, False)
    connection = Connection(worker.address, "k", "/")
    pid, *where = ran(connection, WHO).split()
    assert int(pid) != taking.pid
    assert where == [str(tmp_path), f"[{str(tmp_path)!r}]"]
    connection.close()


@pytest.fixture
def adopting() -> Iterator[None]:
    """Have this process adopt orphans, as a user's systemd does (prctl(2), PR_SET_CHILD_SUBREAPER)."""
    libc = ctypes.CDLL(None)
    assert libc.prctl(36, 1, 0, 0, 0) == 0
    yield
    assert libc.prctl(36, 0, 0, 0, 0) == 0


@pytest.mark.usefixtures("adopting")
def test_none_is_left_if_the_first_process_is_killed_when_it_is_taken(worker: LocalWorker, tmp_path: Path) -> None:
    """Also where it had not loaded yet, and so cannot know who was its parent; the notebook's error is a plain one."""
    taking = Taking(worker, tmp_path)
    os.kill(worker.pid, signal.SIGKILL)
    os.kill(taking.pid, signal.SIGCONT)
    assert isinstance(taking.answered(), WorkerLost)
    assert awaited(lambda: gone(taking.pid))
    os.waitpid(taking.pid, 0)  # it was adopted


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_it_ends_with_the_worker(worker: LocalWorker, end: signal.Signals) -> None:
    """Also while it loads, and when the first process was killed."""
    pid = standing_by(worker.pid, set())
    os.kill(worker.pid, end)
    assert awaited(lambda: gone(pid))


def test_pod_keys_change_while_it_stands_by(tmp_path: Path) -> None:
    """It accepts the key of now alone, on each channel; and it does not end for want of a client."""
    with plugin() as own, worker_pod(own, alone=(1, 1), standby=True) as pod:
        pid = standing_by(pod.process.pid, set())
        old = pod.paired()
        until_accepted(old)
        until(lambda: listens(pid, pod.port + 1), "its sockets to be bound")
        assert not refused(old, pod.port + 1, zmq.DEALER)
        new = pod.paired()
        until_accepted(new)
        for port, kind in zip(range(pod.port + 1, pod.port + 5), KINDS, strict=True):
            until(lambda port=port, kind=kind: refused(old, port, kind), "the old key to be refused")  # type: ignore[misc]
        assert not accepts(old)
        assert kernels(pod.process.pid) == [pid]
        connection = Connection(new, "k", str(tmp_path))
        assert ran(connection, WHO).split()[0] == str(pid)
        connection.close()
        until(lambda: gone(pid), "it to end without a client")


def test_strangers_do_not_stop_it(tmp_path: Path) -> None:
    """Thousands of connections to its sockets before anybody needs it: it still answers, and is taken as ever."""
    with plugin() as own, worker_pod(own, standby=True) as pod:
        pid = standing_by(pod.process.pid, set())
        notebook = pod.paired()
        until_accepted(notebook)
        until(lambda: listens(pid, pod.port + 2), "the last of its sockets to be bound")
        for port in range(pod.port + 1, pod.port + 5):
            for _ in range(1500):
                with socket.create_connection(("127.0.0.1", port), 60) as stranger, contextlib.suppress(OSError):
                    stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
        for port, kind in zip(range(pod.port + 1, pod.port + 5), KINDS, strict=True):
            assert refused(pod.notebook(), port, kind)
        connection = Connection(notebook, "k", str(tmp_path))
        assert ran(connection, WHO).split()[0] == str(pid)
        connection.close()


def listens(pid: int, port: int) -> bool:
    """Tell whether something in the network of a process listens at a port."""
    return f":{port:04X} 00000000:0000 0A" in Path(f"/proc/{pid}/net/tcp").read_text()


def test_switch() -> None:
    """On in pods, unless it is said; other words are refused, and the program says why."""
    assert standby.wanted({})
    assert standby.wanted({standby.VARIABLE: ""})
    assert standby.wanted({standby.VARIABLE: "1"})
    assert not standby.wanted({standby.VARIABLE: "0"})
    with pytest.raises(strict.FieldError, match="must be 0 or 1"):
        standby.wanted({standby.VARIABLE: "yes"})
    environment = {**os.environ, plugin_socket.VARIABLE: "/x", standby.VARIABLE: "yes"}
    done = subprocess.run(
        [sys.executable, "-m", "jupyter_gpu.worker"], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "must be 0 or 1" in done.stderr
