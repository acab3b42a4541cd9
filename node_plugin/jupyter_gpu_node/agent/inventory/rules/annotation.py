"""The annotation and the labels in which a node publishes its GPUs. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model.annotations import INVENTORY, PREFIX, decode_inventory, encode
from jupyter_gpu.model.errors import InvalidAnnotation
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.network import network_of, with_network

MODEL, COUNT, MEMORY = PREFIX + "gpu.model", PREFIX + "gpu.count", PREFIX + "gpu.memory"
"""Labels: the model if all GPUs are of one, else ``mixed``; how many; MiB of the smallest one."""
MIXED = "mixed"
LABEL_LENGTH = 63


def with_problems(gpus: Iterable[Gpu], problems: Mapping[str, str]) -> tuple[Gpu, ...]:
    """Return the GPUs with these ``problems``, by uuid, behind the problem that a GPU already has."""
    return tuple(
        replace(gpu, healthy=False, health=" ".join(filter(None, (gpu.health, problems[gpu.uuid])))[:500])
        if problems.get(gpu.uuid)
        else gpu
        for gpu in gpus
    )


def label_value(text: str) -> str:
    """Return it as a label may hold it: ``NVIDIA A100-SXM4-80GB`` → ``NVIDIA-A100-SXM4-80GB``; may be empty."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", text)[:LABEL_LENGTH].strip("-_.")


def labels(gpus: Sequence[Gpu]) -> dict[str, str | None]:
    """Return the labels of the node; None removes one."""
    models = {label_value(gpu.model) for gpu in gpus} - {""}
    model = models.pop() if len(models) == 1 else MIXED if models else None
    memory = min((gpu.memory for gpu in gpus), default=0) // 2**20
    return {MODEL: model, COUNT: str(len(gpus)), MEMORY: str(memory) if gpus else None}


def published_network(node: Any) -> float | None:
    """Return the use of its uplink that the Node publishes; None: none."""
    text = objects.annotation(node, INVENTORY)
    try:
        return network_of(decode_inventory(text)) if text else None
    except InvalidAnnotation:
        return None


def patch(node: Any, gpus: tuple[Gpu, ...], network: float | None = None) -> dict[str, Any] | None:
    """Return the patch that has the Node publish ``gpus`` and the use of its uplink; None if it does already."""
    text, wanted = encode(with_network(gpus, network)), labels(gpus)
    there = objects.labels(node)
    if objects.annotation(node, INVENTORY) == text and all(there.get(key) == value for key, value in wanted.items()):
        return None
    return {"metadata": {"uid": objects.uid(node), "annotations": {INVENTORY: text}, "labels": wanted}}


def removal() -> dict[str, Any]:
    """Return the patch that removes all that this program writes to a Node."""
    return {"metadata": {"annotations": {INVENTORY: None}, "labels": {MODEL: None, COUNT: None, MEMORY: None}}}
