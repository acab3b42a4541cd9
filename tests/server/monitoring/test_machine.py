"""``GET machine``: all GPUs of the machine, as far as the administrator lets users see them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.model.machine import Machine
from jupyter_gpu.server.app import GpuExtension
from jupyter_gpu.server.viewers import Viewers
from tests.server.api.test_openapi import schema
from tests.server.conftest import Call

CLOSED = schema("Machine", closed=True)


async def test_machine_lists_all_gpus_and_their_servers(call: Call, put: Call, jp_root_dir: Path) -> None:
    """This server comes first, with its folder; every GPU is listed, used or free."""
    await put({"gpus": 1.5})
    answer = await call("machine")
    assert answer.code == 200
    CLOSED.validate(answer.body)
    machine = Machine.from_json(answer.body)
    assert (machine.totals.gpus, machine.totals.free, machine.totals.waiting) == (4, 2500, 0)
    (server,) = machine.servers
    assert (server.here, server.has) == (True, 1500)
    assert sorted(part.milli for gpu in machine.gpus for part in gpu.parts) == [500, 1000]
    assert answer.headers["Cache-Control"] == "no-store"


async def test_concurrent_requests_share_one_reading(
    call: Call, viewers: Viewers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests at one moment, or within a second, are answered by one reading."""
    backend = viewers.backend
    take, taken = backend.machine, 0

    async def machine(shown: Any) -> Machine:
        nonlocal taken
        taken += 1
        return await take(shown)

    monkeypatch.setattr(backend, "machine", machine)
    await asyncio.gather(*(call("machine") for _ in range(5)))
    assert taken == 1


class TestNobody:
    """A server whose administrator shows the machine to nobody."""

    @pytest.fixture
    def gpu_config(self) -> dict[str, Any]:
        """Return the configuration of the extension."""
        return {"show_machine": "nobody"}

    async def test_request_is_refused_and_pages_know(self, call: Call, extension: GpuExtension) -> None:
        """The refusal names the setting; the panel has no section then."""
        answer = await call("machine")
        assert (answer.code, answer.body["reason"]) == (403, "NotPermitted")
        assert "show_machine" in answer.body["message"]
        assert extension.serverapp is not None
        assert extension.serverapp.web_app.settings["page_config_data"]["jupyterGpuMachine"] == "nobody"


class TestOwn:
    """A server whose users see only their own servers."""

    @pytest.fixture
    def gpu_config(self) -> dict[str, Any]:
        """Return the configuration of the extension."""
        return {"show_machine": "own"}

    async def test_answer_says_so(self, call: Call) -> None:
        """The answer has the setting."""
        assert (await call("machine")).body["shown"] == "own"
