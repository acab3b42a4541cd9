"""The Jupyter event of a completed resize: once, when it is settled or superseded."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jupyter_server.serverapp import ServerApp

from jupyter_gpu.model.annotations import Allocated, Attached, Reason, Requested, Wish
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu.model.view import Mode, View
from jupyter_gpu.server.events import SCHEMA, SCHEMA_ID
from jupyter_gpu.server.rules.resizes import Resize, Resizes
from tests.server.conftest import Call


def view(version: int, generation: int = 0, wanted: int = 0, granted: int = 0, attached: int = 0) -> View:
    """Return a view with whole GPUs."""

    def shares(count: int) -> tuple[GpuShare, ...]:
        return tuple(GpuShare(f"GPU-{i}", 1000) for i in range(count))

    return View(
        instance="here",
        version=version,
        mode=Mode.SOFT,
        simulated=True,
        backend="local",
        total=4000,
        limit=4000,
        steps=(0, 4000),
        requested=Requested(generation, Wish(wanted * 1000)) if generation else None,
        allocated=Allocated(generation, shares(granted)),
        attached=Attached(generation, shares(attached)),
    )


def test_resize_done_in_one_view_emits_one_event() -> None:
    """Its duration counts from the request, not from the view."""
    resizes = Resizes()
    assert resizes.see(view(1), 0.0) == []
    token = resizes.asked(10.0)
    assert resizes.see(view(2, 1, 2, 2, 2), 10.5) == [
        Resize(old=0, new=2000, requested=2000, reason=None, duration=0.5)
    ]
    resizes.answered(token)
    assert resizes.see(view(3, 1, 2, 2, 2), 11.0) == []


def test_waiting_resize_ends_when_it_is_fulfilled() -> None:
    """It ends when the last GPU is attached; until then there is no event."""
    resizes = Resizes()
    resizes.see(view(1), 0.0)
    token = resizes.asked(1.0)
    assert resizes.see(view(2, 1, 3, 0, 0), 1.1) == []
    resizes.answered(token)
    assert resizes.see(view(3, 1, 3, 1, 1), 5.0) == []
    assert resizes.see(view(4, 1, 3, 3, 1), 6.0) == []
    assert resizes.see(view(5, 1, 3, 3, 3), 7.0) == [Resize(0, 3000, 3000, None, 6.0)]


def test_superseded_resize_ends_with_the_state_it_reached() -> None:
    """The next one begins there."""
    resizes = Resizes()
    resizes.see(view(1), 0.0)
    resizes.see(view(2, 1, 3, 1, 1), 1.0)
    assert resizes.see(view(3, 2, 1, 1, 1), 4.0) == [
        Resize(0, 1000, 3000, "Superseded", 3.0),
        Resize(1000, 1000, 1000, None, 0.0),
    ]


def test_later_refusal_is_the_reason_of_the_event() -> None:
    """The reason says why it is not what was asked for."""
    resizes = Resizes()
    resizes.see(view(1), 0.0)
    refused = replace(view(2, 1, 4), allocated=Allocated(1, (), Reason.LIMIT_EXCEEDED))
    assert resizes.see(refused, 1.0) == [Resize(0, 0, 4000, "LimitExceeded", 0.0)]


def test_older_view_is_ignored() -> None:
    """Views may be seen out of order; events may not."""
    resizes = Resizes()
    resizes.see(view(5, 1, 1, 1, 1), 0.0)
    assert resizes.see(view(4, 0), 1.0) == []
    assert resizes.see(view(5, 2, 1, 1, 1), 1.0) == []


def test_request_of_an_earlier_server_emits_no_event() -> None:
    """Counting starts with the first view."""
    assert Resizes().see(view(1, 7, 2, 1, 1), 0.0) == []


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 4), st.integers(0, 4)), max_size=30))
def test_each_generation_but_the_last_emits_one_event(
    steps: list[tuple[int, int, int]],
) -> None:
    """Whatever the sequence of views, no resize is reported twice and none is forgotten."""
    resizes = Resizes()
    resizes.see(view(0), 0.0)
    generation, wanted, events = 0, 0, []
    for version, (new, amount, attached) in enumerate(steps, start=1):
        if new:
            generation, wanted = generation + 1, amount
        events += resizes.see(view(version, generation, wanted, min(wanted, attached), min(wanted, attached)), version)
    assert max(0, generation - 1) <= len(events) <= generation
    assert all(event.duration >= 0 for event in events)


def test_schema_describes_every_field() -> None:
    """The schema and the class have the same fields."""
    schema = yaml.safe_load(SCHEMA.read_text())
    assert schema["$id"] == SCHEMA_ID
    assert list(schema["properties"]) == list(Resize._fields) == schema["required"]
    assert all(field["description"] and field["title"] for field in schema["properties"].values())


async def test_server_emits_the_event(jp_serverapp: ServerApp, put: Call) -> None:
    """A listener of the server's event bus receives it, validated against the schema."""
    heard: list[dict[str, Any]] = []

    async def listen(logger: Any, schema_id: str, data: dict[str, Any]) -> None:
        heard.append(data)

    assert jp_serverapp.event_logger is not None
    jp_serverapp.event_logger.add_listener(schema_id=SCHEMA_ID, listener=listen)
    await put({"gpus": 2})
    await put({"gpus": 2})
    await put({"gpus": 0.5})
    async with asyncio.timeout(60):
        while len(heard) < 2:
            await asyncio.sleep(0.005)
    for event in heard:
        assert event.pop("duration") < 60
    assert heard == [
        {"old": 0, "new": 2000, "requested": 2000, "reason": None},
        {"old": 2000, "new": 500, "requested": 500, "reason": None},
    ]


async def test_schema_refuses_an_invalid_event(jp_serverapp: ServerApp) -> None:
    """A wrong event would raise an error instead of being logged."""
    assert jp_serverapp.event_logger is not None
    with pytest.raises(Exception, match="old"):
        jp_serverapp.event_logger.schemas.get(SCHEMA_ID).validate({"old": -1})
