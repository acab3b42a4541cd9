"""Values of the chart for the policy that places new pods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.common import settings_file
from jupyter_gpu_scheduler.rules.scoring.policy import Policy
from jupyter_gpu_scheduler.settings import SchedulerSettings
from tests.cluster.testbed.commands import CommandFailed
from tests.deploy import chart


def policy(values: dict[str, Any], tmp_path: Path) -> Policy:
    """Return the policy as the scheduler reads it."""
    file = tmp_path / "settings.json"
    file.write_text(chart.find(chart.render(values), "ConfigMap", "jupyter-gpu-scheduler")["data"]["settings.json"])
    return settings_file.read(file, SchedulerSettings).policy


def test_defaults_are_those_of_the_program(tmp_path: Path) -> None:
    """The chart's values say what the scheduler would do without them."""
    found, own = policy({}, tmp_path), Policy()
    assert (found.name, found.weights, found.models, found.gpus) == (own.name, own.weights, own.models, own.gpus)
    assert (found.headroom, found.workload) == (own.headroom, own.workload)


def test_own_values_reach_the_scheduler(tmp_path: Path) -> None:
    """Each by itself; keys of the settings file go before."""
    own = {"name": "pack", "weights": {"cpu_headroom": 2}, "headroom": 2.5, "models": {"T4": 1}, "gpus": {"GPU-1": 9}}
    found = policy({"scheduler": {"policy": own}}, tmp_path)
    assert (found.name, found.weights["cpu_headroom"], found.headroom) == ("pack", 2, 2500)
    assert (found.models, found.gpus) == ({"T4": 1}, {"GPU-1": 9})
    both = {"scheduler": {"policy": own, "settings": {"policy": {"headroom": 4}}}}
    assert (policy(both, tmp_path).headroom, policy(both, tmp_path).name) == (4000, "pack")


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"headroom": -1}, "headroom"),
        ({"models": {"H100": 11}}, "models/H100"),
        ({"gpus": {"GPU-1": 10}}, "gpus/GPU-1"),
        ({"gpus": {"GPU-1": 0.5}}, "gpus/GPU-1"),
    ],
)
def test_invalid_values_are_refused(values: dict[str, Any], named: str) -> None:
    """The message names the value."""
    with pytest.raises(CommandFailed, match=f"/scheduler/policy/{named}"):
        chart.text({"scheduler": {"policy": values}})
