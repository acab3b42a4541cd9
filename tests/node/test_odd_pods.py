"""Pods whose status is not what the API promises: they count as not running, and nothing breaks."""

from typing import Any

import pytest

from jupyter_gpu_node.agent.rules import pod_view


@pytest.mark.parametrize(
    "state", [None, "running", ["running"], 7, {"terminated": {}}, {}], ids=lambda value: str(value)
)
def test_an_odd_state_is_not_running(state: Any) -> None:
    """Only a mapping with `running` in it is."""
    assert not pod_view.read(_pod(state)).runs
    assert pod_view.read(_pod({"running": {}})).runs


def _pod(state: Any) -> dict[str, Any]:
    limits = {"jupyter-gpu.io/slot": "1"}
    return {
        "metadata": {"name": "a", "uid": "u"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
        "status": {"phase": "Running", "containerStatuses": [{"name": "c", "state": state}]},
    }
