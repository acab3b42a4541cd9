"""Managed GPUs that another plugin allocates, too: by their names, and by those of their instances (MIG)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.gpu import Device, Gpu
from jupyter_gpu_node.gpus.rules import instances as instances_module
from jupyter_gpu_node.gpus.rules.instances import Instances
from jupyter_gpu_node.gpus.rules.managed import Given, SecondOwner, second_owners, unknown_instances

GPUS = tuple(Gpu(f"GPU-{index}", index, "NVIDIA A100", 2**30, device=Device(195, 3 - index)) for index in range(4))
"""The numbers of their device nodes are not their indexes, as on many machines."""
MEANT: dict[str, set[int]] = {
    "GPU-0": {0},
    "GPU-1::2": {1},
    "MIG-GPU-2/1/0": {2},
    "MIG-GPU-9/1/0": set(),
    "GPU-9": set(),
    "2": {2},
    "gpu-3": {3, 0},
    "gpu-1-mig-1g.5gb-0-1": {1, 2},
    "nvidia0": {3},
    "nvidia1/gi7": {2},
    "nvidia3/vgpu1": {0},
    "gpu-x": set(),
    "nvidiactl": set(),
    "": set(),
}
"""By a name of NVIDIA's the GPUs that it can mean."""
PARTS = [f"MIG-{letter}" for letter in "abcdef"]
sources = st.sampled_from(["nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "gpu.nvidia.com", "example.com/nic"])
replicas = st.sampled_from(["", "::0", "::17"])
parts = st.builds(str.__add__, st.sampled_from(PARTS), replicas)
devices = st.sampled_from(list(MEANT)) | parts
claims = st.lists(st.builds(Given, st.just("a/b"), sources, st.lists(devices, max_size=4).map(tuple)), max_size=5)
told = st.fixed_dictionaries(
    {},
    optional={gpu.uuid: st.none() | st.just(frozenset(PARTS[index : index + 1])) for index, gpu in enumerate(GPUS)},
)
"""Instance ``a`` is one of GPU 0 and so on; ``e`` and ``f`` are of no GPU that is known."""


@given(claims, told)
def test_every_second_owner_is_found(some: list[Given], told: instances_module.InstancesByGpu) -> None:
    """By uuid whatever its name, by number only where it is NVIDIA's; an instance by what the driver told, and where
    it did not tell, any GPU may be meant that is not known to be whole. What is certain goes first."""
    known = Instances().learn(told)
    found = second_owners(GPUS, some, known)
    for index, gpu in enumerate(GPUS):
        certain, possible = [], []
        for one in some:
            for device in one.devices:
                name = device.partition("::")[0]
                if name in PARTS:
                    owner = "GPU-" + str(PARTS.index(name))
                    if told.get(owner):
                        certain += [(one, device)] * (owner == gpu.uuid)
                    else:
                        possible += [(one, device)] * (told.get(gpu.uuid, ()) is not None)
                elif index in MEANT[device] and ("GPU" in device or "nvidia.com" in one.source):
                    certain.append((one, device))
        if certain:
            assert found[gpu.uuid] == SecondOwner(*certain[0])
        elif possible:
            assert found[gpu.uuid] == SecondOwner(*possible[0], certain=False)
        else:
            assert gpu.uuid not in found


@given(claims, told)
def test_whole_gpu_has_a_second_owner_only_by_its_own_name(
    some: list[Given], told: instances_module.InstancesByGpu
) -> None:
    """One that the driver says is whole is another owner's only by its own name."""
    known = Instances().learn(told)
    for uuid, one in second_owners(GPUS, some, known).items():
        assert one.certain or uuid not in known.whole
    assert unknown_instances(some, known) == any(
        name in PARTS and name not in known.gpus for one in some for name in (d.partition("::")[0] for d in one.devices)
    )


@pytest.mark.parametrize(
    ("device", "instance"),
    [
        ("GPU-0", False),
        ("GPU-0::1", False),
        ("0", False),
        ("nvidia0/vgpu1", False),
        ("MIG-a", True),
        ("MIG-a::1", True),
        ("MIG-GPU-0/1/0", True),
        ("gpu-0-mig-1g.5gb-0-1", True),
        ("nvidia0/gi7", True),
    ],
)
def test_whole_gpu_is_no_instance(device: str, instance: bool) -> None:
    """A GPU that was given as a whole is not said to have been given in part."""
    assert SecondOwner(Given("a/b", "nvidia.com/gpu", (device,)), device).instance is instance


def test_number_never_means_a_simulated_gpu() -> None:
    """Its node is no GPU's of NVIDIA."""
    gpu = replace(GPUS[0], device=Device(4, 3))
    nodes = Given("a/b", "nvidia.com/gpu", ("nvidia3", "gpu-3"))
    assert second_owners([gpu], [nodes], Instances()) == {}
    assert second_owners([replace(gpu, device=None)], [nodes], Instances()) == {}


def test_device_of_amds_may_be_any_gpu_of_amds() -> None:
    """Its plugin names the PCI bus. Names and numbers of NVIDIA's, and instances, are never AMD's."""
    amd = replace(GPUS[0], uuid="GPU-a", vendor="amd")
    bus = Given("a/b", "amd.com/gpu", ("0000:c1:00.0",))
    assert second_owners([amd, GPUS[1]], [bus], Instances()) == {
        "GPU-a": SecondOwner(bus, "0000:c1:00.0", certain=False)
    }
    nvidia = Given("a/b", "nvidia.com/gpu", ("0", "MIG-x"))
    assert second_owners([amd], [nvidia], Instances()) == {}


@pytest.mark.parametrize(
    ("device", "first", "second"),
    [
        ("0000:c1:00.0", True, None),
        ("0000:C1:00.0", True, None),
        ("0000:c1:00.0-slice-3", True, None),
        ("0000:c1:00.0::2", False, False),
        ("0000:c2:00.0", None, True),
        ("0000:c3:00.0", None, None),
        ("0001:c1:00.0", None, None),
        ("amdgpu_xcp_30", False, False),
        ("218", False, False),
    ],
)
def test_device_of_amds_is_the_gpu_at_its_place_on_the_bus(
    device: str, first: bool | None, second: bool | None
) -> None:
    """Known for certain by a PCI address, or a part of its time; any of them by a name that is not understood."""
    amd = [replace(GPUS[index], uuid=f"GPU-{index}", vendor="amd") for index in range(2)]
    buses = {"GPU-0": "0000:c1:00", "GPU-1": "0000:c2:00"}
    found = second_owners(amd, [Given("a/b", "amd.com/gpu", (device,))], Instances(), buses)
    certain = [one.certain if (one := found.get(gpu.uuid)) else None for gpu in amd]
    assert certain == [first, second]
    assert second_owners(amd, [Given("a/b", "example.com/gpu", (device,))], Instances(), buses) == {}


def test_gpu_of_amds_without_a_known_place_may_be_meant() -> None:
    """Certainty about another GPU excludes it not, as two may be at one place."""
    amd = [replace(GPUS[index], uuid=f"GPU-{index}", vendor="amd") for index in range(2)]
    bus = Given("a/b", "amd.com/gpu", ("0000:c1:00.0",))
    found = second_owners(amd, [bus], Instances(), {"GPU-0": "0000:c1:00"})
    assert {uuid: one.certain for uuid, one in found.items()} == {"GPU-0": True, "GPU-1": False}


def test_reported_instances_are_remembered() -> None:
    """An instance stays its GPU's while the driver is silent, and so does MIG mode; that a GPU is whole does not."""
    known = Instances().learn({"GPU-0": frozenset({"MIG-a"}), "GPU-1": None})
    assert known == Instances({"MIG-a": "GPU-0"}, frozenset({"GPU-1"}), frozenset({"GPU-0"}))
    assert known.learn({}) == Instances({"MIG-a": "GPU-0"}, divided=frozenset({"GPU-0"}))
    assert known.learn({"GPU-0": None}) == Instances({"MIG-a": "GPU-0"}, frozenset({"GPU-0"}))
    assert known.learn({"GPU-0": frozenset({"MIG-b"})}).gpus == {"MIG-a": "GPU-0", "MIG-b": "GPU-0"}


@given(st.lists(st.frozensets(st.integers(0, 30).map(str), max_size=7), max_size=20), st.integers(0, 12))
def test_memory_is_bounded(answers: list[frozenset[str]], most: int) -> None:
    """The driver's last answer is always known; of the rest the newest is kept."""
    known = Instances()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(instances_module, "MOST", most)
        for names in answers:
            before = known
            known = before.learn({"GPU-0": names})
            assert names <= known.gpus.keys() <= names | before.gpus.keys()
            assert len(known.gpus) <= max(most, len(names))
            old = [name for name in before.gpus if name not in names]
            kept = [name for name in known.gpus if name not in names]
            assert kept == old[len(old) - len(kept) :]
            assert len(kept) == min(len(old), max(0, most - len(names)))
