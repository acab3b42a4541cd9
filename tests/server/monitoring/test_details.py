"""``GET details``: facts about the GPUs in addition to their load."""

from __future__ import annotations

import asyncio
import os

import pytest

from jupyter_gpu.model.details import Details, GpuDetails
from jupyter_gpu.server.monitoring.recent import Recent
from jupyter_gpu.server.viewers import Viewers
from jupyter_gpu_node.gpus import simulated
from tests.server.api.test_openapi import schema
from tests.server.conftest import Call

CLOSED = schema("Details", closed=True)


async def test_details_have_limits_rates_and_memory_by_process(call: Call, put: Call) -> None:
    """The answer names this server's own processes that have a GPU open, and only counts and sums the others."""
    assert (await call("details")).body["gpus"] == {}
    view = (await put({"gpus": 1})).body
    (card,) = view["gpus"]
    home = os.path.dirname(card["path"])  # noqa: PTH120
    simulated.write_load(home, card["uuid"], 0.5, 2**30)
    await asyncio.sleep(2.1)
    found = (await call("details")).body
    CLOSED.validate(found)
    one = found["gpus"][card["uuid"]]
    assert (one["slowdown"], one["power_limit"]) == (90, 300.0)
    assert one["processes"] == []
    assert one["others"] == {"processes": 1, "memory": 2**30}, "it has the GPU not open, so it is not ours"
    with open(card["path"], "rb"):  # noqa: PTH123
        await asyncio.sleep(2.1)
        one = (await call("details")).body["gpus"][card["uuid"]]
    assert [(use["pid"], use["memory"]) for use in one["processes"]] == [(os.getpid(), 2**30)]
    assert "others" not in one


async def test_sample_has_temperature_and_power(call: Call, put: Call) -> None:
    """Values that are cheap to read come with every sample."""
    await put({"gpus": 1})
    (load,) = (await call("sample")).body["gpus"].values()
    assert load["temperature"] > 0
    assert load["power"] > 0


async def test_concurrent_requests_share_one_measurement(
    call: Call, viewers: Viewers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests at one moment, or within seconds, are answered by one measurement."""
    taken = 0

    async def details() -> Details:
        nonlocal taken
        taken += 1
        return Details(1.5, {"GPU-1": GpuDetails(90)})

    monkeypatch.setattr(viewers.backend, "details", details)
    answers = await asyncio.gather(*(call("details") for _ in range(5)))
    answers.append(await call("details"))
    assert taken == 1
    assert {str(answer.body) for answer in answers} == {"{'time': 1.5, 'gpus': {'GPU-1': {'slowdown': 90}}}"}
    assert answers[0].headers["Cache-Control"] == "no-store"


async def test_failed_measurement_is_not_kept() -> None:
    """The next request measures again; a client that goes away takes nothing from the others."""
    outcomes = [RuntimeError("no"), 1, 2]

    async def take() -> object:
        await asyncio.sleep(0.01)
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    recent = Recent(take, 60)
    with pytest.raises(RuntimeError):
        await recent.now()
    first, second = asyncio.create_task(recent.now()), asyncio.create_task(recent.now())
    await asyncio.sleep(0)
    first.cancel()
    assert await second == 1
    assert await recent.now() == 1
    recent.seconds = 0
    assert await recent.now() == 2
