"""Limits in the whole cluster, as the chart installs it: written with kubectl, they hold for what users really have."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from jupyter_gpu.model.limits.owner import HUB, USERNAME
from tests.cluster.testbed.commands import CommandFailed
from tests.cluster.whole import pods
from tests.cluster.whole.world import World

pytestmark = [
    pytest.mark.root,
    pytest.mark.cluster,
    pytest.mark.existing,
    pytest.mark.timeout(900),  # the first of all installs the product
]

USER = "ann.limits"


@pytest.fixture
def limits(corner: World) -> Iterator[World]:
    """Return a corner of the cluster, and remove the limits of its user at the end."""
    yield corner
    with contextlib.suppress(CommandFailed):
        corner.kubectl("delete", "gpulimits", "ann-limits", "--ignore-not-found")


def set_limit(corner: World, **spec: Any) -> None:
    """Write the limit of the user."""
    body = {
        "apiVersion": "jupyter-gpu.io/v1alpha1",
        "kind": "GpuLimit",
        "metadata": {"name": "ann-limits"},
        "spec": {"subject": {"kind": "User", "name": USER}, **spec},
    }
    corner.kubectl("apply", "-f", "-", stdin=json.dumps(body))


def of_user(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return the pod as one of the user."""
    annotations = {**pod["metadata"]["annotations"], USERNAME: USER, HUB: "hub"}
    return {**pod, "metadata": {**pod["metadata"], "annotations": annotations}}


def test_limit_holds_for_all_pods_of_a_user(limits: World) -> None:
    """Pods get what their user may have together; raising the limit gives the rest, lowering it takes back."""
    set_limit(limits, max=2, grace="0s")
    limits.create(of_user(pods.pod("first", wants=3, node=limits.one)))
    first = limits.has("first", 2000)
    assert first.allocated
    assert first.allocated.reason == "LimitExceeded"
    limits.create(of_user(pods.pod("second", wants=1, node=limits.two)))
    assert not limits.has("second", 0).usable
    set_limit(limits, max=4, grace="0s")
    usable = limits.has("first", 3000).usable
    (uuid,) = limits.has("second", 1000).usable
    assert limits.opens("second", limits.path_of(uuid))
    assert all(limits.opens("first", limits.path_of(one)) for one in usable)
    set_limit(limits, max=1, grace="0s")
    limits.until(lambda: len(limits.pod("first").usable) + len(limits.pod("second").usable) == 1, "one GPU to be left")
    assert limits.kubectl("get", "gpulimits", "ann-limits").splitlines()[1].split()[:4] == [
        "ann-limits",
        "User",
        USER,
        "1",
    ]
    table = limits.kubectl("get", "gpuaccounts")
    limits.until(lambda: _used(limits) == "1", f"the account to say so:\n{table}")


def _used(corner: World) -> str:
    rows = [line.split() for line in corner.kubectl("get", "gpuaccounts").splitlines()]
    return next((row[4] for row in rows if USER in row), "")
