"""`gpu.on_change` in real kernels and in scripts, and everything that can come between."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from jupyter_gpu.kernel.changes import Changes, GpuChange, difference
from jupyter_gpu.kernel.reports.status import GpuStatus, devices
from jupyter_gpu.model.view import View
from tests.kernel.kernels import Kernel
from tests.kernel.servers import SOFT, Server, await_, serve
from tests.model import golden
from tests.model.strategies import views

pytestmark = pytest.mark.usefixtures("give_back")


@pytest.fixture
def kernel(server: Server) -> Iterator[Kernel]:
    """Start a kernel with variables for the callbacks of the test."""
    with server.kernel() as running:
        running.run("import threading; from jupyter_gpu import gpu; heard = []")
        yield running


def heard(kernel: Kernel, count: int) -> list[Any]:
    """Return what the callbacks of the test have written, once it is that much."""
    await_(lambda: int(kernel.run("print(len(heard))")) >= count)
    found = eval(kernel.run("print(heard)"))
    assert isinstance(found, list)
    return found


def test_change_names_the_node_of_a_gpu() -> None:
    """GPUs of other nodes are among those that can be used."""
    case = next(case for case in golden.load("views") if case["name"] == "ready, one here and one on another node")
    change = difference((), GpuStatus(View.from_json(case["view"])))
    assert repr(change).endswith("(added GPU 0, GPU 0 on node2)")
    far = replace(View.from_json(case["view"]), gpus=())
    assert repr(difference((), GpuStatus(far))).endswith("(added GPU 0 on node2)")


def test_callback_runs_in_the_main_thread(server: Server, kernel: Kernel) -> None:
    """A notebook's callback runs between cells, and gets what changed."""
    kernel.run(
        "handle = gpu.on_change(lambda c: heard.append((threading.current_thread() is threading.main_thread(), "
        "len(c.added), len(c.removed), len(c.resized), c.status.attached)))"
    )
    server.gpus(2)
    assert heard(kernel, 1) == [(True, 2, 0, 0, 2)]
    server.gpus(1.5)
    assert heard(kernel, 2)[1:] == [(True, 0, 0, 1, 1.5)]
    server.gpus(0)
    assert heard(kernel, 3)[2:] == [(True, 0, 2, 0, 0)]


def test_callback_waits_for_a_busy_cell(server: Server, kernel: Kernel) -> None:
    """After a computing cell it is called once, with the net change. A cell that awaits lets it run."""
    kernel.run("handle = gpu.on_change(lambda c: heard.append((len(c.added), c.status.attached)))")
    # The stream tells of a change a moment after the answer to it; the cell ends once it has told of the last one.
    kernel.run(
        "import time\nfor n in (1, 2, 4, 3): gpu.resize(n)\n"
        "last = gpu.status().view.version\n"
        "for _ in range(600):\n    if handle._view.version >= last: break\n    time.sleep(0.05)\n"
        "inside = list(heard)"
    )
    assert heard(kernel, 1) == [(3, 3)]
    assert kernel.run("print(inside)") == "[]"
    kernel.run(
        "import asyncio\ngpu.resize(4)\n"
        "for _ in range(600):\n    if len(heard) > 1: break\n    await asyncio.sleep(0.05)\ninside = list(heard)"
    )
    assert kernel.run("print(inside)") == "[(3, 3), (1, 4)]"


def test_output_belongs_to_the_cell_that_registered(server: Server, kernel: Kernel) -> None:
    """A callback's output is not lost, and appears below the cell of `on_change`."""
    code = "handle = gpu.on_change(lambda c: print('changed:', c))"
    asked = kernel.client.execute(code)
    printed: list[Any] = []

    def said() -> list[str]:
        with contextlib.suppress(Exception):
            printed.append(kernel.client.get_iopub_msg(timeout=0.1))
        mine = [one for one in printed if one["parent_header"].get("msg_id") == asked]
        return [one["content"]["text"] for one in mine if one["msg_type"] == "stream"]

    other = kernel.client.execute("'another cell'")

    def idle() -> bool:
        said()
        return any(
            one["parent_header"].get("msg_id") == other and one["content"].get("execution_state") == "idle"
            for one in printed
        )

    await_(idle)
    server.gpus(1)
    assert "".join(await_(said)).startswith("changed: 1 of 4 GPUs attached (added GPU 0)")


def test_error_in_a_callback_is_logged(server: Server, kernel: Kernel) -> None:
    """A failing callback is logged with its traceback, is called again, and affects no other one."""
    kernel.run("import logging, io; log = io.StringIO(); logging.basicConfig(stream=log)")
    kernel.run("first = gpu.on_change(lambda c: 1 / 0); second = gpu.on_change(lambda c: heard.append(1))")
    server.gpus(1)
    heard(kernel, 1)
    server.gpus(2)
    heard(kernel, 2)
    await_(lambda: kernel.run("print(log.getvalue())").count("ZeroDivisionError: division by zero") == 2)
    assert "the callback failed. It is called again at the next change." in kernel.run("print(log.getvalue())")
    assert kernel.run("print(first.active)") == "True"


def test_async_callback_is_awaited(server: Server, kernel: Kernel) -> None:
    """It never runs twice at a time, and its errors are logged."""
    kernel.run("import logging, io, asyncio; log = io.StringIO(); logging.basicConfig(stream=log); running = 0")
    kernel.run(
        "async def slow(change):\n"
        "    global running\n    running += 1\n    heard.append((running, change.status.attached))\n"
        "    await asyncio.sleep(0.5)\n    running -= 1\n    if change.status.attached == 3: raise OSError('oh')\n"
        "handle = gpu.on_change(slow)"
    )
    server.gpus(1)
    heard(kernel, 1)
    server.gpus(2)
    server.gpus(3)
    assert heard(kernel, 2) == [(1, 1), (1, 3)]
    await_(lambda: "OSError: oh" in kernel.run("print(log.getvalue())"))


def test_cancelled_callback_is_not_called(server: Server, kernel: Kernel) -> None:
    """After `cancel`, and after a `with` block, there are no calls; after the last one no thread polls any more."""
    threads = "print(sum(t.name == 'jupyter-gpu-changes' for t in threading.enumerate()))"
    kernel.run("one, two = [gpu.on_change(lambda c: heard.append(1)) for _ in range(2)]")
    assert kernel.run(threads) == "1"
    kernel.run("one.cancel(); one.cancel()")
    server.gpus(1)
    assert heard(kernel, 1) == [1]
    assert kernel.run("print(one.active, two.active)") == "False True"
    kernel.run("with two: pass")
    await_(lambda: kernel.run(threads) == "0")
    server.gpus(2)
    kernel.run("with gpu.on_change(lambda c: heard.append(2)) as third: gpu.resize(3)")
    kernel.run("import asyncio; await asyncio.sleep(0.3)")
    assert heard(kernel, 1) == [1]
    assert "called <lambda> when the GPUs change" in kernel.run("print(third)")


def test_on_change_fails_without_a_server_or_a_function(tmp_path: Path, server: Server) -> None:
    """`on_change` itself raises the error."""
    with pytest.raises(TypeError, match="takes a function"):
        Changes(lambda: None, GpuStatus).add(7)  # type: ignore[arg-type, return-value]
    script = "from jupyter_gpu import gpu; gpu.on_change(print)"
    env = {**server.env, "JUPYTER_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False)
    assert "ServerUnreachable" in done.stderr


def run(server: Server, script: str) -> subprocess.Popen[str]:
    """Start a Python program of this server's user; its output is read line by line."""
    command = [sys.executable, "-u", "-c", textwrap.dedent(script)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=server.terminal, text=True, stdin=pipe, stdout=pipe, stderr=pipe)


def test_script_calls_from_a_thread(server: Server) -> None:
    """In a program without an event loop a thread calls; the program ends when it wants to."""
    script = """
        import sys, threading
        from jupyter_gpu import gpu
        async def later(change): print("async", change.status.attached)
        gpu.on_change(lambda change: print(threading.current_thread().name, change.status.attached))
        gpu.on_change(later)
        print("ready"); sys.stdin.readline()
    """
    with run(server, script) as program:
        assert program.stdout
        assert program.stdout.readline() == "ready\n"
        server.gpus(1)
        assert [program.stdout.readline() for _ in range(2)] == ["jupyter-gpu-changes 1\n", "async 1\n"]
        program.kill()


def test_asyncio_program_calls_from_its_loop(server: Server) -> None:
    """After the loop was closed, nothing is called and nothing fails."""
    script = """
        import asyncio, sys, threading
        from jupyter_gpu import gpu
        async def main():
            done = asyncio.Event()
            def changed(change):
                asyncio.get_running_loop()
                print(threading.current_thread() is threading.main_thread(), change.status.attached)
                done.set()
            handle = gpu.on_change(changed)
            print("ready")
            await done.wait()
            return handle
        handle = asyncio.run(main())
        gpu.resize(3)
        import time
        while handle.active: time.sleep(0.05)
        print("over")
    """
    with run(server, script) as program:
        assert program.stdout
        assert program.stdout.readline() == "ready\n"
        server.gpus(1)
        out, errors = program.communicate(timeout=60)
    assert (out, errors) == ("True 1\nover\n", "")


def test_restarted_server_is_followed(tmp_path: Path) -> None:
    """A program that outlives its server gets the changes of the next one."""
    script = """
        import logging, sys
        from jupyter_gpu import gpu
        logging.basicConfig(level=logging.INFO, format="%(message)s")
        gpu.on_change(lambda change: print(change.status.attached))
        print("ready"); sys.stdin.readline()
    """
    with contextlib.ExitStack() as stack:
        with serve(tmp_path, tmp_path / "state", SOFT) as first:
            program = stack.enter_context(run(first, script))
            stack.callback(program.kill)
            assert program.stdout
            assert program.stderr
            assert program.stdout.readline() == "ready\n"
            first.gpus(1)
            assert program.stdout.readline() == "1\n"
            first.gpus(0)
            assert program.stdout.readline() == "0\n"
        assert "it is tried again" in program.stderr.readline()
        with serve(tmp_path, tmp_path / "state", SOFT) as second:
            second.gpus(2)
            assert program.stdout.readline() == "2\n"
            second.gpus(0)


class Fake:
    """A client whose views the test chooses."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.asked = threading.Event()
        self._next = threading.Semaphore(0)

    def send(self, call: object) -> View:
        """Return the current view."""
        return self.view

    def exchange(self, call: object) -> Fake:
        """Wait for a view, as a long poll does."""
        return self

    def run(self) -> View:
        """Return the next view."""
        self.asked.set()
        self._next.acquire()
        return self.view

    def abort(self) -> None:
        """End the poll."""
        self._next.release()

    def publish(self, view: View) -> None:
        """Publish the next view."""
        self.view = view
        self._next.release()


def test_older_view_is_no_change() -> None:
    """A view that was on its way while `on_change` asked for a newer one is not reported as a change."""
    bare = View("i", 5, "soft", False, "local", 0, 0, ())  # type: ignore[arg-type]
    told: list[GpuChange] = []
    hub = Changes(lambda: Fake(bare), GpuStatus)  # type: ignore[arg-type, return-value]
    handle = hub.add(told.append)
    from tests.commands.test_watch_view import VIEW

    handle.see(replace(VIEW, instance="i", version=5))
    assert told == []
    handle.see(replace(VIEW, instance="i", version=6))
    assert len(told) == 1
    handle.cancel()


def test_cancelled_subscription_is_freed() -> None:
    """Its callback can be freed, too."""

    class Callback:
        def __call__(self, change: GpuChange) -> None: ...

    bare = View("i", 5, "soft", False, "local", 0, 0, ())  # type: ignore[arg-type]
    hub = Changes(lambda: Fake(bare), GpuStatus)  # type: ignore[arg-type, return-value]
    callback = Callback()
    gone = weakref.ref(callback)
    hub.add(callback).cancel()
    del callback
    gc.collect()
    assert gone() is None


@given(views, views)
def test_difference_leads_from_old_to_new(before: View, after: View) -> None:
    """The old set without the removed and with the added is the new set; without a change no callback is called."""
    was, status = devices(before), GpuStatus(after)
    change = difference(was, status)
    kept = {one.uuid for one in was}
    if change is None:
        assert {(one.uuid, one.milli) for one in was} == {(one.uuid, one.milli) for one in status.devices}
        return
    kept = (kept - {one.uuid for one in change.removed}) | {one.uuid for one in change.added}
    assert kept == {one.uuid for one in status.devices}
    assert {one.uuid for one in change.resized} <= {one.uuid for one in was}
    assert repr(change)


def test_callback_runs_in_the_loop_of_its_thread() -> None:
    """If another thread runs an event loop of its own, its callbacks are called there."""
    bare = View("i", 5, "soft", False, "local", 0, 0, ())  # type: ignore[arg-type]
    client = Fake(bare)
    hub = Changes(lambda: client, GpuStatus)  # type: ignore[arg-type, return-value]
    names: list[str] = []

    async def main() -> None:
        done = asyncio.Event()
        from tests.commands.test_watch_view import VIEW

        def callback(_: GpuChange) -> None:
            names.append(threading.current_thread().name)
            done.set()

        hub.add(callback)
        client.publish(replace(VIEW, instance="i", version=6))
        await done.wait()

    thread = threading.Thread(target=lambda: asyncio.run(main()), name="mine")
    thread.start()
    thread.join(30)
    assert names == ["mine"]
