"""A Jupyter server in a pod of a user with a limit: REST, stream, code and command line, against a real API server."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_server.serverapp import ServerApp

from jupyter_gpu.model.view import LIMIT_LOWERED
from jupyter_gpu.server.app import GpuExtension
from tests.backends_kubernetes.stage import ML, Stage
from tests.cluster.testbed import ControlPlane, control_plane
from tests.server.api.test_openapi import ERROR, VIEW
from tests.server.conftest import Call, Connect, Fetch
from tests.server.monitoring.test_metrics import scrape

pytestmark = pytest.mark.cluster

Run = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """etcd and the API server."""
    with control_plane() as made:
        yield made


@pytest.fixture(autouse=True)
def stage(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """A node with three GPUs, and on it the pod of the server."""
    with Stage(plane) as made:
        monkeypatch.setattr(GpuExtension, "make_backend", lambda _: made.make("p"))
        yield made


@pytest.fixture
def run(jp_serverapp: ServerApp, tmp_path: Path) -> Run:
    """Run Python in a process of the server's user; return its exit code and what it printed."""
    environ = {
        **os.environ,
        "JUPYTER_GPU_URL": jp_serverapp.connection_url,
        "JUPYTER_GPU_TOKEN": str(jp_serverapp.identity_provider.token),
        "HOME": str(tmp_path),
    }

    async def run(*arguments: str) -> tuple[int, str, str]:
        done = await asyncio.to_thread(
            lambda: subprocess.run(
                [sys.executable, *arguments], env=environ, capture_output=True, text=True, timeout=120, check=False
            )
        )
        return done.returncode, done.stdout, done.stderr

    return run


async def until(call: Call, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return the first status for which the condition holds."""
    view = (await call("status")).body
    async with asyncio.timeout(60):
        while not condition(view):
            after = f"{view['instance']}:{view['version']}"
            view = (await call("status", params={"after": after, "wait": "5"})).body
    return dict(view)


async def test_wish_above_the_limit_is_refused_everywhere(stage: Stage, call: Call, put: Call, run: Run) -> None:
    """REST, code and command line say whose limit it is; none of them changes the request."""
    stage.limit(2000)
    VIEW.validate((await put({"gpus": 1})).body)
    before = await until(call, lambda view: view["limit"] == 2000 and view["phase"] == "Ready")
    VIEW.validate(before)
    assert before["limit_source"] == "set for group ml by root on 3 May"

    answer = await put({"gpus": 3})
    ERROR.validate(answer.body)
    assert (answer.code, answer.body["reason"]) == (422, "LimitExceeded")
    assert answer.body["message"].startswith("Your limit is 2 GPUs, set for group ml by root on 3 May. Ask for that")
    assert answer.body["details"] == {"limit": 2000, "maximum": 2000, "source": ML.to_json()}

    code = (
        "from jupyter_gpu import LimitExceeded, gpu\n"
        "try: gpu.resize(3)\n"
        "except LimitExceeded as error: print(error.limit, error.maximum, error.source['name'])\n"
        "print(gpu.status().limit_source)"
    )
    status, out, _ = await run("-c", code)
    assert (status, out) == (0, "2000 2000 ml\nset for group ml by root on 3 May\n")
    with_block = "from jupyter_gpu import gpu\nwith gpu.at_least(3): pass"
    status, _, err = await run("-c", with_block)
    assert status == 1
    assert "LimitExceeded: Your limit is 2 GPUs, set for group ml" in err
    status, _, err = await run("-m", "jupyter_gpu.cli", "resize", "3")
    assert status == 1
    assert "Your limit is 2 GPUs, set for group ml by root on 3 May." in err

    after = (await call("status")).body
    assert (after["requested"], after["amounts"]) == (before["requested"], before["amounts"])


async def test_wish_that_stands_is_explained_everywhere(stage: Stage, call: Call, run: Run, jp_fetch: Fetch) -> None:
    """Status, command line and a wait say what the limit gives, what waits, and that it comes when it is raised."""
    stage.limit(2000)
    await stage.asking(stage.annotate("p", requested="3"))
    view = await until(call, lambda view: view["settled"] and view["amounts"]["attached"] == 2000)
    assert (view["phase"], view["reason"]) == ("Waiting", "LimitExceeded")
    assert view["sentence"] == "2 of 3: one more when your limit of 2 GPUs is raised"
    figures = await scrape(jp_fetch)
    assert figures["jupyter_gpu_server_limit_gpus"] == {(): 2}
    assert figures["jupyter_gpu_server_waiting_seconds"] == {(): 0}, "free GPUs would not help"
    status, out, _ = await run("-m", "jupyter_gpu.cli", "status")
    assert status == 0
    assert out.startswith(view["sentence"])
    assert "  Your limit is 2 GPUs, set for group ml by root on 3 May.\n" in out
    status, _, err = await run("-m", "jupyter_gpu.cli", "wait")
    assert status == 1
    assert "The request for 3 GPUs stands: the rest comes when that allows it; gpu.resize(2) asks for no more." in err
    stage.limit(3000)
    view = await until(call, lambda view: view["phase"] == "Ready")
    assert (view["amounts"]["attached"], view["requested"]["generation"]) == (3000, 0)
    assert (await run("-m", "jupyter_gpu.cli", "wait"))[0] == 0


async def test_lowered_limit_reaches_the_stream_and_kernels(
    stage: Stage, put: Call, connect: Connect, extension: GpuExtension
) -> None:
    """Pages get it without polling, and the file that kernels read before each cell has the same words."""
    stage.limit(3000)
    await put({"gpus": 3})
    stream = await connect()
    stage.limit(1000, grace=600)
    async with asyncio.timeout(60):
        while not (found := _lowered(await stream.read_until("view"))):
            continue
    assert "This server has 3 GPUs: 2 GPUs will be taken back at" in found
    assert extension._endpoint is not None
    assert f"notice {found}\n" in extension._endpoint.attached.read_text()


def _lowered(message: dict[str, Any]) -> str:
    view = message["view"]
    VIEW.validate(view)
    return next((one["message"] for one in view["conditions"] if one["type"] == LIMIT_LOWERED), "")
