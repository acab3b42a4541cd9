"""Times since which GPUs rest, as views have them."""

from __future__ import annotations

import asyncio
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.backends.local import pod
from jupyter_gpu.backends.local.use_looks import UseLooks
from jupyter_gpu.model.annotations import Attached
from jupyter_gpu.model.view import GpuState, View
from jupyter_gpu.server.rules.idle_times import IdleTimes
from tests.model import golden
from tests.server.conftest import Call

CASE = next(case for case in golden.load("views") if case["name"] == "ready, one of two is open and idle")
VIEW = View.from_json(CASE["view"])
BARE = View.from_json({**CASE["view"], "gpus": [{**gpu, "idleSince": None} for gpu in CASE["view"]["gpus"]]})
SINCE = 1767225600


def test_gpu_that_rests_has_the_time_of_its_first_view() -> None:
    """Later views do not change it; a view without rest ends it."""
    times = IdleTimes()
    assert times.added(BARE) is BARE
    for now in (SINCE + 0.7, SINCE + 60.0):
        times.see(BARE, now)
        assert times.added(BARE) == VIEW
    times.see(View.from_json({**CASE["view"], "attached": None}), SINCE + 70.0)
    assert times.added(BARE) is BARE
    times.see(BARE, SINCE + 80.0)
    assert [gpu.idle_since for gpu in times.added(BARE).gpus] == [SINCE + 80, None]


def test_only_an_attached_gpu_rests() -> None:
    """One that is given back, or does not work, says that and nothing else."""
    times = IdleTimes()
    times.see(BARE, float(SINCE))
    leaving = BARE.gpus[0]._replace(state=GpuState.DRAINING)
    (shown,) = times.added(View.from_json({**BARE.to_json(), "gpus": [leaving.to_json()]})).gpus
    assert shown == leaving
    assert isinstance(BARE.attached, Attached)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """An open GPU rests within a second, not within a minute."""

    def looks(*parts: Any, every: float, rest: float) -> UseLooks:
        assert (every, rest) == (5.0, 60.0)
        return UseLooks(*parts, every=0.2, rest=0.5)

    monkeypatch.setattr(pod, "UseLooks", looks)


@pytest.mark.usefixtures("quick")
async def test_server_says_since_when_an_open_gpu_rests(call: Call, put: Call) -> None:
    """From the first view that says so, in each answer; until it is closed."""
    (gpu,) = (await put({"gpus": 1})).body["gpus"]

    async def told(rests: bool) -> Any:
        async with asyncio.timeout(60):
            while True:
                (now,) = (await call("status")).body["gpus"]
                if ("idleSince" in now) is rests:
                    return now.get("idleSince")
                await asyncio.sleep(0.1)

    began = int(time.time())
    with Path(gpu["path"]).open() as opened:
        program = subprocess.Popen(["sleep", "100"], stdin=opened)
    try:
        since = await told(True)
        assert began <= since <= time.time()
        assert await told(True) == since
    finally:
        program.kill()
        program.wait()
    await told(False)
