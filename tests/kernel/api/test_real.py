"""`gpu` in real kernels of real servers on simulated GPUs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu_node.gpus.simulated import MODEL
from tests.kernel.kernels import Failed, Kernel
from tests.kernel.servers import Server, await_, serve


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run one server for the module; `kernel` gives all GPUs back before each test."""
    folder = tmp_path_factory.mktemp("server")
    with serve(folder, folder / "state", "--GpuExtension.enforcement=soft") as running:
        yield running


IMPORTS = "from jupyter_gpu import gpu, simulate\nimport jupyter_gpu, asyncio"


def give_back(server: Server) -> None:
    server.gpus(0)
    await_(lambda: server.status()["phase"] == "Idle")


@pytest.fixture
def kernel(server: Server) -> Iterator[Kernel]:
    """Return a fresh kernel with no GPU and `gpu` imported."""
    with server.kernel() as running:
        running.run(IMPORTS)
        yield running
    give_back(server)


@pytest.fixture(scope="module")
def one_for_all(server: Server) -> Iterator[Kernel]:
    with server.kernel() as running:
        running.run(IMPORTS)
        yield running


@pytest.fixture
def calm(one_for_all: Kernel, server: Server) -> Iterator[Kernel]:
    """Return the same kernel for all tests that open no device, with no GPU."""
    yield one_for_all
    give_back(server)


def test_resize_in_a_running_kernel(kernel: Kernel, server: Server) -> None:
    """It grows, shrinks and takes shares: pid, variables and an open connection stay; panel and code agree."""
    kernel.run("import os, socket; a, b = socket.socketpair(); x = 42; pid = os.getpid()")
    for amount, text in (("2", "2 of 4 GPUs"), ("'500m'", "0.5 of 4 GPUs"), ("0.25", "0.25 of 4"), ("4", "4 of 4")):
        assert kernel.run(f"print(gpu.resize({amount}).sentence)").startswith(text)
        assert server.status()["sentence"].startswith(text)
    kernel.run("gpu.release()")
    assert kernel.run("a.send(b'hi'); print(b.recv(2), x, pid == os.getpid())") == "b'hi' 42 True"


def test_devices_lists_the_attached_gpus(calm: Kernel) -> None:
    """GPUs come by index, whole or shared."""
    calm.run("gpu.resize(1.5)")
    assert calm.run("print([(d.milli, d.exclusive, d.simulated) for d in gpu.devices])") == (
        "[(1000, True, True), (500, False, True)]"
    )
    assert calm.run("import os; print(all(os.path.exists(d.path) and d.memory > 0 for d in gpu.devices))") == "True"


def test_usage_without_shares_gives_the_reason(calm: Kernel) -> None:
    """With nothing, or whole GPUs only, it is empty and says why, below what the server held."""
    calm.run("gpu.resize(1)")
    text = "Your server has no time share of a GPU: a whole one is shared with nobody, and nothing is accounted for."
    assert calm.run("print(len(gpu.usage()), jupyter_gpu.usage().sentence)") == f"0 {text}"
    shown = calm.run("print(gpu.usage())")
    assert shown.startswith("This server held ")
    assert shown.endswith(text)


def test_module_works_like_gpu(calm: Kernel) -> None:
    """`import jupyter_gpu as gpu` does the same."""
    calm.run("import jupyter_gpu as g")
    assert calm.run("print(g.resize(1).attached, len(g.devices), g.status().attached)") == "1 1 1"
    assert calm.run("print(g.release().attached)") == "0"


def test_async_calls_let_other_tasks_run(calm: Kernel) -> None:
    """`async with` gives back at its end."""
    assert calm.run("print((await gpu.aresize(2)).attached)") == "2"
    code = "async with gpu.at_least(3) as s: print(s.attached)\nprint(gpu.status().requested)"
    assert calm.run(code) == "3\n2"


def test_at_least_restores_the_amount(calm: Kernel) -> None:
    """This holds nested, after an exception, and by hand."""
    calm.run("gpu.resize(1)")
    code = "with gpu.at_least(2):\n with gpu.at_least(3): print(gpu.status().attached)\n print(gpu.status().attached)"
    assert calm.run(code) == "3\n2"
    with pytest.raises(Failed, match="ZeroDivisionError"):
        calm.run("with gpu.at_least(4): 1/0")
    assert calm.run("print(gpu.status().requested)") == "1"


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("gpu.resize(5)", "Infeasible"),
        ("gpu.resize(-1)", "InvalidRequest: -1 is negative"),
        ("gpu.resize(float('nan'))", "InvalidRequest: nan is not"),
        ("gpu.resize('two')", "InvalidRequest: 'two' is not an amount"),
        ("gpu.resize(0.0001)", "InvalidRequest: .* finer than a thousandth"),
        ("gpu.resize(True)", "InvalidRequest"),
        ("gpu.resize(None)", "InvalidRequest"),
        ("gpu.resize(10**400)", "InvalidRequest"),
        ("gpu.resize(1, memory='lots')", "InvalidRequest: 'lots' is not an amount of memory"),
        ("gpu.resize(1, memory='900GiB')", "Infeasible"),
        ("gpu.resize(memory='1GiB')", "Infeasible: Memory is not enforced here, so a share of 0.001 GPU has no more"),
        ("gpu.resize()", "InvalidRequest: Name an amount of GPUs, or memory alone"),
        ("gpu.resize(1, model='H100')", "Infeasible"),
        ("gpu.resize(1, vendor='amd')", r"Infeasible: No GPU here is what you ask for \(amd\)"),
        ("gpu.resize(1, vendor='')", "InvalidRequest: 'vendor'"),
        ("gpu.resize(1, topology='ring')", "InvalidRequest: 'topology'"),
        ("gpu.resize(1, placement='there')", "InvalidRequest: 'placement'"),
        ("gpu.resize(1, priority=10)", "InvalidRequest: 'priority'"),
        ("gpu.resize(1, each=0.3)", "InvalidRequest"),
        ("gpu.resize(1, timeout=-1)", "InvalidRequest: 'timeout'"),
        ("gpu.resize(1, timeout='60')", "InvalidRequest: 'timeout': '60' is not a number of seconds"),
        ("gpu.release(timeout=float('nan'))", "InvalidRequest: 'timeout': nan is not"),
        ("gpu.at_least(1, timeout=[])", "InvalidRequest: 'timeout'"),
        ("gpu.wait(timeout=True)", "InvalidRequest: 'timeout'"),
        ("import fractions; gpu.resize(fractions.Fraction(1, 3))", "InvalidRequest: 1/3 is finer than a thousandth"),
        ("simulate.work(1)", r"NoGpuAttached: Your server has no GPU: gpu\.resize\(1\) first"),
    ],
)
def test_each_error_has_its_type_and_message(calm: Kernel, code: str, error: str) -> None:
    """Nothing is changed."""
    with pytest.raises(Failed, match=error):
        calm.run(code)
    assert calm.run("print(gpu.status().requested)") == "0"


def test_resize_changes_the_amount_alone(calm: Kernel, server: Server) -> None:
    """Code, command, panel and widget keep the other options; None removes one, release all of them."""

    def asked() -> Any:
        return {key: value for key, value in server.status()["requested"].items() if key != "generation"}

    calm.run("gpu.resize(1, memory='1GiB', priority=3, each=0.5)")
    rest = {"memory": 2**30, "priority": 3, "each": 500}
    calm.run("gpu.resize(2)")
    assert asked() == {"milli": 2000, **rest}
    calm.run("await gpu.aresize(1, topology='any')")
    assert asked() == {"milli": 1000, **rest, "topology": "any"}
    assert server.cli("resize", "1.5", "--priority", "4").returncode == 0
    assert asked() == {"milli": 1500, **rest, "topology": "any", "priority": 4}
    server.gpus(0.5)
    calm.run("with gpu.at_least(1): pass")
    assert asked() == {"milli": 500, **rest, "topology": "any", "priority": 4}
    calm.run("import time; widget = gpu.widget(); widget.value = 1\nwhile widget.attached != 1: time.sleep(0.02)")
    assert asked() == {"milli": 1000, **rest, "topology": "any", "priority": 4}
    calm.run("gpu.resize(1, memory=None, each=None)")
    assert asked() == {"milli": 1000, "topology": "any", "priority": 4}
    assert server.cli("release").returncode == 0
    assert asked() == {"milli": 0}


@pytest.mark.parametrize(
    "way",
    [lambda calm, server, name: calm.run(f"gpu.resize(1, {name}=None)"),
     lambda calm, server, name: calm.run(f"gpu.resize(1, {name}='any')"),
     lambda calm, server, name: server.cli("resize", "1", f"--{name}", "any")],
    ids=["None", "any", "command"],
)  # fmt: skip
def test_one_option_is_removed(calm: Kernel, server: Server, way: Callable[[Kernel, Server, str], object]) -> None:
    """Code and command remove any one of them, and the others stay."""
    every = {"each": 0.5, "memory": "1GiB", "model": MODEL, "vendor": "NVIDIA"}
    every |= {"topology": "island", "placement": "local", "priority": 3}
    for name in every:
        calm.run(f"gpu.resize(1, **{every!r})")
        assert set(server.status()["requested"]) >= every.keys()
        way(calm, server, name)
        left = server.status()["requested"]
        assert left.get(name) in (None, "any")
        assert set(left) - {"milli", "generation", name} == every.keys() - {name}
    calm.run("gpu.release()")


def test_any_beside_a_model_is_refused(calm: Kernel, server: Server) -> None:
    """It has no meaning there; nothing is changed."""
    for words in (["--model", "any", "--model", "NVIDIA H100"], ["--priority", "high"], ["--memory", "anything"]):
        done = server.cli("resize", "1", *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert words[0].strip("-") in done.stderr
    with pytest.raises(Failed, match="'model': 'any' takes the option back"):
        calm.run("gpu.resize(1, model=['any', 'NVIDIA H100'])")


def test_limit_is_its_own_error(tmp_path: Path) -> None:
    """The error has the administrator's limit."""
    with (
        serve(tmp_path, tmp_path / "s", "--GpuExtension.limit=2", "--GpuExtension.enforcement=soft") as limited,
        limited.kernel() as kernel,
    ):
        code = (
            "from jupyter_gpu import gpu, LimitExceeded\ntry: gpu.resize(3)\nexcept LimitExceeded as e: print(e.limit)"
        )
        assert kernel.run(code) == "2000"


def test_no_capacity_after_a_timeout(kernel: Kernel, server: Server, tmp_path: Path) -> None:
    """Another server has the GPUs: the error has the place in line; the request stands and is granted later."""
    with serve(tmp_path, server.folder / "state", "--GpuExtension.enforcement=soft") as other:
        other.gpus(3)
        kernel.run("from jupyter_gpu import NoCapacity")
        code = "try: gpu.resize(2, timeout=0.2)\nexcept NoCapacity as e: print(e.have, e.queue)"
        assert kernel.run(code) == "1000 1"
        bars = [str(data["text/plain"]) for data in kernel.results]
        assert any("1 of 2: one more when it is free" in text for text in bars)
        assert kernel.run("print(gpu.resize(2, wait=False).settled)") == "False"
        other.gpus(0)
        assert kernel.run("print(gpu.wait(timeout=30).attached)") == "2"


def test_ctrl_c_keeps_the_request(kernel: Kernel, server: Server, tmp_path: Path) -> None:
    """Interrupting the kernel ends the wait at once with a message, and the GPUs come later."""
    with serve(tmp_path, server.folder / "state", "--GpuExtension.enforcement=soft") as other:
        other.gpus(4)
        pid = int(kernel.run("print(__import__('os').getpid())"))
        message = kernel.client.execute("gpu.resize(1)")
        await_(lambda: server.status()["phase"] == "Waiting")
        os.kill(pid, signal.SIGINT)
        reply = kernel.client.get_shell_msg(timeout=30)
        assert reply["parent_header"]["msg_id"] == message
        assert reply["content"]["ename"] == "KeyboardInterrupt"
        kernel.run("pass")
        other.gpus(0)
        assert kernel.run("print(gpu.wait(timeout=30).attached)") == "1"


def test_kernel_does_not_wait_for_itself(kernel: Kernel) -> None:
    """If it still has the GPU open, the error comes at once with its two ways out; both work."""
    kernel.run("gpu.resize(2); held = simulate.hold(); held.__enter__()")
    with pytest.raises(Failed, match=r"Draining: This kernel itself still has GPU \d open"):
        kernel.run("gpu.resize(1)")
    assert kernel.run("print(gpu.resize(2).attached)") == "2"
    with pytest.raises(Failed, match="Draining"):
        kernel.run("gpu.release()")
    kernel.run("held.__exit__(None, None, None)")
    assert kernel.run("print(gpu.wait(timeout=30).attached)") == "0"


def in_use(server: Server) -> bool:
    """Tell whether a program has a GPU open now."""
    server.rest("GET", "jupyter-gpu/api/v1/sample")
    return any(gpu["users"] for gpu in server.status()["gpus"])


PROCESS = "p = mp.get_context({!r}).Process(target=simulate.work, args=(600,), daemon=True); p.start(); pid = p.pid"
WORKERS = {
    "fork": PROCESS.format("fork"),
    "spawn": PROCESS.format("spawn"),
    "reparented": (
        "r, w = os.pipe()\n"
        "if not os.fork():\n"
        "    inner = os.fork()\n"
        "    if inner: os.write(w, str(inner).encode()); os._exit(0)\n"
        "    simulate.work(600); os._exit(0)\n"
        "os.wait(); pid = int(os.read(r, 20))"
    ),
}


@pytest.mark.parametrize("how", WORKERS)
def test_kernel_does_not_wait_for_its_workers(kernel: Kernel, server: Server, how: str) -> None:
    """The error names them at once, with what to do; once they end, the GPU is given back."""
    kernel.run(f"import multiprocessing as mp, os, signal\ngpu.resize(1)\n{WORKERS[how]}")
    await_(lambda: in_use(server))
    with pytest.raises(Failed, match=r"Draining: Still open: a multiprocessing worker \(process \d+\)") as caught:
        kernel.run("gpu.release()", timeout=30)
    assert f"(process {kernel.run('print(pid)')})" in caught.value.text
    kernel.run("os.kill(pid, signal.SIGKILL)")
    assert kernel.run("print(gpu.wait(timeout=30).attached)") == "0"


def test_program_of_the_kernel_is_waited_for(kernel: Kernel, server: Server) -> None:
    """It may end by itself: it is named meanwhile, and nothing is raised."""
    code = "from jupyter_gpu import simulate; simulate.work(3)"
    kernel.run(f"import subprocess, sys\ngpu.resize(1)\np = subprocess.Popen([sys.executable, '-c', {code!r}])")
    await_(lambda: in_use(server))
    assert kernel.run("print(gpu.release(timeout=30).attached)") == "0"
    assert "a program that you started here (process" in kernel.errors


def test_draining_names_another_notebook(kernel: Kernel, server: Server) -> None:
    """The end of that process gives the GPU back."""
    with server.kernel() as other:
        kernel.run("gpu.resize(1)")
        other.run("from jupyter_gpu import simulate; held = simulate.hold(); held.__enter__(); import os")
        pid = other.run("print(os.getpid())")
        code = (
            "from jupyter_gpu import Draining\n"
            "try: gpu.release(timeout=0.3)\nexcept Draining as e: print([h['pid'] for h in e.holders])"
        )
        assert kernel.run(code) == f"[{pid}]"
        other.run("held.__exit__(None, None, None)")
        assert kernel.run("print(gpu.wait(timeout=30).attached)") == "0"


def test_simulated_work_without_a_place_for_loads(kernel: Kernel, server: Server) -> None:
    """It opens the GPU all the same: in a pod, the node looks at the processes itself."""
    place = server.folder / "state" / "simulated" / "load"
    assert place.is_dir()
    place.rename(place.with_name("away"))
    try:
        kernel.run("gpu.resize(1); simulate.work(0.1)")
    finally:
        place.with_name("away").rename(place)


def test_simulated_work_makes_load(kernel: Kernel, server: Server) -> None:
    """It ends on time, and an interrupt closes everything."""
    pid = int(kernel.run("import os; print(os.getpid())"))
    load = server.folder / "state" / "simulated" / "load"

    def works() -> list[Path]:
        return list(load.glob(f"{pid}.*"))  # others of this server may have left theirs as they were killed

    kernel.run("gpu.resize(1)")
    kernel.run("import threading; t = threading.Thread(target=simulate.work, args=(2,)); t.start()")
    await_(works)
    kernel.run("t.join()")
    assert not works()
    kernel.client.execute("simulate.work(60)")
    await_(works)
    os.kill(pid, signal.SIGINT)
    assert kernel.client.get_shell_msg(timeout=30)["content"]["ename"] == "KeyboardInterrupt"
    assert not works()
    kernel.run("assert gpu.release(timeout=60).attached == 0")


def test_soft_mode_refuses_a_released_gpu(kernel: Kernel) -> None:
    """Simulated work is refused as by a device rule; and the status says that it is soft mode."""
    kernel.run("gpu.resize(1); old = gpu.devices; gpu.release()")
    with pytest.raises(Failed, match="PermissionError"):
        kernel.run("simulate.work(1, old)")
    assert (
        "oft mode" in kernel.run("print(gpu.status())") or "nothing keeps" in kernel.run("print(gpu.status())").lower()
    )


def test_gpu_in_a_cell_is_a_widget(kernel: Kernel, server: Server) -> None:
    """One line of text stands beside it; the module shows the same; a saved notebook has no token."""
    for code in ("gpu", "jupyter_gpu"):
        kernel.run(code)
        (data,) = kernel.results
        assert data["text/plain"] == "GPU: 0 of 4 GPUs attached"
        assert "application/vnd.jupyter.widget-view+json" in data
    state = kernel.run("print(gpu.widget().get_state())")
    assert server.token not in state
    assert "127.0.0.1" not in state
    assert kernel.run("import ipywidgets; print(len(ipywidgets.VBox([gpu.widget()]).children))") == "1"


def test_status_in_a_cell_is_a_table(calm: Kernel) -> None:
    """The status has an HTML form."""
    calm.run("gpu.resize(1)")
    assert "<table>" in calm.results[0]["text/html"]
    assert "exclusive" in calm.results[0]["text/plain"]


def test_gpu_in_a_terminal_is_a_line(server: Server) -> None:
    """A plain interpreter shows one line of text."""
    code = "from jupyter_gpu import gpu; print(gpu)"
    done = subprocess.run([sys.executable, "-c", code], env=server.terminal, capture_output=True, text=True, check=True)
    assert done.stdout == "GPU: 0 of 4 GPUs attached\n"


OPENS = """
def opens(path):
    try:
        os.close(os.open(path, os.O_RDWR | os.O_NOCTTY))
    except PermissionError:
        return 0
    return 1
"""


@pytest.mark.root
def test_devices_open_only_while_attached(tmp_path: Path) -> None:
    """With device rules: EPERM before, open while attached, EPERM after, in one process."""
    with (
        serve(tmp_path, tmp_path / "state", "--GpuExtension.enforcement=required") as guarded,
        guarded.kernel() as kernel,
    ):
        kernel.run("from jupyter_gpu import gpu, simulate\nimport os")
        paths = sorted(str(path) for path in (tmp_path / "state" / "simulated").glob("gpu*"))
        kernel.run(f"paths = {paths}\n{OPENS}")
        assert kernel.run("print(sum(map(opens, paths)))") == "0"
        kernel.run("s = gpu.resize(2); old = s.devices; simulate.work(0.1)")
        assert kernel.run("print([opens(d.path) for d in old], sum(map(opens, paths)))") == "[1, 1] 2"
        kernel.run("gpu.release(timeout=30)")
        with pytest.raises(Failed, match="PermissionError"):
            kernel.run("simulate.work(1, old)")


def test_attached_file_follows_the_panel(kernel: Kernel, server: Server) -> None:
    """Kernels read it instead of asking; it is removed with the server."""
    kernel.run(
        "import os\nfrom jupyter_gpu.common.attached import AttachedReader\n"
        "def told(): return len(AttachedReader(os.environ['JUPYTER_GPU_ATTACHED']).read().gpus)"
    )
    assert kernel.run("print(told())") == "0"
    server.gpus(3)
    await_(lambda: kernel.run("print(told())") == "3")
    assert kernel.run("print('CUDA_VISIBLE_DEVICES' in os.environ)") == "False"  # they are simulated


def test_server_file_is_removed_with_the_server(tmp_path: Path) -> None:
    """A server that ends leaves no file behind."""
    with serve(tmp_path, tmp_path / "state", "--GpuExtension.enforcement=soft") as running, running.kernel() as kernel:
        path = Path(kernel.run("import os; print(os.environ['JUPYTER_GPU_ATTACHED'])"))
        assert path.exists()
        assert kernel.run("print(bool(os.environ['JUPYTER_GPU_POD']))") == "True"
    assert not path.exists()
