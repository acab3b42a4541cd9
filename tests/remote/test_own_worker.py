"""The variables by which a kernel is told of its GPUs, from views of both places."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu.model.pod_worker import PodWorker, Stage
from jupyter_gpu.model.service import Relation
from jupyter_gpu.remote.own_worker import visible_values
from tests.kernel.builders import gpu, view

AMD = "GPU-8a5f01c2d3e4b600"


def test_each_vendor_has_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here by what the server says of the GPU, on another node by its uuid."""
    for name in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    own = view(2000, attached=2000, simulated=False)
    first, second = own.gpus
    amd = second._replace(gpu=replace(second.gpu, uuid=AMD, vendor="amd"))
    shares = (GpuShare(gpu(9).uuid, 1000), GpuShare(AMD, 1000))
    worker = PodWorker("w1", "node2", Relation.OTHER, Stage.READY, 2000, shares)
    both = replace(own, gpus=(first, amd), workers=(worker,))
    nvidia = "CUDA_VISIBLE_DEVICES"
    amds = "ROCR_VISIBLE_DEVICES"
    assert visible_values(frozenset({(AMD, 1000)}), both) == {nvidia: "", amds: AMD, "HIP_VISIBLE_DEVICES": "0"}
    assert visible_values(frozenset({(first.gpu.uuid, 1000)}), own) == {nvidia: first.gpu.uuid}
    assert visible_values(frozenset({(gpu(9).uuid, 1000)}), both, "w1") == {nvidia: gpu(9).uuid, amds: ""}
    assert visible_values(frozenset({(gpu(9).uuid, 1000)}), own, "w1") == {nvidia: ""}
