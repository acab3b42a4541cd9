"""`jupyter gpu` in a real shell: words, exit codes, Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpu.cli.codes import DONE, DRAINING, ERROR, INTERRUPTED, UNREACHABLE, USAGE, WAITING
from tests.kernel.servers import Server, await_, environment, serve

pytestmark = pytest.mark.usefixtures("give_back")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run one server for the module."""
    folder = tmp_path_factory.mktemp("server")
    with serve(folder, folder / "state", "--GpuExtension.enforcement=soft", "--GpuExtension.limit=3") as running:
        yield running


def test_resize_status_release(server: Server) -> None:
    """They print the panel's words, and exit with 0 when done."""
    for arguments, text in (
        (["resize", "2"], "2 of 3 GPUs attached"),
        (["status"], "2 of 3 GPUs attached"),
        (["resize", "500m"], "0.5 of 3 GPUs attached"),
        (["release"], "0 of 3 GPUs attached"),
    ):
        done = server.cli(*arguments)
        assert (done.returncode, done.stdout.splitlines()[0], done.stderr) == (DONE, text, "")


def test_json_is_the_panels_view(server: Server) -> None:
    """A script reads the same view as the panel; errors are JSON, too."""
    body = json.loads(server.cli("resize", "1", "--json").stdout)
    assert (body["phase"], body["amounts"]["attached"], body["sentence"]) == ("Ready", 1000, "1 of 3 GPUs attached")
    done = server.cli("resize", "4", "--json")
    assert done.returncode == ERROR
    error = json.loads(done.stdout)
    assert (error["reason"], error["details"]["limit"]) == ("LimitExceeded", 3000)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["resize", "4"], ERROR, "limit"),
        (["resize", "two"], USAGE, "'two' is not an amount of GPUs"),
        (["resize", "--", "-1"], USAGE, "negative"),
        (["resize", "1", "--timeout", "nan"], USAGE, "timeout"),
        (["resize", "1", "--memory", "lots"], USAGE, "memory"),
        (["resize"], USAGE, "Name an amount of GPUs, or memory alone"),
        (["resize", "--memory", "any"], USAGE, "Name an amount of GPUs, or memory alone"),
        (["resize", "--memory", "1GiB"], ERROR, "Memory is not enforced here"),
        (["shrink"], USAGE, "invalid choice"),
        ([], USAGE, "required"),
    ],
)
def test_error_is_one_message_on_stderr(server: Server, arguments: list[str], code: int, text: str) -> None:
    """Standard output is empty, and there is no traceback."""
    done = server.cli(*arguments)
    assert done.returncode == code
    assert text in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_waiting_exits_with_3(server: Server, tmp_path: Path) -> None:
    """Not enough is free: 3 with --timeout and with --no-wait, and the request stands."""
    with serve(tmp_path, server.folder / "state", "--GpuExtension.enforcement=soft") as other:
        other.gpus(3)
        done = server.cli("resize", "2", "--timeout", "0.2")
        assert (done.returncode, "request stands" in done.stderr) == (WAITING, True)
        done = server.cli("resize", "3", "--no-wait")
        assert done.returncode == WAITING
        assert done.stdout.startswith("1 of 3: two more when they are free")
        other.gpus(0)
        await_(lambda: server.status()["phase"] == "Ready")


def test_draining_exits_with_4(server: Server) -> None:
    """A GPU that is given back but open in a kernel is reported with the name of that notebook."""
    with server.kernel() as kernel:
        kernel.run("from jupyter_gpu import gpu, simulate; gpu.resize(1); held = simulate.hold(); held.__enter__()")
        done = server.cli("release", "--timeout", "0.2")
        assert done.returncode == DRAINING
        assert "Still open in: python" in done.stderr
        assert server.cli("release", "--no-wait").returncode == DRAINING
        kernel.run("held.__exit__(None, None, None)")


def test_release_in_a_cell_does_not_wait_for_itself(server: Server) -> None:
    """The kernel that runs `!jupyter gpu release` has the GPU open."""
    with server.kernel() as kernel:
        kernel.run("from jupyter_gpu import gpu, simulate; gpu.resize(1); held = simulate.hold(); held.__enter__()")
        kernel.run("import subprocess, sys")
        command = "[sys.executable, '-m', 'jupyter_gpu.cli', 'release']"
        kernel.run(f"done = subprocess.run({command}, capture_output=True, text=True)")
        assert kernel.run("print(done.returncode)") == str(DRAINING)
        assert "This kernel itself still has" in kernel.run("print(done.stderr)")
        kernel.run("held.__exit__(None, None, None)")


def interrupted(server: Server) -> str:
    """Return what an interrupted `resize` prints: nothing before it knows that its request is recorded."""
    command = [sys.executable, "-m", "jupyter_gpu.cli", "resize", "1"]
    with subprocess.Popen(command, env=server.terminal, stderr=subprocess.PIPE, text=True) as waiting:
        await_(lambda: server.status()["phase"] == "Waiting")
        waiting.send_signal(signal.SIGINT)
        _, said = waiting.communicate(timeout=60)
    assert waiting.returncode == INTERRUPTED
    assert "Traceback" not in said
    return said


def test_ctrl_c_keeps_the_request(server: Server, tmp_path: Path) -> None:
    """Ctrl-C prints that the request stands, exits with 130 and without a traceback; the GPUs come later."""
    with serve(tmp_path, server.folder / "state", "--GpuExtension.enforcement=soft") as other:
        other.gpus(4)
        for _ in range(20):
            said = interrupted(server)
            if said:
                break
            server.gpus(0)
            await_(lambda: server.status()["phase"] == "Idle")
        assert "the request for 1 GPU stands" in said
        other.gpus(0)
        await_(lambda: server.status()["phase"] == "Ready")


def everything(terminal: int) -> str:
    """Return the output of a program that has ended."""
    found = b""
    with contextlib.suppress(OSError):  # its end
        while more := os.read(terminal, 65536):
            found += more
    return found.decode()


def test_progress_is_one_line_on_a_terminal(server: Server, tmp_path: Path) -> None:
    """It shows the place in line and the time; without a terminal there is none."""
    with serve(tmp_path, server.folder / "state", "--GpuExtension.enforcement=soft") as other:
        other.gpus(4)
        master, slave = pty.openpty()
        command = [sys.executable, "-m", "jupyter_gpu.cli", "resize", "1", "--timeout", "1.5"]
        with subprocess.Popen(command, env=server.terminal, stderr=slave, stdout=slave, close_fds=True) as waiting:
            os.close(slave)
            assert waiting.wait(60) == WAITING
        shown = everything(master)
        os.close(master)
        assert "[............] 0 of 1: " in shown
        assert " in line · 0 s" in shown
        assert "· 1 s" in shown
        assert "\x1b[2K" in shown
        assert "\r" not in server.cli("resize", "1", "--timeout", "0").stderr


def test_no_server_exits_with_5(tmp_path: Path) -> None:
    """The message says what is missing."""
    env = environment(tmp_path)
    command = [sys.executable, "-m", "jupyter_gpu.cli", "status"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == UNREACHABLE
    assert "No Jupyter server was found" in done.stderr
    assert "jupyter lab" in done.stderr


def test_closed_pipe_is_no_error(server: Server) -> None:
    """`jupyter gpu status | head -0` succeeds."""
    shell = f"{sys.executable} -m jupyter_gpu.cli status | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], env=server.terminal, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (DONE, "")
