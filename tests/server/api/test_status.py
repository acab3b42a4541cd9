"""``GET status``: now, or as soon as there is something new."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from jupyter_gpu.server.app import GpuExtension
from jupyter_gpu.server.viewers import Viewers
from tests.server.conftest import GPUS, Call


def key(view: dict[str, Any]) -> str:
    """Return the value for ``after``."""
    return f"{view['instance']}:{view['version']}"


async def waiting(viewers: Viewers, count: int) -> None:
    """Wait until there are so many long polls."""
    async with asyncio.timeout(60):
        while viewers.polls != count:
            await asyncio.sleep(0.005)


async def test_status_before_the_first_request(call: Call) -> None:
    """Nothing is requested, nothing attached, and everything available."""
    view = (await call("status")).body
    assert (view["phase"], view["total"], view["limit"]) == ("Idle", GPUS * 1000, GPUS * 1000)
    assert (view["requested"], view["simulated"], view["mode"]) == (None, True, "soft")
    assert view["steps"][0] == 0
    assert view["steps"][-1] == GPUS * 1000
    assert view["sentence"] == "0 of 4 GPUs attached"


async def test_long_poll_ends_with_the_change(call: Call, put: Call, viewers: Viewers) -> None:
    """It answers the new view as soon as there is one, not at its timeout."""
    before = (await call("status")).body
    began = time.monotonic()
    poll = asyncio.ensure_future(call("status", params={"after": key(before), "timeout": "15"}))
    await waiting(viewers, 1)
    await put({"gpus": 1})
    answer = await poll
    assert answer.code == 200
    assert answer.body["version"] > before["version"]
    assert answer.body["requested"]["milli"] == 1000
    assert time.monotonic() - began < 14


async def test_long_poll_for_an_old_view_answers_at_once(call: Call, put: Call) -> None:
    """A client gets a view that it has missed without waiting."""
    before = (await call("status")).body
    now = (await put({"gpus": 1})).body
    for after in (key(before), "another-instance:999999"):
        seen = (await call("status", params={"after": after, "timeout": "30"})).body
        assert seen == {**now, "version": seen["version"]}


async def test_long_poll_without_a_change_ends_at_its_timeout(call: Call, viewers: Viewers) -> None:
    """It answers the same view again, and nothing is left behind."""
    before = (await call("status")).body
    began = time.monotonic()
    answer = await call("status", params={"after": key(before), "timeout": "0.3"})
    assert (answer.code, answer.body) == (200, before)
    assert 0.25 < time.monotonic() - began < 20
    await waiting(viewers, 0)


async def test_long_poll_ends_when_its_client_leaves(
    call: Call, viewers: Viewers, jp_auth_header: dict[str, str], jp_base_url: str, jp_serverapp: Any
) -> None:
    """It ends at once, not at its timeout."""
    before = (await call("status")).body
    _, writer = await asyncio.open_connection("127.0.0.1", jp_serverapp.port)
    writer.write(
        f"GET {jp_base_url}jupyter-gpu/api/v1/status?after={key(before)}&timeout=30 HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: {jp_auth_header['Authorization']}\r\n\r\n".encode()
    )
    await waiting(viewers, 1)
    writer.close()
    await waiting(viewers, 0)


async def test_stopping_server_ends_long_polls(call: Call, extension: GpuExtension, viewers: Viewers) -> None:
    """A long poll answers 503 at once, so that the kernel's client can say what happened."""
    before = (await call("status")).body
    poll = asyncio.ensure_future(call("status", params={"after": key(before), "timeout": "30"}))
    await waiting(viewers, 1)
    await extension.stop_extension()
    answer = await asyncio.wait_for(poll, 20)
    assert (answer.code, answer.body["reason"]) == (503, "BackendUnavailable")
    assert (await call("status")).code == 503
    assert (await call("status", params={"after": key(before)})).code == 503


@pytest.mark.parametrize(
    "after", ["", "x", ":1", "x:", "x:-1", "x:1.5", "x:a", "x" * 65 + ":1", "x:" + "9" * 17, "x:１"]
)
async def test_bad_after_is_refused(call: Call, after: str) -> None:
    """The answer is 400 and names the parameter."""
    answer = await call("status", params={"after": after})
    assert (answer.code, answer.body["details"]) == (400, {"field": "after"})


@pytest.mark.parametrize("timeout", ["", "x", "-1", "30.1", "nan", "inf", "1e9"])
async def test_bad_timeout_is_refused(call: Call, timeout: str) -> None:
    """The answer is 400 and names the parameter."""
    answer = await call("status", params={"after": "x:1", "timeout": timeout})
    assert (answer.code, answer.body["details"]) == (400, {"field": "timeout"})


async def test_cache_buster_of_jupyterlab_is_ignored(call: Call) -> None:
    """JupyterLab appends a bare number to each address, to bypass caches."""
    assert (await call("status", params={"1700000000000": ""})).code == 200
