"""`gpu.client()` in a real kernel of a real server, with simulated GPUs."""

from __future__ import annotations

import os
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from jupyter_gpu.common import rendezvous
from jupyter_gpu.remote import certificates
from tests.gate.building import command
from tests.kernel.kernels import Failed, Kernel
from tests.kernel.servers import Server, await_
from tests.worker.test_processes import gone

IMPORTS = """
import os, time
from jupyter_gpu import gpu, simulate
client = gpu.client()
def where():
    return os.getpid()
def opened():
    held = simulate.hold()                # as CUDA does: open until the process ends
    os.held = held
    return [device.index for device in held.__enter__()]
def workers():
    return len(client.scheduler_info(n_workers=-1)["workers"])
def until(count):
    end = time.monotonic() + 20
    while workers() != count and time.monotonic() < end:
        time.sleep(.02)
    return workers()
"""
STANDING = """
import psutil
def awaited():
    known = {client.run_on_scheduler(os.getpid), *client.run(where).values()}
    while True:
        for child in psutil.Process().children():
            if child.pid not in known and "jupyter_gpu.dask.process" in child.cmdline():
                return child.pid
        time.sleep(.02)
"""


def listening(pid: int) -> list[str]:
    """Return the local addresses at which a process listens for TCP (proc_net(5))."""
    tables = (Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6"))
    rows = [line.split() for table in tables for line in table]
    sockets = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed just now
            sockets.add(str(link.readlink()))
    return [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets]


@pytest.fixture(scope="module")
def notebook(server: Server) -> Iterator[Kernel]:
    """Start the kernel of a notebook, with a client."""
    with server.kernel() as running:
        running.run(IMPORTS)
        yield running


@pytest.fixture
def kernel(notebook: Kernel, server: Server) -> Iterator[Kernel]:
    """Return the same kernel for each test, with no GPU and no future before and after."""
    yield notebook
    notebook.run("futures = one = None; client.cancel(list(client.futures.values())) if client.futures else None")
    server.rest("PUT", "jupyter-gpu/api/v1/request", {"gpus": 0, "overrule": True})
    await_(lambda: server.status()["phase"] == "Idle")


def test_workers_are_the_attached_gpus(kernel: Kernel, server: Server) -> None:
    """Each sees its own alone, in a process of its own; they come with GPUs that the slider adds."""
    assert kernel.run("print(workers())") == "0"
    kernel.run("gpu.resize(1)")
    assert kernel.run("print(until(1), client.submit(lambda: 6 * 7).result())") == "1 42"
    server.gpus(2)
    assert kernel.run("print(until(2))") == "2"
    seen = kernel.run("print(sorted(map(tuple, client.run(opened).values())))")
    assert seen == "[(0,), (1,)]"
    assert kernel.run("print(len({os.getpid(), *client.run(where).values()}))") == "3"


@pytest.mark.parametrize(
    "shrink",
    [lambda kernel, _: kernel.run("gpu.resize(1, timeout=30)"), lambda _, server: server.gpus(1)],
    ids=["resize", "slider"],
)
def test_shrink_moves_what_a_worker_has(
    kernel: Kernel, server: Server, shrink: Callable[[Kernel, Server], object]
) -> None:
    """Also scattered values, which nothing could compute again; the GPU is closed afterwards."""
    kernel.run("gpu.resize(2); until(2); _ = client.run(opened)")
    kernel.run(
        "futures = [client.scatter(bytes([n]) * 1_000_000, direct=True, hash=False, workers=[w]) "
        "for n, w in enumerate(client.scheduler_info(n_workers=-1)['workers'])]"
    )
    assert kernel.run("print(sorted(len(keys) for keys in client.has_what().values()))") == "[1, 1]"
    shrink(kernel, server)
    assert kernel.run("print(until(1), [f.result()[:1] for f in futures])") == "1 [b'\\x00', b'\\x01']"
    await_(lambda: server.status()["phase"] == "Ready")


def test_what_tasks_print_is_in_the_log_of_their_worker(kernel: Kernel) -> None:
    """Also of a task that prints more than a pipe holds, by Python and by a process that it starts, and goes on."""
    kernel.run("gpu.resize(1); until(1)")
    kernel.run(
        "import subprocess\n"
        "def says(size):\n"
        "    print('said', 'x' * size); print('one line\\nanother', end='')\n"
        "    return subprocess.run(['head', '-c', str(size), '/dev/zero']).returncode"
    )
    assert kernel.run("print([client.submit(says, size).result(timeout=50) for size in (3, 200_000)])") == "[0, 0]"
    found = "[text.partition('INFO - ')[2] for log in client.get_worker_logs().values() for _, text in log]"
    kernel.run(f"lines = [line for line in {found} if line[:4] in ('said', 'one ', 'anot')][::-1]")
    assert kernel.run("print([(line[:12], len(line)) for line in lines])") == str(
        [("said xxx", 8), ("one line", 8), ("anothersaid ", 1001), ("one line", 8)]
    )


def test_killed_worker_is_replaced(kernel: Kernel) -> None:
    """Its task is done again by the next one; one that kills each worker fails."""
    kernel.run("import signal; gpu.resize(1); until(1); pid = client.submit(where, pure=False).result()")
    kernel.run("futures = client.submit(where, pure=False); os.kill(pid, signal.SIGKILL)")
    assert kernel.run("print(client.submit(where, pure=False).result(timeout=50) != pid)") == "True"
    with pytest.raises(Failed, match="KilledWorker"):
        kernel.run("client.submit(lambda: os.kill(os.getpid(), signal.SIGKILL)).result(timeout=50)")
    assert kernel.run("print(client.submit(lambda: 1).result(timeout=50))") == "1"


def test_stranger_is_refused(kernel: Kernel) -> None:
    """By the scheduler and by a worker: without TLS, without a certificate, with one of its own."""
    kernel.run("gpu.resize(1); until(1)")
    addresses = kernel.run("print(client.scheduler.address, *client.run(where))").split()
    with_own = certificates.context(certificates.make(), certificates.make().der, server=False)
    without = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context in (with_own, without):  # they do not care whose server it is
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for address in addresses:
        host, port = "127.0.0.1", address.rpartition(":")[2]
        for context in (with_own, without):
            with (
                context.wrap_socket(socket.create_connection((host, int(port)), 5)) as stranger,
                pytest.raises(ssl.SSLError),
            ):
                stranger.recv(1)
        with socket.create_connection((host, int(port)), 5) as plain, suppress(ConnectionResetError):
            plain.sendall(bytes(100))
            assert plain.recv(1000)[:1] in (b"", b"\x15")  # an alert of TLS


def test_nothing_else_listens(kernel: Kernel, server: Server) -> None:
    """A worker has one port, the scheduler one more, its gateway's; the pages are where the dashboard's link names."""
    kernel.run("gpu.resize(1); until(1)")
    pids = kernel.run("print(client.run_on_scheduler(os.getpid), *client.run(where).values())").split()
    assert [len(listening(int(pid))) for pid in pids] == [2, 1]
    link = kernel.run("print(client.dashboard_link)")
    name = link.removeprefix("/jupyter-gpu/dask/").removesuffix("/status")
    assert rendezvous.dask_socket(server.runtime, name).is_socket()


def test_joblib_and_collections(kernel: Kernel) -> None:
    """Parallel parts of a library, and a graph of many tasks, run on the workers."""
    kernel.run("import joblib, dask; import dask.bag as bag; gpu.resize(2); until(2)")
    kernel.run(
        "with joblib.parallel_config('dask'): found = joblib.Parallel()(joblib.delayed(where)() for _ in range(8))"
    )
    assert kernel.run("print(os.getpid() not in found, {*found} <= {*client.run(where).values()})") == "True True"
    assert kernel.run("print(bag.range(100, npartitions=4).map(lambda n: n * n).sum().compute())") == "328350"


def test_arrays(kernel: Kernel) -> None:
    """`dask.array` computes on the workers, also while one of them retires."""
    pytest.importorskip("numpy", reason="not run: needs numpy, which the extra [test] has")
    kernel.run("import dask.array as da; gpu.resize(2); until(2)")
    kernel.run("x = da.ones((2000, 2000), chunks=500).persist(); gpu.resize(1, timeout=60)")
    assert kernel.run("print((x @ x).sum().compute() == 2000 ** 3, until(1)); del x") == "True 1"
    kernel.run("def more(block): calls.append(block.shape); return block + 1")
    kernel.run("calls = []; y = da.ones(4, chunks=4).map_blocks(more)")
    assert kernel.run("print(len(calls) > 0)") == "True", "the guide says so"
    kernel.run("calls = []; y = da.ones(4, chunks=4).map_blocks(more, meta=y._meta)")
    assert kernel.run("print(y.sum().compute(), len(calls))") == "8.0 0"


def test_a_process_stands_by(server: Server) -> None:
    """A GPU that is added is its worker's; another one follows, and ends with the program, also if that is killed."""
    with server.kernel() as own:
        own.run(IMPORTS + STANDING)
        first = own.run("print(awaited())")
        own.run("gpu.resize(1); until(1)")
        seen = own.run("print(*client.run(lambda: (os.getpid(), os.environ['CUDA_VISIBLE_DEVICES'])).values())")
        assert seen == own.run(f"print(({first}, gpu.devices[0].uuid))")
        scheduler = own.run("print(client.run_on_scheduler(os.getpid))")
        own.run("client.shutdown(); client = gpu.client()")
        await_(lambda: gone(int(scheduler)))
        pids = own.run("print(client.run_on_scheduler(os.getpid), until(1), awaited())").split()
        os.kill(int(own.run("print(os.getpid())")), signal.SIGKILL)
        for pid in (pids[0], pids[2]):
            await_(lambda pid=pid: gone(int(pid)))


def test_no_process_of_dask_asks_nvml(server: Server, tmp_path: Path) -> None:
    """NVML opens all GPUs and keeps them open, so one that is given back would stay with the scheduler for ever."""
    source = Path(__file__).parents[1] / "kernel" / "cuda" / "standin_nvml.c"
    library = tmp_path / "libnvidia-ml.so.1"
    command("gcc", "-shared", "-fPIC", "-pthread", source, "-o", library, "-Wl,-soname,libnvidia-ml.so.1")
    device = tmp_path / "gpu0"
    device.touch()
    (tmp_path / "list").write_text(f"GPU-0000 {device}")
    with server.kernel() as kernel:
        env = {"LD_LIBRARY_PATH": str(tmp_path), "STANDIN_NVML": str(tmp_path / "list")}
        kernel.run(f"import os; os.environ.update({env})")
        kernel.run(IMPORTS + "gpu.resize(1); until(1)")
        pids = kernel.run("print(client.run_on_scheduler(where), *client.run(where).values())").split()
        links = [link.readlink() for pid in pids for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()]
        maps = [Path(f"/proc/{pid}/maps").read_text() for pid in pids]
        kernel.run("client.close(); gpu.release(timeout=20)")
    assert len(pids) == 2
    assert device not in links
    assert not any(str(library) in text for text in maps)
