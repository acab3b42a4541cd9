"""The worker's program in a pod: it says its key, accepts one notebook, and lives through what strangers send."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from jupyter_gpu.kernel.blocks import owner
from jupyter_gpu.model.service import Peer
from jupyter_gpu.remote import PYTHON
from jupyter_gpu.remote.connection import Connection
from jupyter_gpu.remote.errors import WorkerLost
from jupyter_gpu.remote.first_process import WorkerAddress, ask
from jupyter_gpu.remote.rules import control
from jupyter_gpu.remote.rules.control import Kill, Killed, Refused, Start, Started
from jupyter_gpu.worker import node, plugin_socket, unreadable
from tests.shares.world import until
from tests.worker.pods import Plugin, WorkerPod, plugin, worker_pod
from tests.worker.strangers import GREETING, KINDS, overheard, received, refused
from tests.worker.test_connection import ran


@pytest.fixture(scope="module")
def known() -> Iterator[Plugin]:
    """A node plugin for all tests of this module."""
    with plugin() as made:
        yield made


@pytest.fixture(scope="module")
def pod(known: Plugin) -> Iterator[WorkerPod]:
    """A worker for all tests of this module."""
    with worker_pod(known) as made:
        yield made


def accepts(address: WorkerAddress) -> bool:
    """Tell whether the first process answers."""
    with contextlib.suppress(WorkerLost):
        return ask(address, Kill("nobody"), patience=20) == Killed("nobody")
    return False


def until_accepted(address: WorkerAddress) -> None:
    until(lambda: accepts(address), "the notebook to be accepted")


def memory(pid: int) -> int:
    """Return the MiB of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 // 2**20


def test_one_notebook_is_accepted_on_fixed_ports(pod: WorkerPod) -> None:
    """Nobody before the scheduler names its key; then this one on all channels, and no other."""
    assert pod.plugin.said[-1].port == pod.port
    early = pod.notebook()
    assert not accepts(early)
    notebook = pod.paired()
    until_accepted(notebook)
    assert not accepts(early)
    kernel = Connection(notebook, "one", "/")
    try:
        assert ran(kernel, "print(6 * 7)") == "42\n"
        kernel.run("data = bytes(20_000_000)")
        assert len(kernel.pull(["data"])[0][0].stream) > 20_000_000
        assert kernel._bulk.socket is not None
        assert kernel._bulk.socket.getpeername()[1] == pod.port + 1 + control.CHANNELS * control.MAX_KERNELS
        started = ask(notebook, Start("one", "/", PYTHON, owner()))
        assert isinstance(started, Started)
        ports = (started.shell, started.iopub, started.stdin, started.control)
        assert all(0 < port - pod.port <= control.CHANNELS * control.MAX_KERNELS for port in ports)
        for port, kind in zip(ports, KINDS, strict=True):
            assert refused(early, port, kind)
    finally:
        kernel.kill()
        kernel.close()


def test_new_key_replaces_the_old_one(pod: WorkerPod) -> None:
    """A server that started anew: what is open goes on, the namespace stays, and the old key opens nothing more."""
    old = pod.paired()
    until_accepted(old)
    before = Connection(old, "two", "/")
    ran(before, "kept = 7")
    new = pod.paired()
    until_accepted(new)
    assert not accepts(old)
    assert ran(before, "print(kept)") == "7\n"
    started = ask(new, Start("two", "/", PYTHON, owner()))
    assert isinstance(started, Started)
    until(lambda: refused(old, started.shell, zmq.DEALER), "the kernel to refuse the old key")
    after = Connection(new, "two", "/")
    try:
        assert ran(after, "print(kept + 1)") == "8\n"
        pod.plugin.annotate(service="{}")  # cannot be read
        until(lambda: not accepts(new), "nobody to be accepted")
        until(lambda: refused(new, started.shell, zmq.DEALER), "the kernel to accept nobody")
        assert ran(after, "print('on')") == "on\n"
    finally:
        pod.plugin.pair(new.public)
        until_accepted(new)
        after.kill()
        before.close()
        after.close()


def test_node_plugin_may_be_away(pod: WorkerPod) -> None:
    """The notebook is accepted meanwhile; the next plugin is told the key again, also if its record was lost."""
    notebook = pod.paired()
    until_accepted(notebook)
    pod.plugin.stop()
    assert accepts(notebook)
    own = Peer(notebook.key, pod.port)
    pod.plugin.said.clear()
    pod.plugin.annotations.pop("jupyter-gpu.io/attached")
    pod.plugin.takes = False
    pod.plugin.start(known=False)
    until(lambda: pod.plugin.said[-1:] == [own], "the key to be said again")
    assert accepts(notebook)
    pod.plugin.takes = True
    pod.plugin.annotate()
    until(lambda: "jupyter-gpu.io/attached" in pod.plugin.annotations, "the key to be recorded")
    assert accepts(notebook)
    assert not accepts(pod.notebook())
    new = pod.paired()
    until_accepted(new)


def test_key_is_said_until_it_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin that does not take it is asked again; one that takes it and records another, too."""
    monkeypatch.setattr(node, "PATIENCE", 0.2)
    with plugin(takes=False) as slow:
        reading, writing = os.pipe()
        own = Peer("rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7", 1)
        threading.Thread(target=node.NodePlugin(slow.path, own, writing).run, daemon=True).start()
        until(lambda: len(slow.said) >= 2, "it to be said twice")
        slow.takes = True
        until(lambda: "peer" in slow.annotations.get("jupyter-gpu.io/attached", ""), "it to be recorded")
        said = len(slow.said)
        slow.annotate(attached="{}")
        until(lambda: len(slow.said) > said, "it to be said again")
        os.close(reading)


def test_replayed_handshake_opens_nothing(pod: WorkerPod) -> None:
    """All bytes of a notebook, sent again by somebody who listened: no answer to what is inside."""
    notebook = pod.paired()
    until_accepted(notebook)
    with overheard(pod.port) as (port, sent):
        through = WorkerAddress("x", "127.0.0.1", port, notebook.key, notebook.public, notebook.secret)
        assert accepts(through)
    assert len(b"".join(sent)) > 300
    with socket.create_connection(("127.0.0.1", pod.port), 20) as again:
        again.sendall(b"".join(sent))
        answer = received(again)
    assert b"killed" not in answer
    assert len(answer) < 64 + 200  # greeting, and the worker's welcome
    assert accepts(notebook)


def test_silent_strangers_are_dropped(pod: WorkerPod) -> None:
    """Five seconds after they came, whether they said nothing or half of a handshake."""
    begun = time.monotonic()
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(("127.0.0.1", pod.port), 20)) for _ in range(3)]
        for connection, said in zip(silent, (b"", GREETING[:20], GREETING[:64]), strict=True):
            connection.sendall(said)
        for connection in silent:
            assert len(received(connection)) <= 64
    assert time.monotonic() - begun < 20


def test_floods_cost_bounded_memory_and_time(pod: WorkerPod) -> None:
    """200 MB of garbage on many connections, and 1,000,000 odd words by the notebook: others are answered meanwhile."""
    notebook = pod.paired()
    until_accepted(notebook)
    before = memory(pod.process.pid)
    chance = random.Random(1)
    block = chance.randbytes(2**20)
    sent = 0
    for number in range(100):
        with socket.create_connection(("127.0.0.1", pod.port), 20) as peer, contextlib.suppress(OSError):
            peer.sendall(GREETING if number % 2 else b"")
            for _ in range(2):
                peer.sendall(block)
                sent += len(block)
    with zmq.Context() as context, notebook.unconnected(context, zmq.DEALER) as flood:
        flood.sndhwm = 1000  # all but these have gone there
        notebook.connect(flood, pod.port)
        for number in range(1_000_000):
            flood.send(b'{"start": 1}')
            if number % 200_000 == 100_000:
                assert accepts(notebook)
        for _ in range(unreadable.PATIENCE):
            assert flood.poll(20_000)
            assert control.read(flood.recv(), Refused).why
        flood.send(Kill("nobody").dump())
        assert not flood.poll(200)
    assert accepts(notebook)
    assert memory(pod.process.pid) - before < 40


def test_signal_to_any_thread_ends_it() -> None:
    """One that comes just before the main thread waits leaves it waiting, too; it is woken all the same."""
    with plugin() as own, worker_pod(own) as short:
        until_accepted(short.paired())
        first = short.process.pid
        others = [int(task.name) for task in Path(f"/proc/{first}/task").iterdir() if heeds_signals(task)]
        assert ctypes.CDLL(None).tgkill(first, max(others), signal.SIGTERM) == 0
        assert short.process.wait(60) == 0


def heeds_signals(task: Path) -> bool:
    """Tell whether a thread blocks no signals."""
    return "\nSigBlk:\t0000000000000000\n" in (task / "status").read_text()


def test_connections_are_bounded() -> None:
    """At the limit of descriptors nobody new is let in, and nothing breaks; afterwards all is as before."""
    with plugin() as own, worker_pod(own, files=128) as full:
        notebook = full.paired()
        until_accepted(notebook)
        kernel = Connection(notebook, "k", "/")
        before = memory(full.process.pid)
        with contextlib.ExitStack() as stack:
            for _ in range(300):
                stack.enter_context(socket.create_connection(("127.0.0.1", full.port), 20))
            until(lambda: len([*Path(f"/proc/{full.process.pid}/fd").iterdir()]) >= 127, "the limit to be reached")
            assert ran(kernel, "print('on')") == "on\n"
            assert memory(full.process.pid) - before < 20
        until_accepted(notebook)
        other = Connection(notebook, "other", "/")
        assert ran(other, "print('on')") == "on\n"
        kernel.close()
        other.close()


def test_kernel_without_a_client(tmp_path: Path) -> None:
    """It is interrupted, and is there for the same notebook, which may come earlier; later it ends."""
    with plugin() as own, worker_pod(own, alone=(1, 5)) as pod:
        notebook = pod.paired()
        until_accepted(notebook)
        kernel = Connection(notebook, "k", "/")
        pid = int(ran(kernel, "import os, time; print(os.getpid())"))
        for turn in ("early", "late"):
            told = tmp_path / f"{turn}-told"
            code = f"try: time.sleep(60)\nexcept KeyboardInterrupt: open({str(told)!r}, 'w').close()"
            left_alone(kernel, code, tmp_path / turn)
            if turn == "late":
                until(told.exists, "the kernel to be interrupted")
            again = Connection(notebook, "k", "/", kernel)
            assert again.continues(kernel)
            assert ran(again, f"print(os.path.exists({str(told)!r}))") == "True\n"
            kernel = again
        kernel.close()
        until(lambda: not Path(f"/proc/{pid}").exists(), "the kernel to end")
        new = Connection(notebook, "k", "/", kernel)
        assert not new.continues(kernel)
        new.close()


def test_strangers_keep_no_kernel() -> None:
    """One without a client ends in time, whoever connects to it again and again."""
    with plugin() as own, worker_pod(own, alone=(1, 3)) as pod, contextlib.ExitStack() as stack:
        notebook = pod.paired()
        until_accepted(notebook)
        kernel = Connection(notebook, "k", "/")
        pid = int(ran(kernel, "import os; print(os.getpid())"))
        started = ask(notebook, Start("k", "/", PYTHON, owner()))
        assert isinstance(started, Started)
        kernel.close()
        for _ in range(120):  # without an end they would keep it for a minute
            with contextlib.suppress(ConnectionRefusedError):
                stack.enter_context(socket.create_connection(("127.0.0.1", started.control), 20))
            time.sleep(0.5)
            if not Path(f"/proc/{pid}").exists():
                break
        assert not Path(f"/proc/{pid}").exists()


def left_alone(kernel: Connection, code: str, mark: Path) -> None:
    """Lose the connection while code runs."""
    content = {"code": f"open({str(mark)!r}, 'w').close()\n{code}", "silent": False, "stop_on_error": False}
    message = kernel._session.msg("execute_request", content)
    kernel._session.send(kernel._shell, message)
    kernel.latest = message["header"]["msg_id"]
    until(mark.exists, "the code to run")
    kernel.close()


@pytest.mark.root
def test_first_process_of_a_container_buries_the_orphans() -> None:
    """Else each would take one of the processes that a pod may have."""
    before = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    with plugin() as own, worker_pod(own, before=before) as first:
        notebook = first.paired()
        until_accepted(notebook)
        kernel = Connection(notebook, "k", "/")
        orphan = "import subprocess; print(subprocess.getoutput('setsid sleep 0.1 >&2 & echo $!'))"
        pid = int(ran(kernel, orphan))
        there = f"import os; print(os.path.exists('/proc/{pid}'))"
        until(lambda: ran(kernel, there) == "False\n", "no zombie to be left")
        kernel.close()


def test_without_a_slot_the_program_ends_with_the_reason() -> None:
    """Not in silence."""
    environment = {key: value for key, value in os.environ.items() if key != plugin_socket.VARIABLE}
    done = subprocess.run(
        [sys.executable, "-m", "jupyter_gpu.worker"], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "is not set" in done.stderr
