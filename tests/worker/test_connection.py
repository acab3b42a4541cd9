"""A notebook's connection to a kernel in a worker: requests, values, interrupts, ends."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zmq
from ipykernel.kernelapp import IPKernelApp

from jupyter_gpu.kernel.blocks import owner
from jupyter_gpu.remote import PYTHON, codec, versions
from jupyter_gpu.remote.connection import Connection, Listener, Message
from jupyter_gpu.remote.errors import WorkerLost, WorkerRefused
from jupyter_gpu.remote.first_process import WorkerAddress, ask, look
from jupyter_gpu.remote.local_worker import LocalWorker
from jupyter_gpu.remote.rules.control import Check, Checked, Kill, Start, Started
from jupyter_gpu.worker.kernel_app import GpuKernelApp
from jupyter_gpu.worker.messages import GpuKernel
from tests.remote.spaces import space
from tests.shares.world import until
from tests.worker.strangers import refused


class Heard:
    """The output of a request. ``mark``: words, and a file that is made as soon as they are heard."""

    def __init__(self, mark: tuple[str, Path] | None = None) -> None:
        self._mark = mark
        self.text, self.said = "", ""
        self.kinds: list[str] = []

    def listener(self, answer: Callable[[str, bool], str] | None = None) -> Listener:
        """Return the listener for it."""
        return Listener(self._hear, answer, self._say)

    def _hear(self, message: Message) -> None:
        self.kinds.append(message["header"]["msg_type"])
        if message["header"]["msg_type"] == "stream":
            self.text += message["content"]["text"]
            if self._mark and self._mark[0] in self.text:
                self._mark[1].touch()

    def _say(self, text: str) -> None:
        self.said += text


def waits_for(path: Path) -> str:
    """Return code that waits for a file."""
    return f"import os, time\nwhile not os.path.exists({str(path)!r}): time.sleep(.01)"


def ran(connection: Connection, code: str, **options: Any) -> str:
    """Run code that must not fail; return what it printed."""
    heard = Heard()
    reply = connection.run(code, heard.listener(**options))["content"]
    assert reply["status"] == "ok", reply
    return heard.text


def interrupt_when(path: Path, connection: Connection, times: int = 1) -> threading.Thread:
    """Send SIGINT to this process as soon as the cell has made a file; and again each time when that was counted."""

    def wait() -> None:
        until(path.exists, "the cell to run")
        for number in range(times):
            os.kill(os.getpid(), signal.SIGINT)
            until(lambda number=number: connection._interrupts.count > number, "an interrupt to be counted")  # type: ignore[misc]

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_cell_runs_in_the_worker(kept: Connection) -> None:
    """In a process of its own, in the folder of the notebook, in a namespace that stays."""
    assert ran(kept, "import os; pid = os.getpid(); print(pid)").strip() != str(os.getpid())
    assert ran(kept, "print(pid == os.getpid(), os.getcwd())").startswith("True /")
    assert ran(kept, "import sys; print(sys.version_info[:2])").strip() == str(sys.version_info[:2])


def test_all_output_arrives_before_the_reply(kept: Connection) -> None:
    """No line of many is lost."""
    assert ran(kept, "for n in range(200_000): print(n)") == "".join(f"{n}\n" for n in range(200_000))


def test_text_is_sent_soon(kept: Connection) -> None:
    """Ipykernel's own pause of 200 ms would be most of the time of a short cell."""
    assert ran(kept, "import sys; print(sys.stdout.flush_interval, sys.stderr.flush_interval)") == "0.02 0.02\n"


def test_output_of_child_processes_arrives(kept: Connection, tmp_path: Path) -> None:
    """They write to the descriptor itself; it arrives while the cell runs."""
    heard = Heard(("below", tmp_path / "heard"))
    code = f"import subprocess; _ = subprocess.run(['echo', 'below'])\n{waits_for(tmp_path / 'heard')}"
    assert kept.run(code, heard.listener())["content"]["status"] == "ok"


def test_error_is_in_the_reply(kept: Connection) -> None:
    """With its traceback, and the next cell runs."""
    reply = kept.run("1 / 0")["content"]
    assert (reply["status"], reply["ename"]) == ("error", "ZeroDivisionError")
    assert "ZeroDivisionError" in "".join(reply["traceback"])
    assert ran(kept, "print('on')") == "on\n"


def test_top_level_await(kept: Connection) -> None:
    """As in a notebook."""
    assert ran(kept, "import asyncio\nawait asyncio.sleep(0)\nprint('awaited')") == "awaited\n"


def test_input_is_asked_here(kept: Connection) -> None:
    """And refused with a sentence where nobody can be asked."""
    asked: list[tuple[str, bool]] = []

    def answer(prompt: str, password: bool) -> str:
        asked.append((prompt, password))
        return "Ann"

    assert ran(kept, "print(input('name? ') + '!')", answer=answer) == "Ann!\n"
    assert ran(kept, "import getpass; print(getpass.getpass('word? '))", answer=answer) == "Ann\n"
    assert asked == [("name? ", False), ("word? ", True)]
    assert kept.run("input()")["content"]["ename"] == "StdinNotImplementedError"


def test_values_there_and_back(kept: Connection) -> None:
    """Arrays can be written there, functions use the worker's globals, failures have reasons."""
    here = space("SCALE = 10\ndef step(x): return x * SCALE", data=bytearray(10**6))
    chunks = codec.chunks(here, found := codec.measure(here, {"step", "data"}), found.pickled)
    assert kept.push(chunks) == {}
    assert ran(kept, "SCALE = 20; data[0] = step(1); lock = __import__('threading').Lock(); print(len(data))") == (
        "1000000\n"
    )
    chunks, failed, large = kept.pull(["data", "SCALE", "lock", "nothing"])
    back = space()
    assert codec.load(back, chunks) == {}
    assert (back["data"][0], back["SCALE"]) == (20, 20)
    assert list(failed) == ["lock"]
    assert large == []
    assert kept.pull(["data"], limit=1000)[2] == ["data"]


def test_value_that_cannot_be_loaded_has_a_reason(kept: Connection) -> None:
    """The request does not fail for it."""
    here = space("def boom(): raise ValueError('there')\nclass A:\n  def __reduce__(self): return boom, ()\na = A()")
    chunks = codec.chunks(here, found := codec.measure(here, {"a"}), found.pickled)
    assert kept.push(chunks)["a"] == "ValueError: there"


def test_malformed_request_is_refused(kept: Connection) -> None:
    """With the error, and the kernel lives."""
    reply = kept.request("gpu_push", {"chunks": [{"names": ["a"], "buffers": 3}]})
    assert (reply["content"]["status"], reply["content"]["ename"]) == ("error", "ValueError")
    with pytest.raises(WorkerRefused, match="TypeError"):
        kept.pull([["a"]])  # type: ignore[list-item]
    assert ran(kept, "print('on')") == "on\n"


@pytest.mark.parametrize("loop", ["while True: pass", "while True: time.sleep(60)", "await asyncio.sleep(60)"])
def test_interrupt_ends_a_cell(kept: Connection, tmp_path: Path, loop: str) -> None:
    """In a loop, in a call that sleeps, in one that awaits; the namespace stays."""
    mark = tmp_path / "runs"
    thread = interrupt_when(mark, kept)
    began = time.monotonic()
    code = f"import asyncio, time, pathlib; kept = 5; pathlib.Path({str(mark)!r}).touch()\n{loop}"
    assert kept.run(code)["content"]["ename"] in ("KeyboardInterrupt", "CancelledError")
    assert time.monotonic() - began < 20
    thread.join()
    assert ran(kept, "print(kept)") == "5\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_interrupt_of_a_thread(kept: Connection) -> None:
    """A request that another thread made is interrupted by a call, before it begins as well."""
    codes = ["while True: pass", "import time; time.sleep(60)"]
    for code in codes:
        threading.Timer(0.3, kept.interrupt).start()
        assert kept.run(code)["content"]["ename"] == "KeyboardInterrupt"


def test_hundreds_of_interrupts(kept: Connection) -> None:
    """Each is answered, wherever it arrives: before the cell, in it, after it. None ends another cell, none hangs."""
    hit = 0
    for number in range(250):
        timer = threading.Timer(number % 20 / 1000, kept.interrupt)
        timer.start()
        reply = kept.run("for _ in range(100_000): pass")["content"]
        timer.join()
        assert reply["status"] == "ok" or reply["ename"] == "KeyboardInterrupt", reply
        hit += reply["status"] == "error"
        if number % 50 == 0:
            assert ran(kept, "print('on')") == "on\n"
    assert 0 < hit < 250


def test_third_interrupt_ends_the_kernel(connection: Connection, tmp_path: Path) -> None:
    """Code may ignore two; the second says so."""
    mark, heard = tmp_path / "runs", Heard()
    thread = interrupt_when(mark, connection, times=3)
    loop = "while True:\n  try:\n    mark.touch()\n    while True: pass\n  except KeyboardInterrupt: pass"
    code = f"import pathlib; mark = pathlib.Path({str(mark)!r})\n{loop}"
    with pytest.raises(WorkerLost, match="has ended"):
        connection.run(code, heard.listener())
    thread.join()
    assert "Interrupt once more" in heard.said
    with pytest.raises(WorkerLost, match="connection"):
        connection.run("1")


def test_kernel_killed_in_a_cell(connection: Connection, tmp_path: Path) -> None:
    """The cell fails at once, with what it printed until then; the next kernel is a new one."""
    heard = Heard(("last", tmp_path / "heard"))
    code = (
        f"import os, sys; print('last'); sys.stdout.flush()\n{waits_for(tmp_path / 'heard')}\nos.kill(os.getpid(), 9)"
    )
    with pytest.raises(WorkerLost, match="has ended"):
        connection.run(code, heard.listener())
    assert time.time() - (tmp_path / "heard").stat().st_mtime < 10
    assert heard.text == "last\n"
    again = Connection(connection.address, "own", "/")
    assert ran(again, "print('time' in globals())") == "False\n"
    again.close()


ENDS = "def end():\n  import os\n  os.kill(os.getpid(), 9)\nclass A:\n  def __reduce__(self): return end, ()\na = A()"


def test_kernel_killed_while_values_go_there(connection: Connection) -> None:
    """The error is the same."""
    here = space(ENDS)
    chunks = codec.chunks(here, found := codec.measure(here, {"a", "end", "os"}), found.pickled)
    with pytest.raises(WorkerLost):
        connection.push(chunks)


def test_kernel_killed_while_values_come_back(connection: Connection) -> None:
    """The error is the same."""
    ran(connection, ENDS.replace("return end, ()", "end()"))
    with pytest.raises(WorkerLost):
        connection.pull(["a"])


def test_second_connection_finds_the_kernel(kept: Connection) -> None:
    """The namespace is still there after a connection was lost."""
    ran(kept, "stays = 7")
    again = Connection(kept.address, kept.kernel, "/")
    assert ran(again, "print(stays)") == "7\n"
    again.close()
    assert ran(kept, "print(stays)") == "7\n"


def test_stranger_is_refused_on_every_channel(worker: LocalWorker, kept: Connection) -> None:
    """Also one that knows all public keys and the key that signs; the notebook is not."""
    known = worker.address
    started = ask(known, Start("kept", "/", ".".join(map(str, sys.version_info[:2])), owner()))
    assert isinstance(started, Started)
    public, secret = (key.decode() for key in zmq.curve_keypair())
    stranger = WorkerAddress("x", known.address, known.port, known.key, public, secret)
    channels = [(known.port, zmq.DEALER), (started.shell, zmq.DEALER), (started.stdin, zmq.DEALER)]
    for port, kind in [*channels, (started.control, zmq.DEALER), (started.iopub, zmq.SUB)]:
        assert refused(stranger, port, kind)
        assert not refused(known, port, kind)
    with pytest.raises(WorkerLost, match="does not accept the key"):
        ask(stranger, Kill("kept"))
    assert ran(kept, "print('on')") == "on\n"


def test_peer_without_a_key_is_refused(worker: LocalWorker) -> None:
    """Nothing is answered to plain ZeroMQ, nor to bytes that are no ZeroMQ."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.connect(f"tcp://{worker.address.address}:{worker.address.port}")
        socket.send(Kill("kept").dump())
        assert not socket.poll(500)


def test_another_worker_key_is_refused(worker: LocalWorker) -> None:
    """A process at the worker's address that has not its key gets no byte."""
    known = worker.address
    other = zmq.curve_keypair()[0].decode()
    wrong = WorkerAddress("x", known.address, known.port, other, known.public, known.secret)
    with pytest.raises(WorkerLost):
        ask(wrong, Kill("kept"), patience=1)


def test_look(worker: LocalWorker, kept: Connection) -> None:
    """It tells the kernels and how soon it answers; on this machine the server knows the loads itself."""
    seen = look(worker.address, 5, loads=True)
    assert kept.kernel in {name for name, _ in seen.running.kernels}
    assert seen.round_trip > 0
    assert not seen.loads.gpus


def test_hooks_of_ipykernel_are_there() -> None:
    """We override these names, some of them private: a version without them must fail here, not in a pod."""
    for name in ("_apply_curve_server_options", "init_connection_file", "init_heartbeat", "write_connection_file"):
        assert callable(getattr(IPKernelApp, name))
        assert name in vars(GpuKernelApp)
    for name in (
        *("pre_handler_hook", "post_handler_hook", "interrupt_request"),
        *("do_execute", "_send_interrupt_children", "get_parent", "msg_types", "control_msg_types"),
    ):
        assert any(name in vars(base) for base in GpuKernel.__mro__[1:])


def test_subscription_that_the_kernel_did_not_notice(worker: LocalWorker, connection: Connection) -> None:
    """As one that arrives while ipykernel publishes something: another one follows, which is noticed."""
    lose = (
        "thread = get_ipython().kernel.iopub_thread; stream = thread._xpub_stream\n"
        "def lose(frames): stream.on_recv(thread._handle_subscription)\n"
        "thread.io_loop.add_callback(stream.on_recv, lose)"
    )
    assert connection.run(lose)["content"]["status"] == "ok"
    other = Connection(worker.address, "own", "/")
    assert ran(other, "print('heard')") == "heard\n"
    other.close()


def test_versions_are_told(worker: LocalWorker) -> None:
    """The first process says them without a kernel."""
    assert ask(worker.address, Check()) == Checked(PYTHON, versions.installed())
