"""Nothing blocks the event loop: while GPUs are slow, the server goes on."""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.server.conftest import Call, Connect


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the lock of the records as another server of the machine does, but far too long."""
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


async def longest_pause(until: asyncio.Future[Any]) -> float:
    """Return the longest time in seconds for which the event loop did not run, until that is done."""
    longest, last = 0.0, time.monotonic()
    while not until.done():
        await asyncio.sleep(0.001)
        now = time.monotonic()
        longest, last = max(longest, now - last), now
    return longest


async def test_waiting_request_delays_no_other(put: Call, call: Call, connect: Connect, tmp_path: Path) -> None:
    """While a request waits for the records, status is answered, streams open, and the event loop runs."""
    await put({"gpus": 1})
    with held(tmp_path / "gpu-state" / "pods"):
        waiting = asyncio.ensure_future(put({"gpus": 2}))
        pause = asyncio.ensure_future(longest_pause(waiting))
        began = time.monotonic()
        for _ in range(20):
            assert (await call("status")).code == 200
        assert (await (await connect()).read_until("history"))["points"] == []
        assert time.monotonic() - began < 4
        assert not waiting.done()
    answer = await waiting
    assert (answer.code, answer.body["amounts"]["attached"]) == (200, 2000)
    assert await pause < 2  # as long as the lock was held, if it blocked


async def test_request_that_waits_too_long_is_refused(put: Call, call: Call, tmp_path: Path) -> None:
    """It answers 503 with what to do; the previous request stands."""
    await put({"gpus": 1})
    with held(tmp_path / "gpu-state" / "pods"):
        answer = await put({"gpus": 2}, request_timeout=60)
    assert (answer.code, answer.body["reason"]) == (503, "BackendUnavailable")
    assert (await call("status")).body["requested"]["milli"] == 1000
    assert (await put({"gpus": 3})).body["amounts"]["attached"] == 3000


async def test_200_concurrent_requests_leave_the_loop_free(put: Call, call: Call) -> None:
    """Other requests are answered while they are processed."""
    flood = asyncio.ensure_future(asyncio.gather(*(put({"gpus": i % 3}, request_timeout=60) for i in range(200))))
    pause = asyncio.ensure_future(longest_pause(flood))
    assert (await call("status")).code == 200
    await flood
    assert await pause < 2
