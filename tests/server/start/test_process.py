"""A server as people start it: a process of its own, with a real kernel, and its end."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.lib.jupyter_server import API, Server, simulated

TRY = """
import errno, os
def can_open(path):
    try:
        os.close(os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK))
        return "yes"
    except OSError as error:
        return errno.errorcode[error.errno]
"""


def ask(kernel: Any, expression: str) -> str:
    """Return the value of a text expression in the kernel."""
    reply = kernel.execute_interactive("", user_expressions={"x": expression}, output_hook=lambda _: None, timeout=30)
    value = reply["content"]["user_expressions"]["x"]
    assert value["status"] == "ok", value
    return str(value["data"]["text/plain"]).strip("'")


@pytest.mark.root
def test_running_kernel_opens_only_granted_gpus(tmp_path: Path) -> None:
    """It is the same kernel process, with its variables, before and after each resize."""
    with Server(tmp_path, *simulated(tmp_path)) as server:
        view = server.call("PUT", f"{API}/request", {"gpus": 2})
        assert view["mode"] == "enforced"
        first, second = (gpu["path"] for gpu in view["gpus"])
        server.call("PUT", f"{API}/request", {"gpus": 0})
        kernel = server.kernel()
        try:
            ask(kernel, f"exec({TRY!r}) or 'ok'")
            pid = ask(kernel, "str(os.getpid())")
            seen = []
            for gpus in (0, 2, 1, 0):
                cards = server.call("PUT", f"{API}/request", {"gpus": gpus})["gpus"]
                attached = [gpu["path"] for gpu in cards if gpu["state"] == "attached"]  # one may drain for a moment
                seen += [(ask(kernel, f"can_open({path!r})"), path in attached) for path in (first, second)]
            assert {answer for answer, given in seen if given} == {"yes"}
            assert {answer for answer, given in seen if not given} == {"EPERM"}
            assert [given for _, given in seen].count(True) == 3
            assert ask(kernel, "str(os.getpid())") == pid
        finally:
            kernel.stop_channels()


@pytest.mark.root
def test_no_request_is_answered_before_the_server_is_guarded(tmp_path: Path) -> None:
    """The server starts while the system moves it into its control group; at its first answer it is there."""
    for turn in range(5):
        with Server(tmp_path / str(turn), *simulated(tmp_path)) as server:
            groups = Path(f"/proc/{server.process.pid}/cgroup").read_text()
            assert "/jupyter-gpu-" in groups


@pytest.mark.parametrize("mode", ["soft", pytest.param("required", marks=pytest.mark.root)])
def test_ending_server_gives_everything_back(tmp_path: Path, mode: str) -> None:
    """Its kernel holds a GPU open until the end; then the next server can have all of them at once."""
    with Server(tmp_path, *simulated(tmp_path), f"--GpuExtension.enforcement={mode}") as server:
        path = server.call("PUT", f"{API}/request", {"gpus": 1})["gpus"][0]["path"]
        kernel = server.kernel()
        pid = int(ask(kernel, "str(__import__('os').getpid())"))
        assert ask(kernel, f"(globals().__setitem__('held', open({path!r}, 'rb', buffering=0)), 'open')[1]") == "open"
        assert list((tmp_path / "gpus" / "pods").glob("*.json"))
        kernel.stop_channels()
    assert server.process.returncode == 0
    assert not Path(f"/proc/{pid}").exists()
    # A kernel that was killed a moment ago may still be on its way out; then its record says that it has ended.
    left = [json.loads(path.read_text()) for path in (tmp_path / "gpus" / "pods").glob("*.json")]
    assert all(record["ended"] for record in left)
    log = (tmp_path / "log").read_text()
    assert "Traceback" not in log
    assert "[E " not in log
    with Server(tmp_path / "next", *simulated(tmp_path), f"--GpuExtension.enforcement={mode}") as server:
        server.call("PUT", f"{API}/request", {"gpus": 4})
        for _ in range(600):  # until the last process of the other one is gone
            if server.call("GET", f"{API}/status")["amounts"]["attached"] == 4000:
                break
            time.sleep(0.05)
        else:
            pytest.fail("something of the server that ended keeps a GPU")
