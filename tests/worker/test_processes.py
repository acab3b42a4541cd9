"""Processes of a worker: how they start, and that none of them outlives the notebook."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zmq

from jupyter_gpu.kernel.blocks import owner
from jupyter_gpu.remote import PYTHON
from jupyter_gpu.remote.connection import Connection
from jupyter_gpu.remote.errors import WorkerLost, WorkerRefused
from jupyter_gpu.remote.first_process import CONNECT, ask, had_no_memory, questions
from jupyter_gpu.remote.local_worker import LocalWorker
from jupyter_gpu.remote.rules import control
from jupyter_gpu.remote.rules.control import Kill, Killed, Look, Refused, Running, Start
from tests.worker.test_connection import ran


def awaited(condition: Callable[[], bool], seconds: float = 30) -> bool:
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def gone(pid: int) -> bool:
    """Tell whether a process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_end_of_the_worker_ends_all_it_started() -> None:
    """Its kernels, and what cells started."""
    worker = LocalWorker()
    kernel = Connection(worker.address, "k", "/")
    pids = [worker.pid]
    pids.append(int(ran(kernel, "import os; print(os.getpid())")))
    pids.append(int(ran(kernel, "import subprocess; p = subprocess.Popen(['sleep', '600']); print(p.pid)")))
    kernel.close()
    worker.close()
    assert all(awaited(lambda pid=pid: gone(pid)) for pid in pids)  # type: ignore[misc]
    with pytest.raises(WorkerLost):
        ask(worker.address, Kill("k"), patience=1)


def test_worker_ends_with_a_notebook_that_is_killed(tmp_path: Path) -> None:
    """By the end of the pipe; nothing that the notebook would have to do is needed."""
    code = (
        "import time\nfrom jupyter_gpu.remote.local_worker import LocalWorker\n"
        "from jupyter_gpu.remote.connection import Connection\n"
        "worker = LocalWorker(); kernel = Connection(worker.address, 'k', '/')\n"
        "kernel.run(\"import os; open('pid', 'w').write(str(os.getpid()))\"\n".replace("'pid'", repr(f"{tmp_path}/pid"))
        + ")\nprint(worker.pid, flush=True)\ntime.sleep(600)"
    )
    notebook = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env={**os.environ, "IPYTHONDIR": str(tmp_path)}
    )
    assert notebook.stdout is not None
    with notebook.stdout as out:
        first = int(out.readline())
    kernel = int((tmp_path / "pid").read_text())
    assert not gone(first)
    assert not gone(kernel)
    notebook.kill()
    notebook.wait()
    assert awaited(lambda: gone(first) and gone(kernel))


def test_kernels_end_with_a_first_process_that_is_killed() -> None:
    """And what cells started. A worker that cannot tell any more how a kernel ended is not waited for."""
    worker = LocalWorker()
    kernel = Connection(worker.address, "k", "/")
    pid = int(ran(kernel, "import os; print(os.getpid())"))
    child = int(ran(kernel, "import subprocess; p = subprocess.Popen(['sleep', '600']); print(p.pid)"))
    os.kill(worker.pid, signal.SIGKILL)
    assert awaited(lambda: gone(pid) and gone(child))
    begun = time.monotonic()
    assert not had_no_memory(worker.address, "k", patience=60)
    assert time.monotonic() - begun < CONNECT
    kernel.close()
    worker.close()


def test_kill_ends_a_kernel_and_its_children(worker: LocalWorker) -> None:
    """And another one of the same name begins anew. A kernel that is not there is killed, too."""
    kernel = Connection(worker.address, "victim", "/")
    child = int(ran(kernel, "import subprocess; p = subprocess.Popen(['sleep', '600']); print(p.pid)"))
    kernel.kill()
    assert awaited(lambda: gone(child))
    kernel.close()
    kernel.kill()
    again = Connection(worker.address, "victim", "/")
    assert ran(again, "print('p' in globals())") == "False\n"
    again.kill()
    again.close()


def test_another_python_is_refused(worker: LocalWorker) -> None:
    """With the sentence of the rule."""
    with pytest.raises(WorkerRefused, match=r"has Python .* and this notebook 2\.7"):
        ask(worker.address, Start("k", "/", "2.7", owner()))


def test_kernel_that_does_not_start_has_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last line that it printed."""
    (tmp_path / "zmq_is_there.py").write_text("")
    (tmp_path / "ipykernel.py").write_text("raise ImportError('no such luck')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    worker = LocalWorker()
    with pytest.raises(WorkerRefused, match="before it was ready: ImportError: no such luck"):
        Connection(worker.address, "k", "/")
    worker.close()


def test_worker_that_does_not_start_has_a_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its output is nowhere else."""
    (tmp_path / "zmq.py").write_text("raise SystemExit(3)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(WorkerLost, match="status 3"):
        LocalWorker()


def test_files_of_the_notebook_do_not_hide_modules(worker: LocalWorker, tmp_path: Path) -> None:
    """A file in its folder that has the name of a module of ours or of Python is found by cells only."""
    (tmp_path / "ipykernel.py").write_text("raise ImportError('hidden')")
    (tmp_path / "mine.py").write_text("value = 4")
    kernel = Connection(worker.address, "folder", str(tmp_path))
    assert ran(kernel, "import mine; print(mine.value)") == "4\n"
    kernel.kill()
    kernel.close()


def test_folder_that_is_not_there(worker: LocalWorker, tmp_path: Path) -> None:
    """The kernel starts all the same."""
    kernel = Connection(worker.address, "lost", str(tmp_path / "none"))
    assert ran(kernel, "print(1)") == "1\n"
    kernel.kill()
    kernel.close()


def test_worker_that_is_silent_counts_as_lost(worker: LocalWorker) -> None:
    """A stopped first process does not answer; when it goes on, it does."""
    os.kill(worker.pid, signal.SIGSTOP)
    try:
        with pytest.raises(WorkerLost, match="does not answer"):
            ask(worker.address, Kill("nobody"), patience=0.5)
    finally:
        os.kill(worker.pid, signal.SIGCONT)
    assert ask(worker.address, Kill("nobody")) == Killed("nobody")


def running(worker: LocalWorker) -> set[str]:
    """Return the kernels of the worker, also those that still start."""
    answer = ask(worker.address, Look())
    assert isinstance(answer, Running)
    return {each.kernel for each in answer.kernels}


def begin(worker: LocalWorker, kernel: str) -> None:
    """Ask for a kernel, and do not wait until it runs. Raises `WorkerRefused`."""
    with questions(worker.address) as asking:
        with contextlib.suppress(WorkerLost):
            asking.ask(Start(kernel, "/", PYTHON, owner()), patience=0.1)
        assert awaited(lambda: kernel in running(worker))


def test_number_of_kernels_has_a_limit(worker: LocalWorker) -> None:
    """The ninth is refused at once, also while the others still start; after one was killed, it is not."""
    for number in range(8):
        begin(worker, f"k{number}")
    with pytest.raises(WorkerRefused, match="8 kernels"):
        ask(worker.address, Start("k8", "/", PYTHON, owner()))
    ask(worker.address, Kill("k0"))
    begin(worker, "k8")
    for number in range(9):
        ask(worker.address, Kill(f"k{number}"))


def test_garbage_is_dropped(worker: LocalWorker) -> None:
    """Bytes that are no ZeroMQ, half a handshake, and words that are none: the next question is answered."""
    chance = random.Random(5)
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x01CURVE" + bytes(47)
    for number in range(300):
        with socket.create_connection((worker.address.address, worker.address.port), 20) as peer:
            data = chance.randbytes(chance.randrange(400))
            peer.sendall(greeting[: chance.randrange(65)] + data if number % 2 else data)
    with zmq.Context() as context, worker.address.socket(context, zmq.DEALER, worker.address.port) as known:
        for data in (b"", b"{}", b'{"start": 1}', b"\xff", b"[" * 10_000):
            known.send(data)
            assert known.poll(20_000)
            assert control.read(known.recv(), Refused).why
        known.send_multipart([b"{}", b"{}"])
        assert known.poll(20_000)
        assert control.read(known.recv(), Refused).why
    assert ask(worker.address, Kill("nobody")) == Killed("nobody")


def test_handshake_is_seen_however_fast_it_is(worker: LocalWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection is observed before it is made; else this process would wait for what has happened."""
    made = zmq.Socket.get_monitor_socket

    def late(*arguments: Any) -> Any:
        time.sleep(0.05)
        return made(*arguments)

    monkeypatch.setattr(zmq.Socket, "get_monitor_socket", late)
    assert ask(worker.address, Kill("nobody"), patience=20) == Killed("nobody")
