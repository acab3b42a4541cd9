"""Events for people: counted, limited, never in the way."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from jupyter_gpu.kube import Credentials, Kube, Recorder, kubeconfig, recorder
from jupyter_gpu.kube.rules import paths
from tests.cluster.testbed import ControlPlane

pytestmark = pytest.mark.cluster


def about(uid: str) -> dict[str, Any]:
    """A pod, as far as an event needs it."""
    return {"metadata": {"name": "p", "namespace": "default", "uid": uid, "resourceVersion": "7"}}


async def written(kube: Kube, uid: str) -> list[dict[str, Any]]:
    """The events about it."""
    return (await kube.list(paths.events("default"), fields=f"involvedObject.uid={uid}")).items


def run(plane: ControlPlane, play: Callable[[Kube], Awaitable[None]]) -> None:
    """Run a test with a client of the API server."""

    async def whole() -> None:
        async with Kube(kubeconfig(plane.kubeconfig)) as kube:
            await play(kube)

    asyncio.run(whole())


def test_repeated_event_is_counted(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is one object for each kind of event, whose count rises; another message or pod is another one."""
    monkeypatch.setattr(recorder, "AGAIN", 0.1)

    async def play(kube: Kube) -> None:
        told = Recorder(kube, "jupyter-gpu-scheduler", host="n1")
        for _ in range(3):
            told.event(about("same"), "Warning", "GpusPartial", "1 of 2")
        await told.close()
        told.event(about("same"), "Warning", "GpusPartial", "1 of 2")
        told.event(about("same"), "Warning", "GpusPartial", "1 of 3")
        told.event(about("same-too"), "Normal", "GpusPartial", "1 of 2")
        await told.close()
        found = {event["message"]: event for event in await written(kube, "same")}
        assert {message: event["count"] for message, event in found.items()} == {"1 of 2": 4, "1 of 3": 1}
        event = found["1 of 2"]
        assert (event["type"], event["reason"], event["source"]) == (
            "Warning",
            "GpusPartial",
            {"component": "jupyter-gpu-scheduler", "host": "n1"},
        )
        assert event["involvedObject"]["kind"] == "Pod"
        assert len(await written(kube, "same-too")) == 1

    run(plane, play)


def test_forgotten_event_is_written_anew(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster removes events after an hour; a node's events are in the namespace default."""
    monkeypatch.setattr(recorder, "AGAIN", 0.0)

    async def play(kube: Kube) -> None:
        node = {"metadata": {"name": "n1", "uid": "node-uid"}}
        told = Recorder(kube, "c")
        told.event(node, "Normal", "R", "m")
        await told.close()
        (first,) = await written(kube, "node-uid")
        assert first["involvedObject"]["kind"] == "Node"
        await kube.delete(paths.event("default", first["metadata"]["name"]))
        told.event(node, "Normal", "R", "m")
        await told.close()
        (second,) = await written(kube, "node-uid")
        assert second["metadata"]["uid"] != first["metadata"]["uid"]

    run(plane, play)


def test_flood_of_events_is_limited(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Writes are few, memory is bounded, and no caller waits."""
    monkeypatch.setattr(recorder, "BURST", 3.0)
    monkeypatch.setattr(recorder, "PER_SECOND", 0.1)
    monkeypatch.setattr(recorder, "MAX_KINDS", 10)
    monkeypatch.setattr(recorder, "CLOSE_SECONDS", 0.5)

    async def play(kube: Kube) -> None:
        told = Recorder(kube, "c")
        for number in range(100):
            told.event(about("flood"), "Normal", "R", f"message {number}")
        await told.close()
        assert len(await written(kube, "flood")) == 3

    run(plane, play)
    assert "Too many events at once" in caplog.text


def test_unwritable_event_is_logged_and_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    """Without an API server there is no event and no exception."""

    async def play() -> None:
        async with Kube(Credentials("http://127.0.0.1:1"), deadline=1) as kube:
            told = Recorder(kube, "c")
            told.event(about("x"), "Warning", "R", "m" * 5000)
            await told.close()
            await told.close()

    asyncio.run(play())
    assert "could not be written (R" in caplog.text


def test_event_with_a_name_is_made_once(plane: ControlPlane) -> None:
    """A second process that tells the same finds the object of that name, and adds none; nor does it count."""

    async def play(kube: Kube) -> None:
        for _ in range(2):
            told = Recorder(kube, "jupyter-gpu-scheduler")
            told.event(about("named"), "Warning", "GpuLimitLowered", "at noon", name="p.0123")
            await told.close()
        (event,) = await written(kube, "named")
        assert (event["metadata"]["name"], event["count"]) == ("p.0123", 1)

    run(plane, play)
