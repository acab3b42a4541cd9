"""A real Jupyter server with the extension, on simulated GPUs in a directory of the test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from jupyter_server.serverapp import ServerApp
from tornado.httpclient import HTTPResponse
from tornado.websocket import WebSocketClientConnection
from traitlets.config import Config

from jupyter_gpu.server.app import GpuExtension
from jupyter_gpu.server.keys import STARTING, VIEWERS
from jupyter_gpu.server.viewers import Viewers
from jupyter_gpu_node.gpus import simulated
from tests.devices import first_minor

API = ("jupyter-gpu", "api", "v1")
GPUS = 4


_TERMINALS = (
    r"ignore:Extension endpoints[^\n]*\n- GET of TermSocket [^\n]*\Z:jupyter_server.utils.JupyterServerAuthWarning"
)
"""The server's own terminals extension has an undecorated handler. A handler of ours in that list would still fail."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let that one warning pass in the tests of this folder."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(_TERMINALS))


@pytest.fixture
def gpu_config() -> dict[str, Any]:
    """Return settings of the extension that a test module overrides to test others."""
    return {}


@pytest.fixture
def server_config() -> dict[str, Any]:
    """Return settings of the server that a test module overrides to test others."""
    return {}


@pytest.fixture
def jp_server_config(
    tmp_path: Path, gpu_config: dict[str, Any], server_config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> Config:
    """Override the fixture of pytest-jupyter: the extension on four simulated GPUs, soft mode."""
    monkeypatch.setattr(simulated, "FIRST_MINOR", first_minor())
    gpu = {
        "simulated_gpus": GPUS,
        "enforcement": "soft",
        "state_dir": str(tmp_path / "gpu-state"),
        "sample_interval": 0.1,
        **gpu_config,
    }
    server = {"jpserver_extensions": {"jupyter_gpu": True}, "allow_unauthenticated_access": False, **server_config}
    return Config({"ServerApp": server, "GpuExtension": gpu})


@pytest.fixture
def jp_serverapp(jp_serverapp: ServerApp, jp_asyncio_loop: asyncio.AbstractEventLoop) -> ServerApp:
    """Add to the fixture of pytest-jupyter that the pod is up, as it is when a server of the command line listens."""
    (app,) = jp_serverapp.extension_manager.extension_apps["jupyter_gpu"]
    assert isinstance(app, GpuExtension)

    async def up() -> None:
        if starting := app.settings[STARTING]:
            await starting
        viewers = app.settings[VIEWERS]
        if isinstance(viewers, Viewers):
            await viewers.backend.sample()  # after what the backend does by itself once it has started

    jp_asyncio_loop.run_until_complete(up())
    return jp_serverapp


@pytest.fixture
def extension(jp_serverapp: ServerApp) -> GpuExtension:
    """Return the running extension."""
    (point,) = jp_serverapp.extension_manager.extension_apps["jupyter_gpu"]
    assert isinstance(point, GpuExtension)
    return point


@pytest.fixture
def viewers(extension: GpuExtension) -> Viewers:
    """Return the running viewers."""
    found = extension.settings[VIEWERS]
    assert isinstance(found, Viewers)
    return found


@dataclass(frozen=True)
class Answer:
    """The answer to a REST call."""

    code: int
    body: Any
    headers: Any


Call = Callable[..., Awaitable[Answer]]
Fetch = Callable[..., Awaitable[HTTPResponse]]


@pytest.fixture
def call(jp_fetch: Fetch) -> Call:
    """Make a REST call below our prefix; errors are answers too."""

    async def call(path: str, **kwargs: Any) -> Answer:
        method = kwargs.setdefault("method", "GET")
        for limit in ("connect_timeout", "request_timeout"):  # usually 20 seconds, also for those that wait in line
            kwargs.setdefault(limit, 60)
        if method in ("PUT", "POST", "PATCH") and "body" not in kwargs:
            kwargs["body"] = b""
        response = await jp_fetch(*API, path, raise_error=False, **kwargs)
        try:
            body = json.loads(response.body) if response.body else None
        except ValueError:
            body = response.body
        return Answer(response.code, body, response.headers)

    return call


@pytest.fixture
def put(call: Call) -> Call:
    """Send ``PUT request`` with a body: an object, or raw bytes."""

    async def put(body: Any, **kwargs: Any) -> Answer:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **kwargs.pop("headers", {})}
        return await call("request", method="PUT", body=data, headers=headers, **kwargs)

    return put


class Stream:
    """The client's end of the stream."""

    def __init__(self, socket: WebSocketClientConnection) -> None:
        self.socket = socket

    async def read(self) -> dict[str, Any] | None:
        """Return the next message; ``None`` at the end."""
        text = await self.socket.read_message()
        if text is None:
            return None
        message = json.loads(text)
        assert isinstance(message, dict)
        return message

    async def read_until(self, kind: str) -> dict[str, Any]:
        """Return the next message of this type."""
        while (message := await self.read()) is not None:
            if message["type"] == kind:
                return message
        raise AssertionError(f"the stream ended before a message of type {kind}")

    async def read_kinds(self, last: str) -> list[dict[str, Any]]:
        """Return all messages up to the first of type ``last``; of views, which may come at any moment, one."""
        messages: list[dict[str, Any]] = []
        while not messages or messages[-1]["type"] != last:
            message = await self.read()
            assert message is not None
            if not messages or message["type"] != "view":
                messages.append(message)
        return messages

    def samples(self, on: bool) -> None:
        """Switch samples on or off."""
        self.socket.write_message(json.dumps({"type": "samples", "on": on}))


Connect = Callable[..., Awaitable[Stream]]


@pytest.fixture
def connect(
    jp_ws_fetch: Callable[..., Awaitable[WebSocketClientConnection]], jp_asyncio_loop: asyncio.AbstractEventLoop
) -> Iterator[Connect]:
    """Open the stream; closed after the test."""
    opened: list[Stream] = []

    async def connect(**kwargs: Any) -> Stream:
        opened.append(Stream(await jp_ws_fetch(*API, "stream", **kwargs)))
        return opened[-1]

    async def close() -> None:
        for stream in opened:
            stream.socket.close()
            while stream.socket.protocol and await stream.read() is not None:
                pass

    yield connect
    jp_asyncio_loop.run_until_complete(asyncio.wait_for(close(), 10))
