"""Times since which GPUs rest, as views have them."""

from __future__ import annotations

from jupyter_gpu.model.annotations import Attached
from jupyter_gpu.model.view import GpuState, View
from jupyter_gpu.server.rules.idle_times import IdleTimes
from tests.model import golden

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
