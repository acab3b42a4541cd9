"""The annotation and the labels in which a node publishes its GPUs. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model.annotations import INVENTORY, PREFIX, decode_inventory, encode
from jupyter_gpu.model.errors import InvalidAnnotation
from jupyter_gpu.model.gpu import NVIDIA, Gpu
from jupyter_gpu.model.network import network_of, speed_of, with_network, with_speed
from jupyter_gpu.model.node_use import USE, NodeUse, decode_use

MODEL, COUNT, MEMORY = PREFIX + "gpu.model", PREFIX + "gpu.count", PREFIX + "gpu.memory"
"""Labels: the model if all GPUs are of one, else ``mixed``; how many; MiB of the smallest one."""
MIXED = "mixed"
LABEL_LENGTH = 63
LEAVING = frozenset(
    (
        *("ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler"),
        *("karpenter.sh/disrupted", "karpenter.sh/disruption"),
    )
)
"""Taints of nodes that are to be removed."""


def with_problems(gpus: Iterable[Gpu], problems: Mapping[str, str]) -> tuple[Gpu, ...]:
    """Return the GPUs with these ``problems``, by uuid, behind the problem that a GPU already has."""
    return tuple(
        replace(gpu, healthy=False, health=" ".join(filter(None, (gpu.health, problems[gpu.uuid])))[:500])
        if problems.get(gpu.uuid)
        else gpu
        for gpu in gpus
    )


def with_gate(gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """Return the GPUs of a node that enforces the memory of shares: the gate stands in front of CUDA's driver."""
    return tuple(replace(gpu, gate=True) if gpu.vendor == NVIDIA else gpu for gpu in gpus)


def label_value(text: str) -> str:
    """Return it as a label may hold it: ``NVIDIA A100-SXM4-80GB`` → ``NVIDIA-A100-SXM4-80GB``; may be empty."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", text)[:LABEL_LENGTH].strip("-_.")


def labels(gpus: Sequence[Gpu]) -> dict[str, str | None]:
    """Return the labels of the node; None removes one."""
    models = {label_value(gpu.model) for gpu in gpus} - {""}
    model = models.pop() if len(models) == 1 else MIXED if models else None
    memory = min((gpu.memory for gpu in gpus), default=0) // 2**20
    return {MODEL: model, COUNT: str(len(gpus)), MEMORY: str(memory) if gpus else None}


def published_uplink(node: Any) -> tuple[float | None, int | None]:
    """Return the use and the speed of its uplink that the Node publishes; None: not known."""
    text = objects.annotation(node, INVENTORY)
    try:
        gpus = decode_inventory(text) if text else ()
    except InvalidAnnotation:
        gpus = ()
    return network_of(gpus), speed_of(gpus)


def published_use(node: Any) -> NodeUse:
    """Return the use of CPU, memory and disk that the Node publishes."""
    return objects.decoded(node, USE, decode_use)[0] or NodeUse()


def use_patch(node: Any, use: NodeUse | None) -> dict[str, Any] | None:
    """Return the patch that has the Node publish its use, or none if nothing is known; ``None``: it does already."""
    wanted = None if use is None or use == NodeUse() else encode(use)
    if objects.annotation(node, USE) == wanted:
        return None
    return {"metadata": {"uid": objects.uid(node), "annotations": {USE: wanted}}}


def is_leaving(node: Any) -> bool:
    """Tell whether the Node is cordoned, or a program that removes nodes has marked it."""
    spec = node.get("spec") if isinstance(node, Mapping) else None
    if not isinstance(spec, Mapping):
        return False
    taints = spec.get("taints")
    keys = {taint.get("key") for taint in taints if isinstance(taint, Mapping)} if isinstance(taints, list) else set()
    return spec.get("unschedulable") is True or not keys.isdisjoint(LEAVING)


def patch(
    node: Any, gpus: tuple[Gpu, ...], network: float | None = None, speed: int | None = None
) -> dict[str, Any] | None:
    """Return the patch that has the Node publish ``gpus`` with the use and the speed of its uplink.

    All are slow if the Node is about to be drained. None if it publishes all this already.
    """
    known = tuple(replace(gpu, slow=True) for gpu in gpus) if is_leaving(node) else gpus
    text, wanted = encode(with_speed(with_network(known, network), speed)), labels(gpus)
    there = objects.labels(node)
    if objects.annotation(node, INVENTORY) == text and all(there.get(key) == value for key, value in wanted.items()):
        return None
    return {"metadata": {"uid": objects.uid(node), "annotations": {INVENTORY: text}, "labels": wanted}}


def removal() -> dict[str, Any]:
    """Return the patch that removes all that this program writes to a Node."""
    return {
        "metadata": {"annotations": {INVENTORY: None, USE: None}, "labels": {MODEL: None, COUNT: None, MEMORY: None}}
    }
