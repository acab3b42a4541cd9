"""Cells and calls on GPUs of another node: a notebook's server and its worker's pod, both real, on this machine."""

from __future__ import annotations

import os
import queue
import signal
import time
from ast import literal_eval
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.model.sentence import sentence
from jupyter_gpu.model.view import View
from tests.kernel.builders import gpu
from tests.kernel.kernels import Failed, Kernel
from tests.kernel.servers import await_
from tests.worker.test_cell import error_of
from tests.worker.test_gpu_calls import STICKY
from tests.worker.two_pods import TwoPods, started, two_pods

pytestmark = pytest.mark.root

IMPORTS = """
from jupyter_gpu import gpu
import os, signal, sys, time
def place():
    return os.environ.get("CUDA_VISIBLE_DEVICES"), os.getppid(), os.getpid()
"""
FIRST, SECOND = gpu(100).uuid, gpu(101).uuid


@pytest.fixture(scope="module")
def pods(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoPods]:
    """Run both pods for the module."""
    with two_pods(tmp_path_factory) as made:
        made.worker.loads = {FIRST: {"utilisation": 30.0, "memory": 8}}
        yield made


@pytest.fixture(scope="module")
def notebook(pods: TwoPods) -> Iterator[Kernel]:
    """Start the kernel of a notebook."""
    assert pods.server is not None
    with pods.server.kernel() as running:
        running.run(IMPORTS)
        running.run("from jupyter_gpu.remote import shipped; shipped.PAUSE = .1")  # the tests need not wait
        yield running


@pytest.fixture
def kernel(notebook: Kernel, pods: TwoPods) -> Iterator[Kernel]:
    """Return the same kernel, with no GPU before and after."""
    yield notebook
    notebook.run("gpu.release(timeout=30)")
    await_(lambda: not pods.kernels)


def there(pods: TwoPods, kernel: Kernel, call: str) -> str:
    """Return the GPUs that a call of `place` sees, which runs in the worker's pod."""
    assert pods.pod is not None
    seen, parent, _ = literal_eval(kernel.run(f"print({call})"))
    assert parent == pods.pod.process.pid
    return str(seen)


def test_cell_whose_gpus_come_from_another_node_for_the_first_time(kernel: Kernel, pods: TwoPods) -> None:
    """It began here and goes on there, once: await, its last value, its lines, and what it assigns are as ever."""
    assert not pods.named
    kernel.run("import asyncio")
    code = "\n%%gpu 2\nawait asyncio.sleep(0)\nparent = os.getppid(); print('said')\nparent"
    assert kernel.run(code).splitlines()[0] == "said"
    assert pods.named
    assert pods.pod is not None
    assert kernel.results[-1]["text/plain"] == kernel.run("print(parent)") == str(pods.pod.process.pid)
    assert kernel.run("print(get_ipython().last_execution_result.success)") == "True"
    await_(lambda: pods.requested.milli == 0)
    await_(lambda: not pods.kernels)
    failed = error_of(kernel, "%%gpu 2\n0\n1 / 0")
    assert "line 3" in failed
    assert "cell_magic" not in failed


def test_terminal_and_doctor(kernel: Kernel, pods: TwoPods) -> None:
    """The devices, the workers and the way to each are told; other nodes serve only who lets them."""
    kernel.run("gpu.resize(2)")
    assert kernel.run("print([(d.name, d.remote) for d in gpu.devices])") == (
        "[('GPU 0', False), ('GPU 0 on node2', True)]"
    )
    assert pods.server is not None
    assert pods.server.cli("workers").stdout.startswith("w1  node2  Attached  1 GPU  Other node, same switch")
    said = pods.server.cli("doctor").stdout
    assert "2 GPUs here and 2 GPUs on other nodes" in said
    assert "The worker on node2 answers in" in said
    assert "node2: " not in said  # the same packages
    pods.server.cli("resize", "1", "--placement", "local")
    assert pods.requested.wish.placement == "local"
    await_(lambda: pods.server and not pods.server.status()["elsewhere"])


def test_call(kernel: Kernel, pods: TwoPods) -> None:
    """GPUs of the own node are used there, a larger set elsewhere; nothing stays held."""
    seen, _, pid = literal_eval(kernel.run("print(gpu.run(place))"))
    assert seen == gpu(0).uuid
    assert pid not in pods.kernels
    assert there(pods, kernel, "gpu.run(place, gpus=2)") == f"{FIRST},{SECOND}"
    assert pods.requested.wish.set is None
    await_(lambda: not pods.kernels)
    await_(lambda: kernel.run("print(gpu.status().attached)") == "0")


CUT = """
import os, socket, time
for number in os.listdir("/proc/self/fd"):
    try:
        one = socket.socket(fileno=os.dup(int(number)))
    except OSError:
        continue
    if one.family == socket.AF_INET and not one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        one.shutdown(socket.SHUT_RDWR)
while True: time.sleep(.1)
"""
"""A cell whose kernel ends all its connections; the notebook is not told why."""


def test_namespace_stays_while_the_gpus_do(kernel: Kernel, pods: TwoPods) -> None:
    """Cells have what earlier ones left there, also after a lost connection; a shrink ends what rests."""
    kernel.run("gpu.resize(3)")
    assert kernel.run("%%gpu 2\nimport threading\nlock = threading.Lock(); pid = os.getpid(); print('said')") == "said"
    assert kernel.run("print(gpu.remote.lock)") == "<lock: lock on node2>"
    with pytest.raises(Failed, match="WorkerLost"):
        kernel.run(f"%%gpu 2\n{CUT}")
    assert kernel.run("%%gpu 2\nprint(lock.locked(), os.getpid() == pid)") == "False True"
    assert kernel.run("print(gpu.remote.lock)") == "<lock: lock on node2>"
    assert len(pods.kernels) == 1
    kernel.run("gpu.resize(1, timeout=30)")
    assert pods.kernels == []
    with pytest.raises(Failed, match="WorkerLost: lock was in the worker on node2"):
        kernel.run("gpu.remote.lock.get()")


def test_process_that_cuda_ended_for(kernel: Kernel, pods: TwoPods) -> None:
    """It ends by itself, in a cell and in a call; what it had is named, and the next one has another process."""
    kernel.run(f"{STICKY}\nimport threading\ngpu.resize(3)")
    kernel.run("%%gpu 2\nonly = threading.Lock(); first = os.getpid()")
    with pytest.raises(Failed, match="AcceleratorError"):
        kernel.run("%%gpu 2\nasserts()")
    assert "(CUDA_ERROR_ASSERT) CUDA works no more in the process on node2" in kernel.errors
    assert "Lost with it, to be made again: only." in kernel.errors
    assert kernel.run("%%gpu 2\nprint(first == os.getpid())") == "False"
    kernel.run("kept = gpu.keep('kept', dict, gpus=2)")
    said = kernel.run("try: gpu.run(asserts, gpus=2)\nexcept Assert as error: print(error.__notes__[-1])")
    assert said.endswith("Lost with it, to be made again: kept.")
    with pytest.raises(Failed, match="WorkerLost: kept was in the worker"):
        kernel.run("kept.get()")


def test_simulated_work(kernel: Kernel, pods: TwoPods, tmp_path: Path) -> None:
    """It opens the GPUs that the cell or function sees there, and no others."""
    before = pods.worker.gpus
    paths = [str(tmp_path / name) for name in ("gpu0", "gpu1")]
    for path in paths:
        Path(path).touch()
    pods.worker.gpus = tuple(replace(one, path=path) for one, path in zip(before, paths, strict=True))
    kernel.run("gpu.resize(3)\nfrom jupyter_gpu import simulate")
    kernel.run("def opened():\n    with simulate.hold() as held: return [one.path for one in held]")
    assert kernel.run("%%gpu 2\nprint(opened())") == str(paths)
    assert kernel.run("print(gpu.map(lambda _: len(opened()), [1], gpus=2))") == "[2]"
    with pytest.raises(Failed, match="PermissionError"):
        kernel.run("gpu.run(simulate.work, 0, [5], gpus=2)")
    pods.worker.gpus = ()
    with pytest.raises(Failed, match="NoGpuAttached"):
        kernel.run("gpu.run(opened, gpus=2)")
    pods.worker.gpus = before


def test_map_uses_both_nodes(kernel: Kernel, pods: TwoPods, tmp_path: Path) -> None:
    """One process for each GPU, which sees it alone; the first calls wait until all three are called."""
    kernel.run(
        f"gpu.resize(3); folder = {str(tmp_path)!r}\n"
        "def met(n):\n open(f'{folder}/{os.getpid()}', 'w').close()\n"
        " while len(os.listdir(folder)) < 3: time.sleep(.05)\n return place()"
    )
    rows = literal_eval(kernel.run("print(gpu.map(met, range(9)))"))
    assert {row[0] for row in rows} == {gpu(0).uuid, FIRST, SECOND}
    assert len({row[2] for row in rows}) == 3


def test_modules_of_the_notebook(kernel: Kernel, pods: TwoPods) -> None:
    """The worker does not see the folder: it gets what the notebook has loaded, and what it loads again."""
    assert pods.server is not None
    path = pods.server.folder / "helps.py"
    path.write_text("def answer(): return 1\n")
    kernel.run("gpu.resize(3); import importlib, sys; sys.dont_write_bytecode = True; import helps")
    kernel.run("def ask(): return helps.answer(), *place()")
    assert literal_eval(kernel.run("print(gpu.run(ask, gpus=2))"))[0] == 1
    path.write_text("def answer(): return 22\n")
    kernel.run("importlib.reload(helps)")
    assert literal_eval(kernel.run("print(gpu.run(ask, gpus=2))"))[0] == 22


def test_modules_that_only_a_call_imports(kernel: Kernel, pods: TwoPods) -> None:
    """They go there without being loaded here, also those that they import in turn, and again when they change."""
    assert pods.server is not None
    package = pods.server.folder / "lazily"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "first.py").write_text("def get():\n    from . import second\n    return second.N\n")
    (package / "second.py").write_text("N = 1\n")
    kernel.run("gpu.resize(3)\ndef ask():\n    from lazily.first import get\n    return get()")
    assert kernel.run("print(gpu.run(ask, gpus=2), 'lazily' in sys.modules)") == "1 False"
    (package / "second.py").write_text("N = 2\n")
    assert kernel.run("%%gpu 2\nimport lazily.first as got\nprint(got.get(), os.getppid())").startswith("2 ")


def test_figures(kernel: Kernel, pods: TwoPods) -> None:
    """Bytes of cells and calls are counted, and told with the load there and how soon a worker answers."""
    assert pods.server is not None
    kernel.run(f"gpu.resize(3)\nassert gpu.run(len, bytes({2**21}), gpus=2) == {2**21}")
    await_(lambda: figures(pods).get("shipped", 0) > 2**21)
    await_(lambda: figures(pods).get("roundTrip", 0) > 0)
    kernel.run(f"%%gpu 2\nlarge = bytes({2**25})")
    await_(lambda: figures(pods)["shipped"] > 2**21 + 2**25)
    sample = "from jupyter_gpu.kernel.client import Client; print(Client().sample().loads)"
    await_(lambda: f"'{FIRST}': GpuLoad(utilisation=30.0, memory=8" in kernel.run(sample))
    assert "sent there and back, answers in" in pods.server.cli("workers").stdout
    await_(lambda: len(figures(pods).get("kinds", ())) == 2)
    assert kernel.run("print([one.memory > 0 and bool(one.model) for one in gpu.devices])") == "[True, True, True]"


def figures(pods: TwoPods) -> dict[str, Any]:
    """Return the worker as the server shows it."""
    assert pods.server is not None
    (worker,) = pods.server.status()["workers"]
    return dict(worker)


def begin(kernel: Kernel, code: str, mark: Path) -> int:
    """Start a cell on the other node; return whom to interrupt: the notebook's process, once the cell runs."""
    own = int(kernel.run("print(os.getpid())"))
    kernel.client.execute(f"%%gpu 2\nopen({str(mark)!r}, 'w').close()\n{code}")
    await_(mark.exists)
    return own


def test_cell_that_never_ends(kernel: Kernel, pods: TwoPods, tmp_path: Path) -> None:
    """It keeps its GPUs, also when they are to be given back, until it is interrupted; then they are."""
    assert pods.server is not None
    kernel.run("gpu.resize(3)")
    own = begin(kernel, "while True: time.sleep(.01)", tmp_path / "runs")
    (before,) = pods.kernels
    pods.server.rest("PUT", "jupyter-gpu/api/v1/request", {"gpus": 0, "overrule": True})
    await_(lambda: figures(pods)["milli"] == 0)
    assert len(figures(pods)["gpus"]) == 2
    assert pods.kernels == [before]
    os.kill(own, signal.SIGINT)
    assert kernel.client.get_shell_msg(timeout=30)["content"]["ename"] == "KeyboardInterrupt"
    await_(lambda: not pods.kernels)
    kernel.run("pass")


def test_interrupt_in_a_c_loop(kernel: Kernel, pods: TwoPods, tmp_path: Path) -> None:
    """The first ones do nothing, which is said; the next one ends the process there, and the notebook goes on."""
    kernel.run("gpu.resize(3)")
    own = begin(kernel, "sum(iter(int, 1))", tmp_path / "runs")
    (before,) = pods.kernels
    until = time.monotonic() + 30
    while not hears(kernel, "Interrupt once more"):
        assert time.monotonic() < until
        os.kill(own, signal.SIGINT)
    assert pods.kernels == [before]
    os.kill(own, signal.SIGINT)
    assert kernel.client.get_shell_msg(timeout=30)["content"]["ename"] == "WorkerLost"
    kernel.run("pass")
    assert literal_eval(kernel.run("print(gpu.run(place, gpus=2))"))[2] != before


def hears(kernel: Kernel, words: str) -> bool:
    """Tell whether the kernel prints these words within half a second."""
    until = time.monotonic() + 0.5
    while (left := until - time.monotonic()) > 0:
        try:
            message = kernel.client.get_iopub_msg(timeout=left)
        except queue.Empty:
            return False
        if words in str(message["content"]):
            return True
    return False


def test_new_keys(kernel: Kernel, pods: TwoPods) -> None:
    """A worker that is named anew has other keys of the notebook; the next call asks for them."""
    assert there(pods, kernel, "gpu.run(place, gpus=2)")
    before = pods.notebook.said[-1]
    pods.named = False
    await_(lambda: pods.notebook.said[-1] != before)
    assert there(pods, kernel, "gpu.run(place, gpus=2)")
    assert pods.notebook.said[-1].keys != before.keys


def test_kernel_that_ends(pods: TwoPods) -> None:
    """Its kernels in the worker end with it."""
    assert pods.server is not None
    with pods.server.kernel() as own:
        own.run(f"{IMPORTS}\ngpu.resize(3)")
        assert there(pods, own, "gpu.run(place, gpus=2)")
        assert pods.kernels
    await_(lambda: not pods.kernels)
    pods.server.gpus(0)
    await_(lambda: pods.requested.milli == 0)


def test_kernel_that_is_killed(kernel: Kernel, pods: TwoPods) -> None:
    """It can end nothing: the server does, within seconds, and leaves that of one that only lost its connection."""
    assert pods.server is not None
    with pods.server.kernel() as own:
        own.run(f"{IMPORTS}\ngpu.resize(3)")
        kept, _ = (literal_eval(one.run("print(gpu.run(place, gpus=2))"))[2] for one in (kernel, own))
        assert len(pods.kernels) == 2
        kernel.run("for seat in gpu._calls.worker._state.resting: seat.connection.close()")
        os.kill(int(own.run("print(os.getpid())")), signal.SIGKILL)
        await_(lambda: pods.kernels == [kept])
    assert literal_eval(kernel.run("print(gpu.run(place, gpus=2))"))[2] == kept


def test_lost_worker_and_one_that_starts(kernel: Kernel, pods: TwoPods, tmp_path: Path) -> None:
    """The cell fails and is not run again; the next one waits for the worker that starts, which has another key."""
    assert pods.pod is not None
    ran = tmp_path / "ran"
    code = f"open({str(ran)!r}, 'a').write('x')\nos.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(60)"
    kernel.run("gpu.resize(3)")
    with pytest.raises(Failed, match="WorkerLost"):
        kernel.run(f"%%gpu 2\n{code}")
    assert ran.read_text() == "x"
    old, pods.pod = pods.pod, None
    old.process.wait()
    kernel.client.execute("%%gpu 2\nparent = os.getppid()")
    assert pods.server is not None
    await_(lambda: "node2" in sentence(View.from_json(pods.server.status())))
    with started(pods, old.port) as new:
        reply = kernel.client.get_shell_msg(timeout=60)["content"]
        assert reply["status"] == "ok", reply
        assert kernel.run("print(parent)") == str(new.process.pid)
        kernel.run("gpu.release(timeout=30)")
    pods.pod = old
