"""`gpu.at_least` in real kernels and processes of a real server: it holds for everybody, and always ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.kernels import Failed, Kernel
from tests.kernel.servers import SOFT, Server, await_, serve, serve_soft


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run one server for the module."""
    with serve_soft(tmp_path_factory) as running:
        yield running


@pytest.fixture(scope="module")
def kernels(server: Server) -> Iterator[tuple[Kernel, Kernel]]:
    """Start the kernels of two notebooks."""
    with server.kernel() as a, server.kernel() as b:
        for kernel in (a, b):
            kernel.run("from jupyter_gpu import gpu\nimport asyncio, os")
        yield a, b


@pytest.fixture
def two(kernels: tuple[Kernel, Kernel], server: Server) -> Iterator[tuple[Kernel, Kernel]]:
    """Return the same two kernels for each test, with no GPU before and after."""
    yield kernels
    server.rest("PUT", "jupyter-gpu/api/v1/request", {"gpus": 0, "overrule": True})
    await_(lambda: server.status()["phase"] == "Idle")


def wanted(server: Server) -> int:
    """Return the milli that the server requests now."""
    return int(server.status()["amounts"]["requested"])


ENTER, LEAVE = "block = gpu.at_least({}); block.__enter__()", "block.__exit__(None, None, None)"


def test_second_block_keeps_the_gpu_that_the_first_took(two: tuple[Kernel, Kernel], server: Server) -> None:
    """A takes 1, B needs 1 and takes none, A leaves: B still has one; B leaves, and it is given back."""
    a, b = two
    a.run(ENTER.format(1))
    b.run(ENTER.format(1))
    a.run(LEAVE)
    assert b.run("print(gpu.status().attached)") == "1"
    b.run(LEAVE)
    assert wanted(server) == 0


def test_amount_stays_as_large_as_needed_when_the_larger_block_ends(two: tuple[Kernel, Kernel], server: Server) -> None:
    """The larger of what the other block needs and what was requested remains."""
    a, b = two
    a.run("gpu.resize(1)")
    a.run(ENTER.format(4))
    b.run(ENTER.format(2))
    a.run(LEAVE)
    assert wanted(server) == 2000
    b.run("gpu.release()")
    assert wanted(server) == 2000, "code takes nothing from a block"
    assert "holds 2 GPUs while it needs them" in b.run("print(gpu.status())")
    b.run(LEAVE)
    assert wanted(server) == 0


def test_killed_kernel_gives_back(two: tuple[Kernel, Kernel], server: Server) -> None:
    """Nothing of it runs any more, so the server notices by itself."""
    with server.kernel() as killed:
        pid = int(killed.run(f"from jupyter_gpu import gpu\nimport os; {ENTER.format(3)}; print(os.getpid())"))
        assert wanted(server) == 3000
        os.kill(pid, signal.SIGKILL)
        await_(lambda: wanted(server) == 0)


def test_restarted_kernel_gives_back(two: tuple[Kernel, Kernel], server: Server) -> None:
    """The kernel is the same in the list, but its process is another."""
    kernel_id = server.rest("POST", "api/kernels", {"name": "python3"})["id"]
    with server.kernel() as other:
        other.run(f"from jupyter_gpu import gpu; {ENTER.format(2)}")
        ids = {item["id"] for item in server.rest("GET", "api/kernels")} - {kernel_id}
        assert wanted(server) == 2000
        for each in ids:
            server.rest("POST", f"api/kernels/{each}/restart")
        await_(lambda: wanted(server) == 0)
    server.rest("DELETE", f"api/kernels/{kernel_id}")
    # Both kernels of the module were restarted as well.
    for kernel in two:
        await_(lambda kernel=kernel: _answers(kernel))


def _answers(kernel: Kernel) -> bool:
    try:
        return kernel.run("from jupyter_gpu import gpu\nimport asyncio, os; print(1)", timeout=5) == "1"
    except (Failed, TimeoutError):
        return False


SCRIPT = "from jupyter_gpu import gpu\nimport sys\nwith gpu.at_least(1):\n print('in', flush=True)\n sys.stdin.read()"


@pytest.mark.parametrize("prefix", [[], ["unshare", "--pid", "--fork", "--mount-proc"]], ids=["here", "pid namespace"])
@pytest.mark.root
def test_killed_script_gives_back(two: tuple[Kernel, Kernel], server: Server, prefix: list[str]) -> None:
    """This also holds in a pid namespace of its own, where its pid means another process outside."""
    command = [*prefix, sys.executable, "-c", SCRIPT]
    with subprocess.Popen(command, env=server.terminal, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as script:
        assert script.stdout
        assert script.stdout.readline() == b"in\n"
        assert wanted(server) == 1000
        children = Path(f"/proc/{script.pid}/task/{script.pid}/children").read_text().split()
        os.kill(int(children[0]) if prefix else script.pid, signal.SIGKILL)
        await_(lambda: wanted(server) == 0)


def test_forked_child_gives_nothing_back(two: tuple[Kernel, Kernel], server: Server) -> None:
    """It leaves its copy of the block, and its parent's block continues."""
    a, _ = two
    a.run(f"{ENTER.format(1)}\npid = os.fork()\nif not pid:\n {LEAVE}\n os._exit(0)\nos.waitpid(pid, 0)")
    assert wanted(server) == 1000
    a.run(LEAVE)
    assert wanted(server) == 0


def test_interrupted_block_holds_nothing(two: tuple[Kernel, Kernel], server: Server, tmp_path: Path) -> None:
    """The block did not begin, so nothing is held and nothing is waited for."""
    with serve(tmp_path, server.folder / "state", SOFT) as other:
        other.gpus(4)
        a, _ = two
        pid = int(a.run("print(os.getpid())"))
        a.client.execute("with gpu.at_least(2): pass")
        await_(lambda: server.status()["phase"] == "Waiting")
        os.kill(pid, signal.SIGINT)
        assert a.client.get_shell_msg(timeout=30)["content"]["ename"] == "KeyboardInterrupt"
        assert wanted(server) == 0


CANCELLED = """
async def hold():
    async with gpu.at_least(2):
        pass
for wait in (0, 0.001, 0.003, 0.01, 0.02, 0.04, 0.08):
    task = asyncio.ensure_future(hold())
    await asyncio.sleep(wait)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        pass
    for _ in range(200):  # one that is cancelled while it gives back does not wait for that
        if gpu.status().requested:
            await asyncio.sleep(0.05)
    print(gpu.status().requested)
"""


def test_cancelled_task_holds_nothing(two: tuple[Kernel, Kernel], server: Server) -> None:
    """The moment of the request does not matter."""
    assert set(two[0].run(CANCELLED).split()) == {"0"}


INTERRUPTED = """
import signal
signal.signal(signal.SIGALRM, signal.default_int_handler)
for wait in (0.001, 0.004, 0.008, 0.016, 0.03, 0.045, 0.06, 0.1, 0.15):
    try:
        signal.setitimer(signal.ITIMER_REAL, wait)
        with gpu.at_least(2):
            while True:
                pass
    except KeyboardInterrupt:
        pass
    print(gpu.status().requested)
"""


def test_interrupt_at_any_moment_holds_nothing(two: tuple[Kernel, Kernel], server: Server) -> None:
    """An interrupt of the request or inside the block leaves nothing held."""
    assert set(two[0].run(INTERRUPTED).split()) == {"0"}


def test_users_own_error_is_never_hidden(tmp_path: Path) -> None:
    """The server is away at the end of the block: the user's error gets a note; without one there is a warning."""
    folder = tmp_path / "away"
    folder.mkdir()
    with serve(folder, folder / "state", SOFT) as away:
        code = (
            "from jupyter_gpu import gpu\nimport warnings, sys\n"
            "try:\n with gpu.at_least(1):\n  print('in', flush=True); sys.stdin.readline(); 1/0\n"
            "except ZeroDivisionError as e: print(e, e.__notes__)\n"
            "warnings.simplefilter('always')\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", code],
            env=away.terminal,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as script:
            assert script.stdout
            assert script.stdin
            assert script.stdout.readline() == "in\n"
            away.process.kill()
            away.process.wait()
            script.stdin.write("\n")
            script.stdin.flush()
            said = script.stdout.readline()
    assert "division by zero" in said
    assert "given back later" in said


def test_slider_overrules_a_block(two: tuple[Kernel, Kernel], server: Server) -> None:
    """A user takes back what a block holds; the block reports it at its end, and takes nothing from later blocks."""
    a, b = two
    a.run(ENTER.format(3))
    b.run(ENTER.format(1))
    server.rest("PUT", "jupyter-gpu/api/v1/request", {"gpus": 1, "overrule": True})
    assert wanted(server) == 1000
    a.run(LEAVE)
    assert "taken back in the panel" in a.errors
    b.run("gpu.release()")
    assert wanted(server) == 1000
    b.run(LEAVE)
    assert wanted(server) == 0


def test_block_without_a_server_fails_at_once(tmp_path: Path) -> None:
    """The error says so."""
    env = {**os.environ, "JUPYTER_RUNTIME_DIR": str(tmp_path)}
    code = "from jupyter_gpu import gpu\nwith gpu.at_least(1): pass"
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False, timeout=30
    )
    assert "ServerUnreachable: No Jupyter server was found" in done.stderr
