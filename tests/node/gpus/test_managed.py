"""Managed GPUs: the rules, and GPUs that others have allocated according to the kubelet."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.common.settings_file import SettingsError
from jupyter_gpu.model.details import Reading
from jupyter_gpu.model.gpu import Device, Gpu
from jupyter_gpu.model.view import GpuLoad
from jupyter_gpu_node.gpus.rules.instances import InstancesByGpu
from jupyter_gpu_node.gpus.rules.managed import Choice, Given, Managed
from jupyter_gpu_node.gpus.source import OurGpus
from jupyter_gpu_node.kubelet.pod_resources import others
from jupyter_gpu_node.kubelet.protos import podresources_v1_pb2 as api
from tests.node.test_settings import read

GPUS = tuple(
    Gpu(f"GPU-{index}", index, "NVIDIA A100-SXM4-80GB" if index < 2 else "NVIDIA T4", 2**30, device=Device(195, index))
    for index in range(4)
)
names = st.lists(st.sampled_from([gpu.uuid for gpu in GPUS])).map(tuple)
indexes = st.lists(st.integers(0, 3)).map(tuple)
models = st.lists(st.sampled_from(["NVIDIA-A100-SXM4-80GB", "nvidia t4", "NVIDIA H100"])).map(tuple)
choices = st.builds(Choice, st.none() | names, st.none() | indexes, st.none() | models)


def ours(choice: Choice) -> set[int]:
    """Indexes."""
    return {gpu.index for gpu in GPUS if choice.includes(gpu)}


@given(choices)
def test_named_gpus_are_managed(choice: Choice) -> None:
    """And nothing else; all where nothing is set, none where it is set and empty."""
    by_model = {"NVIDIA-A100-SXM4-80GB": {0, 1}, "nvidia t4": {2, 3}, "NVIDIA H100": set[int]()}
    wanted = {int(uuid[-1]) for uuid in choice.uuids or ()} | set(choice.indexes or ())
    wanted |= {index for model in choice.models or () for index in by_model[model]}
    nothing_set = choice.uuids is None and choice.indexes is None and choice.models is None
    assert ours(choice) == ({0, 1, 2, 3} if nothing_set else wanted)


def test_node_can_have_its_own_choice(tmp_path: Path) -> None:
    """It takes the place of the one for all; the default is all GPUs."""
    managed = read(tmp_path, {"managed": {"models": ["NVIDIA T4"], "nodes": {"node2": {"indexes": [0]}}}}).managed
    assert [ours(managed.on(node)) for node in ("node1", "node2")] == [{2, 3}, {0}]
    assert ours(read(tmp_path, {}).managed.on("node1")) == {0, 1, 2, 3}
    assert ours(Managed(uuids=()).on("node1")) == set()


@pytest.mark.parametrize(
    "value",
    [
        {"index": [0]},
        {"indexes": [-1]},
        {"indexes": ["0"]},
        {"uuids": [" "]},
        {"models": "T4"},
        {"nodes": {"a": {"nodes": {}}}},
    ],
)
def test_invalid_choice_is_refused(tmp_path: Path, value: dict[str, Any]) -> None:
    """Before anything is done by it."""
    with pytest.raises(SettingsError, match=r"managed|indexes|uuid"):
        read(tmp_path, {"managed": value})


def test_allocations_of_others_are_read() -> None:
    """Devices of device plugins and of DRA drivers, without our slots."""
    container = api.ContainerResources(
        name="main",
        devices=[
            api.ContainerDevices(resource_name="jupyter-gpu.io/slot", device_ids=["slot-0001"]),
            api.ContainerDevices(resource_name="nvidia.com/gpu", device_ids=["GPU-0", "GPU-1"]),
        ],
        dynamic_resources=[
            api.DynamicResource(
                claim_name="c", claim_resources=[api.ClaimResource(driver_name="gpu.nvidia.com", device_name="gpu-3")]
            )
        ],
    )
    answer = api.ListPodResourcesResponse(
        pod_resources=[api.PodResources(name="pod", namespace="team", containers=[container])]
    )
    assert others(answer, "jupyter-gpu.io/slot") == (
        Given("team/pod", "nvidia.com/gpu", ("GPU-0", "GPU-1")),
        Given("team/pod", "gpu.nvidia.com", ("gpu-3",)),
    )


class Source:
    """A source of GPUs for the test."""

    simulated = False
    note = "a note"
    closed = False

    def inventory(self) -> tuple[Gpu, ...]:
        return GPUS

    def loads(self, uuids: Collection[str]) -> dict[str, GpuLoad]:
        return {uuid: GpuLoad(0.5, None) for uuid in uuids}

    def details(self, uuids: Collection[str]) -> dict[str, Reading]:
        return {uuid: Reading(slowdown=90) for uuid in uuids}

    def processes(self) -> frozenset[int]:
        return frozenset({7})

    def close(self) -> None:
        self.closed = True


def test_source_leaves_out_the_gpus_of_others() -> None:
    """All else is as the source reports it."""
    source = Source()
    seen = OurGpus(source, Choice(indexes=(1, 3)))
    assert seen.inventory() == (GPUS[1], GPUS[3])
    assert (seen.simulated, seen.note, sorted(seen.processes())) == (False, "a note", [7])
    assert seen.loads({"GPU-1"}) == {"GPU-1": GpuLoad(0.5, None)}
    assert seen.details({"GPU-1"}) == {"GPU-1": Reading(slowdown=90)}
    assert seen.instances() == {}, "it knows nothing of them"
    seen.close()
    assert source.closed
    assert not Choice(uuids=("GPU-0",)).includes(replace(GPUS[0], uuid="GPU-00"))


class Divided(Source):
    """One that knows of instances."""

    def instances(self) -> InstancesByGpu:
        return {"GPU-0": frozenset({"MIG-a"}), "GPU-1": None}


def test_instances_of_unmanaged_gpus_are_reported() -> None:
    """A pod that has one of them has nothing of ours."""
    assert OurGpus(Divided(), Choice(indexes=(1,))).instances() == {"GPU-0": frozenset({"MIG-a"}), "GPU-1": None}
