"""Taints and tolerations, as Kubernetes compares them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from jupyter_gpu_scheduler.rules.state.taints import Taint, own_tolerations, read_taints, read_tolerations, tolerated

GPU = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        ({"key": "nvidia.com/gpu", "operator": "Exists"}, True),
        ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "nvidia.com/gpu", "operator": "Equal", "value": "present"}, True),
        ({"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "nvidia.com/gpu", "value": "other"}, False),
        ({"key": "nvidia.com/gpu"}, False),
        ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"value": "present"}, False),
        ({}, False),
    ],
)
def test_toleration_is_for_some_taints(toleration: dict[str, str], fits: bool) -> None:
    """By key, value and effect; what is left out is for all, but a value only with `Exists`."""
    taints = read_taints({"taints": [GPU]})
    assert taints == {Taint(*GPU.values())}
    assert tolerated(taints, read_tolerations({"tolerations": [toleration]})) is fits
    assert not tolerated(taints, ())
    assert tolerated((), ())
    more = read_taints({"taints": [GPU, {**GPU, "key": "more"}]})
    assert tolerated(more, read_tolerations({"tolerations": [toleration]})) is (toleration == {"operator": "Exists"})


def test_odd_items_among_others_count_for_nothing() -> None:
    """Other taints beside them are read."""
    assert read_taints({"taints": [None, "gpu", GPU]}) == {Taint(*GPU.values())}


def test_only_what_keeps_pods_out_is_read() -> None:
    """Neither a preference, nor what Kubernetes adds to each pod so that it stays on a node that fails."""
    assert not read_taints({"taints": [{**GPU, "effect": "PreferNoSchedule"}, {"effect": "NoSchedule"}]})
    added = {
        "key": "node.kubernetes.io/not-ready",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    assert own_tolerations({"tolerations": [added, GPU]}) == [GPU]
    assert read_tolerations({"tolerations": [added]}) == frozenset()
    assert len(read_tolerations({"tolerations": [{**added, "effect": "NoSchedule"}]})) == 1


ANY = some.recursive(
    some.none() | some.integers() | some.text(max_size=9),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.sampled_from([*GPU, "operator"]), inner),
    max_leaves=9,
)


@given(ANY, ANY)
def test_odd_input_never_raises(taints: Any, tolerations: Any) -> None:
    """Whatever stands there."""
    found = read_tolerations({"tolerations": tolerations})
    assert tolerated(read_taints({"taints": taints}), found) in (True, False)
    assert not read_taints(taints)
