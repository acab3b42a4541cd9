"""The annotation and labels of a Node with GPUs."""

import re
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import INVENTORY, decode_inventory
from jupyter_gpu.model.gpu import AMD, Gpu
from jupyter_gpu_node.agent.inventory.rules import annotation as rules


def gpu(number: int, model: str = "NVIDIA A100-SXM4-80GB", memory: int = 80 * 2**30) -> Gpu:
    return Gpu(f"GPU-{number}", number, model, memory)


def written(node: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    """The node after the patch."""
    metadata = dict(node.get("metadata", {}))
    for key in ("annotations", "labels"):
        items = {**metadata.get(key, {}), **body["metadata"].get(key, {})}
        metadata[key] = {name: value for name, value in items.items() if value is not None}
    return {"metadata": metadata}


def test_labels_of_one_model() -> None:
    """Model, number and MiB, for a `nodeSelector`."""
    assert rules.labels((gpu(0), gpu(1))) == {
        rules.MODEL: "NVIDIA-A100-SXM4-80GB",
        rules.COUNT: "2",
        rules.MEMORY: "81920",
    }


def test_labels_of_several_models_and_of_none() -> None:
    """A mixed node says so; one without GPUs has no model and no memory."""
    assert rules.labels((gpu(0), gpu(1, "L4", 2**30)))[rules.MODEL] == rules.MIXED
    assert rules.labels(()) == {rules.MODEL: None, rules.COUNT: "0", rules.MEMORY: None}


@given(st.text(max_size=200))
def test_any_model_becomes_a_label(text: str) -> None:
    """A label is a value that Kubernetes accepts, or nothing."""
    assert re.fullmatch(r"(([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9])?", rules.label_value(text))


def test_unchanged_inventory_is_not_written() -> None:
    """After the patch there is nothing to write; a change of health is one."""
    gpus = (gpu(0), gpu(1))
    body = rules.patch({"metadata": {"uid": "u"}}, gpus)
    assert body is not None
    node = written({"metadata": {"uid": "u"}}, body)
    assert decode_inventory(node["metadata"]["annotations"][INVENTORY]) == gpus
    assert rules.patch(node, gpus) is None
    assert rules.patch(node, rules.with_problems(gpus, {"GPU-1": "broken"})) is not None
    assert rules.patch(written(node, rules.removal()), gpus) is not None


def test_gate_is_for_cuda_alone() -> None:
    """The memory of another vendor's GPUs is not enforced."""
    amd = replace(gpu(1), vendor=AMD)
    assert [one.gate for one in rules.with_gate((gpu(0), amd))] == [True, False]


def test_unhealthy_gpus_report_every_problem() -> None:
    """The text of the driver stays."""
    first = rules.with_problems((gpu(0),), {"GPU-0": "One thing."})
    (both,) = rules.with_problems(first, {"GPU-0": "Another."})
    assert not both.healthy
    assert both.health == "One thing. Another."
