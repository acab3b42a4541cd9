"""Pods as the API server reports them, and the part of a record that counts on a node."""

import json
from typing import Any

import pytest

from jupyter_gpu.model.annotations import Attached
from jupyter_gpu.model.gpu import DrainingShare, GpuShare
from jupyter_gpu_node.agent.rules import pod_view

A = "GPU-a"


@pytest.mark.parametrize(
    "state", [None, "running", ["running"], 7, {"terminated": {}}, {}], ids=lambda value: str(value)
)
def test_malformed_state_is_not_running(state: Any) -> None:
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


def test_draining_gpu_is_held() -> None:
    """A pod without a record holds nothing."""
    assert not pod_view.holds(None)
    assert not pod_view.holds(Attached(1))
    assert pod_view.holds(Attached(1, (GpuShare(A, 1000),)))
    assert pod_view.holds(Attached(1, draining=(DrainingShare(A, 1000),)))


def test_malformed_pods_are_read_without_an_exception() -> None:
    """Whatever stands in a Pod's JSON, it is a view; an unreadable decision says why."""
    bad: list[Any] = [{}, {"metadata": 7}, {"status": {"containerStatuses": [1, {"name": "x", "state": 3}]}}]
    for pod in bad:
        assert not pod_view.read(pod).slots
    view = pod_view.read({"metadata": {"uid": "u", "annotations": {"jupyter-gpu.io/allocated": "[]"}}})
    assert view.allocated is None
    assert "jupyter-gpu.io/allocated" in view.problem


def test_only_a_container_with_a_slot_counts_as_running() -> None:
    """A container beside it does not."""

    def pod(name: str) -> dict[str, Any]:
        containers = [
            {"name": "lab", "resources": {"limits": {"jupyter-gpu.io/slot": "1"}}},
            {"name": "side"},
        ]
        return {
            "metadata": {"uid": "u", "namespace": "n", "name": "p"},
            "spec": {"containers": containers},
            "status": {"phase": "Running", "containerStatuses": [{"name": name, "state": {"running": {}}}]},
        }

    assert pod_view.read(pod("lab")).runs
    assert not pod_view.read(pod("side")).runs
    assert pod_view.read(json.loads(json.dumps(pod("lab")))).slots == {"lab"}


def test_record_of_foreign_gpus_is_ignored() -> None:
    """Not what it says of GPUs that the node never had."""
    told = Attached(1, (GpuShare("a", 1000), GpuShare("b", 500)), (DrainingShare("c", 1000), DrainingShare("d", 1)))
    assert pod_view.uuids(told) == frozenset("abcd")
    assert pod_view.uuids(None) == frozenset()
    assert pod_view.without(told, ()) is told
    assert pod_view.without(None, {"a"}) is None
    assert pod_view.without(told, {"b", "c"}) == Attached(1, (GpuShare("a", 1000),), (DrainingShare("d", 1),))
