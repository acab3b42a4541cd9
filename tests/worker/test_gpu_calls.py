"""`gpu.run` and its kin in real kernels and programs of a real server, with simulated GPUs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kernel.kernels import Failed, Kernel
from tests.kernel.servers import SOFT, Server, await_, serve, serve_soft
from tests.worker.test_processes import gone

LIBRARY = """
from jupyter_gpu import simulate
found = None
def devices():
    global found, held
    if found is None:
        held = simulate.hold()
        found = [device.index for device in held.__enter__()]
    return found
"""
"""A library that looks for GPUs once in the life of a process, and keeps them open."""
IMPORTS = """
from jupyter_gpu import gpu
import asyncio, os, signal, threading, time
import once
def seen():
    return len(once.devices())
def used():
    return os.getpid(), os.getppid(), seen()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run one server for the module."""
    with serve_soft(tmp_path_factory) as running:
        (running.folder / "once.py").write_text(LIBRARY)
        yield running


@pytest.fixture(scope="module")
def notebook(server: Server) -> Iterator[Kernel]:
    """Start the kernel of a notebook."""
    with server.kernel() as running:
        running.run(IMPORTS)
        yield running


@pytest.fixture
def kernel(notebook: Kernel, server: Server) -> Iterator[Kernel]:
    """Return the same kernel for each test, with no GPU before and after."""
    yield notebook
    give_back(server)


def give_back(server: Server) -> None:
    """Take all GPUs, and wait until they are closed."""
    server.rest("PUT", "jupyter-gpu/api/v1/request", {"gpus": 0, "overrule": True})
    await_(lambda: server.status()["phase"] == "Idle")


def numbers(kernel: Kernel, code: str) -> list[int]:
    """Return the numbers that a cell prints."""
    return [int(word) for word in kernel.run(code).split()]


def test_function_sees_gpus_that_came_after_cuda_started(server: Server) -> None:
    """The notebook's own CUDA sees one, the function two; afterwards nothing drains, and the notebook has its one."""
    with server.kernel() as own:
        own.run(IMPORTS)
        assert own.run("gpu.resize(1); print(seen())") == "1"
        assert own.run("print(gpu.run(seen, gpus=2), seen())") == "2 1"
        await_(lambda: {1000, 0} == set(server.status()["amounts"].values()))
        assert own.run("print(gpu.status().attached)") == "1"
    give_back(server)


def test_nothing_stays_held(kernel: Kernel, server: Server) -> None:
    """A call takes what it needs, and its process has ended before that is given back."""
    pid, _, count = numbers(kernel, "print(*gpu.run(used, gpus=2))")
    assert gone(pid)
    assert count == 2
    await_(lambda: server.status()["phase"] == "Idle")


def test_process_is_kept_while_the_gpus_are_the_same(kernel: Kernel) -> None:
    """The next call is served by it; another number of GPUs, by another one, and the first has ended."""
    kernel.run("gpu.resize(2)")
    first = numbers(kernel, "print(*gpu.run(used))")
    assert numbers(kernel, "print(*gpu.run(used))") == first
    assert numbers(kernel, "with gpu.at_least(2): print(*gpu.run(used, gpus=2))") == first
    second = numbers(kernel, "gpu.resize(3); print(*gpu.run(used))")
    assert second[1:] == [first[1], 3]
    assert gone(first[0])


@pytest.mark.parametrize(
    "shrink",
    [
        lambda kernel, _: kernel.run("gpu.resize(1, timeout=30)"),
        lambda kernel, _: kernel.run("gpu.release(timeout=30)"),
        lambda kernel, _: kernel.run("await gpu.aresize(0, timeout=30)"),
        lambda _, server: server.gpus(1),
        lambda _, server: server.cli("release"),
    ],
    ids=["resize", "release", "aresize", "slider", "command"],
)
def test_resting_process_makes_no_gpu_drain(
    kernel: Kernel, server: Server, shrink: Callable[[Kernel, Server], object]
) -> None:
    """It has the GPUs open, and ends before they are given back, whoever does that."""
    kernel.run("gpu.resize(2)")
    pid, _, count = numbers(kernel, "print(*gpu.run(used))")
    assert count == 2
    shrink(kernel, server)
    assert "that you started here" not in kernel.errors
    await_(lambda: server.status()["phase"] in ("Idle", "Ready"))
    assert gone(pid)


def test_resize_to_as_much_keeps_the_process(kernel: Kernel) -> None:
    """As when a cell is run again."""
    first = numbers(kernel, "gpu.resize(1); print(*gpu.run(used))")
    assert numbers(kernel, "gpu.resize(1); print(*gpu.run(used))") == first


def test_block_of_the_user_ends(kernel: Kernel, server: Server) -> None:
    """A GPU that its last call left open is closed, though no call asked for those GPUs."""
    pid, *_ = numbers(kernel, "with gpu.at_least(2): print(*gpu.run(used, gpus=2))")
    await_(lambda: server.status()["phase"] == "Idle")
    assert gone(pid)


def test_error_is_that_of_the_function(kernel: Kernel, server: Server) -> None:
    """With the traceback there as a note; the GPUs are given back."""
    code = (
        "class Odd(Exception): pass\ndef fails(): raise Odd(7)\n"
        "try: gpu.run(fails)\nexcept Odd as e: print(e.args, 'In the worker' in e.__notes__[0])"
    )
    assert kernel.run(code) == "(7,) True"
    await_(lambda: server.status()["phase"] == "Idle")


STICKY = """
class Assert(RuntimeError):
    error_code = 710
Assert.__module__, Assert.__name__, Assert.__qualname__ = "torch", "AcceleratorError", "AcceleratorError"
def asserts(): raise Assert("CUDA error: device-side assert triggered")
"""
"""The error that PyTorch raises after an assertion in a kernel, and again and again in that process."""


def test_process_that_cuda_ended_for(kernel: Kernel, server: Server) -> None:
    """It ends by itself; what it had is named, and its handle is lost; the next call has another process."""
    kernel.run(f"{STICKY}\ngpu.resize(1); made = gpu.keep('kept', dict)")
    (first, *_) = numbers(kernel, "print(*gpu.run(used))")
    said = kernel.run("try: gpu.run(asserts)\nexcept Assert as error: print(error.__notes__[-1])")
    assert "(CUDA_ERROR_ASSERT)" in said
    assert said.endswith("Lost with it, to be made again: kept.")
    assert gone(first)
    with pytest.raises(Failed, match="WorkerLost: kept was in the worker"):
        kernel.run("made.get()")
    (second, *_) = numbers(kernel, "print(*gpu.run(used))")
    assert second != first
    kernel.run("gpu.release(timeout=30)")


def test_what_cannot_be_sent_asks_for_no_gpu(kernel: Kernel, server: Server) -> None:
    """It is said at once, also where all GPUs are taken."""
    before = server.status()["requested"]
    with pytest.raises(Failed, match="CannotSend: lock, which the function uses"):
        kernel.run("lock = threading.Lock()\ndef locks(): return lock\ngpu.run(locks)")
    with pytest.raises(Failed, match="InvalidRequest: 'gpus': a call in another process"):
        kernel.run("gpu.run(seen, gpus=0)")
    assert server.status()["requested"] == before


def test_output_appears_in_the_cell(kernel: Kernel) -> None:
    """Text and displays."""
    code = "def shows():\n from IPython.display import HTML, display\n print('text'); display(HTML('<b>x</b>'))\n"
    assert kernel.run(f"{code}gpu.run(shows)") == "text"
    assert [shown["text/html"] for shown in kernel.results if "<b>" in shown.get("text/html", "")] == ["<b>x</b>"]


def test_lost_process_is_not_called_again(kernel: Kernel, server: Server, tmp_path: Path) -> None:
    """The error says so; the next call works, and nothing drains."""
    kernel.run("gpu.resize(1)")
    code = (
        f"def dies():\n once.devices()\n open({str(tmp_path / 'ran')!r}, 'a').write('x')\n"
        " os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with pytest.raises(Failed, match="WorkerLost"):
        kernel.run(f"{code}gpu.run(dies)")
    assert (tmp_path / "ran").read_text() == "x"
    assert kernel.run("print(gpu.run(seen))") == "1"
    kernel.run("gpu.release(timeout=30)")


def test_interrupt(kernel: Kernel, server: Server, tmp_path: Path) -> None:
    """Ctrl-C in the notebook ends the function, and the GPUs are given back."""
    own = int(kernel.run("print(os.getpid())"))
    mark = tmp_path / "runs"
    kernel.client.execute(f"def waits():\n open({str(mark)!r}, 'w').close()\n time.sleep(60)\ngpu.run(waits)")
    await_(mark.exists)
    os.kill(own, signal.SIGINT)
    assert kernel.client.get_shell_msg(timeout=30)["content"]["ename"] == "KeyboardInterrupt"
    await_(lambda: server.status()["phase"] == "Idle")
    kernel.run("pass")


def test_arun_lets_other_tasks_run(kernel: Kernel, server: Server, tmp_path: Path) -> None:
    """And the end of its task ends the function."""
    code = (
        f"runs = {str(tmp_path / 'runs')!r}\ndef waits(): open(runs, 'w').close(); time.sleep(60)\n"
        "task = asyncio.create_task(gpu.arun(waits, gpus=2))\n"
        "while not os.path.exists(runs): await asyncio.sleep(.05)\n"
        "assert gpu.status().attached == 2\ntask.cancel()\n"
        "try: await task\nexcept asyncio.CancelledError: print('ended')\n"
        "print(await gpu.arun(seen))"
    )
    assert kernel.run(code) == "ended\n1"
    await_(lambda: server.status()["phase"] == "Idle")


def test_task(kernel: Kernel) -> None:
    """A decorated function runs there; `local` runs here; one that another function calls works there, too."""
    code = (
        "here = os.getpid()\n@gpu.task(2)\ndef both(n):\n 'Twice.'\n return n * len(gpu.devices), os.getpid() == here\n"
        "print(both(3), both.__doc__, both.local(0)[1], both)"
    )
    kernel.run("gpu.resize(2)")
    assert kernel.run(code) == "(6, False) Twice. True <task with 2 GPUs: both>"


MAP = """
def place(n):
    time.sleep(.5)
    return n, os.getpid(), *once.devices()
def met(folder, most, n):
    open(f"{folder}/{os.getpid()}", "w").close()
    while len(os.listdir(folder)) < most: time.sleep(.05)
    return n, os.getpid(), *once.devices()
def sometimes(n):
    if n == 1: os.kill(os.getpid(), signal.SIGKILL)
    return 6 // n
"""


def meeting(folder: Path, number: int) -> str:
    """Return a function for `gpu.map` whose first calls wait until so many processes are called."""
    return f"lambda n: met({str(folder)!r}, {number}, n)"


def test_map(kernel: Kernel, server: Server, tmp_path: Path) -> None:
    """Results in order, two processes for two GPUs, each of which sees its own; nothing drains afterwards."""
    kernel.run(f"gpu.resize(2)\n{MAP}")
    found = numbers(kernel, f"for row in gpu.map({meeting(tmp_path, 2)}, range(6)): print(*row)")
    rows = [found[at : at + 3] for at in range(0, 18, 3)]
    assert [row[0] for row in rows] == list(range(6))
    assert len({row[1] for row in rows}) == len({row[2] for row in rows}) == 2
    assert len({(row[1], row[2]) for row in rows}) == 2
    server.gpus(0)
    await_(lambda: server.status()["phase"] == "Idle")


def test_items_of_a_map(kernel: Kernel, tmp_path: Path) -> None:
    """They are what they were at the call, also those of a generator that yields one array again and again."""
    code = (
        f"begun, changed = {str(tmp_path / 'begun')!r}, {str(tmp_path / 'changed')!r}\n"
        "def wait(path):\n while not os.path.exists(path): time.sleep(.01)\n"
        "def rows():\n row = bytearray(1)\n for row[0] in range(4): yield row\n"
        "def first(row): return row[0]\nlists = [[1], [2], [3]]\n"
        "def more(rows): open(begun, 'w').close(); wait(changed); return rows\n"
        "def change(): wait(begun); [rows.clear() for rows in lists]; open(changed, 'w').close()\n"
        "threading.Thread(target=change).start()\n"
        "gpu.resize(1)\nprint(gpu.map(more, lists), gpu.map(first, rows()), lists)"
    )
    assert kernel.run(code) == "[[1], [2], [3]] [0, 1, 2, 3] [[], [], []]"


def test_map_of_sets(kernel: Kernel, tmp_path: Path) -> None:
    """Two sets of two, and a map that needs no call."""
    kernel.run(f"gpu.resize(4)\n{MAP}")
    found = numbers(kernel, f"for row in gpu.map({meeting(tmp_path, 2)}, range(4), gpus=2): print(*row)")
    assert len({tuple(found[at + 2 : at + 4]) for at in range(0, 16, 4)}) == 2
    assert kernel.run("print(gpu.map(place, []))") == "[]"


def test_map_uses_gpus_that_come_meanwhile(kernel: Kernel, server: Server, tmp_path: Path) -> None:
    """And goes on without those that went."""
    code = f"gpu.resize(1)\n{MAP}threading.Timer(1, lambda: gpu.resize(3)).start()\n"
    found = numbers(kernel, f"{code}print(*(row[2] for row in gpu.map({meeting(tmp_path, 3)}, range(12))))")
    assert len(found) == 12
    assert len(set(found)) == 3
    code = "threading.Timer(1, lambda: gpu.resize(1, timeout=30)).start()\n"
    found = numbers(kernel, f"{code}print(*(row[2] for row in gpu.map(place, range(12))))")
    assert len(found) == 12
    await_(lambda: server.status()["phase"] == "Ready")


def test_lost_process_of_a_map(kernel: Kernel) -> None:
    """It fails its item alone, or the map, as is wished."""
    kernel.run(f"gpu.resize(2)\n{MAP}")
    code = "print([type(one).__name__ for one in gpu.map(sometimes, range(4), return_exceptions=True)])"
    assert kernel.run(code) == "['ZeroDivisionError', 'WorkerLost', 'int', 'int']"
    with pytest.raises(Failed, match="WorkerLost"):
        kernel.run("gpu.map(sometimes, [3, 1, 3])")


@pytest.mark.parametrize("busy", [False, True], ids=["resting", "working"])
@pytest.mark.parametrize("victim", ["notebook", "first process", "kernel of the worker"])
def test_killed(server: Server, tmp_path: Path, victim: str, busy: bool) -> None:
    """Whoever is killed, while a call runs or not: nothing of the worker stays that has a GPU open."""
    with server.kernel() as own:
        own.run(IMPORTS)
        own.run("gpu.resize(2)")
        worker, first, _ = numbers(own, "print(*gpu.run(used))")
        pid = int(own.run("print(os.getpid())"))
        if busy:
            mark = tmp_path / "runs"
            own.client.execute(f"def waits():\n open({str(mark)!r}, 'w').close()\n time.sleep(60)\ngpu.run(waits)")
            await_(mark.exists)
        os.kill({"notebook": pid, "first process": first, "kernel of the worker": worker}[victim], signal.SIGKILL)
        await_(lambda: gone(worker))
        if victim != "notebook":
            if busy:
                assert own.client.get_shell_msg(timeout=30)["content"]["ename"] == "WorkerLost"
            assert own.run("print(gpu.run(seen))") == "2"
    give_back(server)


def test_killed_server(tmp_path: Path) -> None:
    """Its kernels end, and their workers with them."""
    (tmp_path / "once.py").write_text(LIBRARY)
    with serve(tmp_path, tmp_path / "state", SOFT) as own, own.kernel() as kernel:
        worker, first, _ = numbers(kernel, f"{IMPORTS}\ngpu.resize(1); print(*gpu.run(used))")
        own.process.kill()
        await_(lambda: gone(worker) and gone(first))


SCRIPT = """
from jupyter_gpu import gpu
import os, sys, time
def work(n):
    print("there", n, file=sys.stderr)
    print("there")
    return n + 1, os.getpid(), os.getppid()
if __name__ == "__main__":
    result, *pids = gpu.run(work, 1)
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    print(result, *pids, child, flush=True)
    os.kill(os.getpid(), 9 if sys.argv[1:] else 0)
"""


@pytest.mark.parametrize("killed", [False, True])
def test_script(server: Server, tmp_path: Path, killed: bool) -> None:
    """Output is that of the script; a forked process does not keep the worker when the script ends, or is killed."""
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    command = [sys.executable, str(path), *(["kill"] if killed else [])]
    with subprocess.Popen(
        command, env=server.terminal, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as script:
        assert script.stdout is not None
        assert script.stdout.readline() == "there\n"
        result, worker, first, child = map(int, script.stdout.readline().split())
        try:
            script.wait(60)
            assert result == 2
            await_(lambda: gone(worker) and gone(first))
        finally:
            os.kill(child, signal.SIGKILL)
    give_back(server)


@pytest.mark.parametrize(
    ("module", "call", "extra"),
    [
        ("cloudpickle", "gpu.run(print)", "remote"),
        ("distributed", "gpu.client()", "dask"),
        ("cryptography", "gpu.client()", "dask"),
    ],
)
def test_missing_extra(tmp_path: Path, module: str, call: str, extra: str) -> None:
    """A sentence says what to install; nothing was asked of any server."""
    code = (
        f"import sys; sys.modules[{module!r}] = None\nfrom jupyter_gpu import ExtraNotInstalled, gpu\n"
        f"try: {call}\nexcept ExtraNotInstalled as e: print(e)"
    )
    env = {**os.environ, "JUPYTER_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert f" {module}, which is not installed" in done.stdout
    assert f".whl[{extra}]" in done.stdout
