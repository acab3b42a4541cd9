"""``GET sample``: the load now and the use of time shares, for programs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from jupyter_gpu.model.view import Sample
from jupyter_gpu.server.viewers import Viewers
from tests.model.test_share import ONE as SHARE
from tests.server.conftest import Call, Connect


@pytest.fixture
def gpu_config() -> dict[str, Any]:
    """Set an interval between samples that is so long that no second one is taken by chance."""
    return {"sample_interval": 600.0, "history": 6000.0}


class Backend:
    """A counter of the real backend's samples, which can fail or have shares."""

    def __init__(self, sample: Callable[[], Awaitable[Sample]]) -> None:
        self._sample = sample
        self.taken = 0
        self.broken = False

    async def sample(self) -> Sample:
        """Return a sample of the real backend, with a share."""
        self.taken += 1
        if self.broken:
            raise RuntimeError("no load today")
        return (await self._sample())._replace(shares={SHARE.uuid: SHARE})


@pytest.fixture
def backend(viewers: Viewers, monkeypatch: pytest.MonkeyPatch) -> Backend:
    """Replace the samples of the real backend."""
    counted = Backend(viewers.backend.sample)
    monkeypatch.setattr(viewers.backend, "sample", counted.sample)
    return counted


async def test_sample_has_the_shares(call: Call, backend: Backend) -> None:
    """They are the backend's."""
    answer = await call("sample")
    assert answer.code == 200
    assert answer.body["shares"] == {SHARE.uuid: SHARE.to_json()}
    assert Sample.from_json(answer.body).shares == {SHARE.uuid: SHARE}
    assert answer.headers["Cache-Control"] == "no-store"


async def test_concurrent_requests_share_one_sample(call: Call, backend: Backend, connect: Connect) -> None:
    """Requests at one moment and within the interval get one sample; a panel that opens then shows the same."""
    answers = await asyncio.gather(*(call("sample") for _ in range(5)))
    answers.append(await call("sample"))
    assert backend.taken == 1
    assert {answer.body["time"] for answer in answers} == {answers[0].body["time"]}
    history = await (await connect()).read_until("history")
    assert [point["time"] for point in history["points"]] == [answers[0].body["time"]]


async def test_new_sample_is_taken_after_the_interval(call: Call, backend: Backend, viewers: Viewers) -> None:
    """The same holds while a panel looks; its next sample then comes an interval later."""
    await call("sample")
    viewers.sampler.interval = 0.0
    first, second = await call("sample"), await call("sample")
    assert backend.taken == 3
    assert first.body["time"] < second.body["time"]


async def test_requested_sample_is_shown_to_an_open_panel(
    call: Call, backend: Backend, connect: Connect, viewers: Viewers
) -> None:
    """The panel shows a sample that was taken for others, and its own timer begins again."""
    stream = await connect()
    await stream.read_until("sample")
    assert viewers.sampler.scheduled
    viewers.sampler.taken_at = float("-inf")  # as if the interval were over, and the timer late
    answer = await call("sample")
    assert (await stream.read_until("sample"))["sample"] == answer.body
    assert backend.taken == 2
    assert viewers.sampler.scheduled


async def test_failed_sample_is_reported_and_retried(call: Call, backend: Backend, viewers: Viewers) -> None:
    """The answer is 503 with what to do, never an old sample; the next one that works is returned."""
    viewers.sampler.interval = 0.0
    assert (await call("sample")).code == 200
    backend.broken = True
    answer = await call("sample")
    assert (answer.code, answer.body["reason"]) == (503, "BackendUnavailable")
    assert "Try again" in answer.body["message"]
    backend.broken = False
    assert (await call("sample")).code == 200
