"""The devices that rules cover do not depend on the answers of the driver."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import pytest

from jupyter_gpu.model.details import Reading
from jupyter_gpu.model.gpu import Device, Gpu
from jupyter_gpu.model.view import GpuLoad
from jupyter_gpu_node.__main__ import managed
from jupyter_gpu_node.devices import cgroup, guarded_pod
from jupyter_gpu_node.devices.pins import Pins
from jupyter_gpu_node.devices.rules.device_program import compile as compile_rules
from jupyter_gpu_node.devices.rules.device_rules import DeviceRules
from jupyter_gpu_node.gpus import simulated as simulated_gpus
from jupyter_gpu_node.gpus.registry import NVIDIA, Registry
from jupyter_gpu_node.settings import Settings, Simulated
from tests.node.conftest import CLOSED, DEVICES, Child


class Silent:
    """GPUs of a driver that tells nothing."""

    simulated = False
    note = "The driver does not answer."

    def inventory(self) -> tuple[Gpu, ...]:
        return ()

    def loads(self, uuids: Collection[str]) -> Mapping[str, GpuLoad]:
        return {}

    def details(self, uuids: Collection[str]) -> Mapping[str, Reading]:
        return {}

    def processes(self) -> frozenset[int]:
        return frozenset()

    def close(self) -> None:
        pass


def test_every_gpu_is_covered_while_the_driver_is_silent() -> None:
    """After a restart no GPU was ever seen: what exists could be any of them."""
    registry = Registry(Silent, managed(Settings()))
    registry.take()
    assert registry.devices >= NVIDIA
    assert {Device(195, 0), Device(195, 253)} <= NVIDIA
    assert Device(195, 255) not in NVIDIA, "the driver's own node is everybody's"


def test_unplugged_simulated_gpu_is_covered(tmp_path: Path) -> None:
    """It is in no inventory."""
    settings = Settings(simulated=Simulated(3, 40), node="n")
    source = simulated_gpus.SimulatedGpus(tmp_path, 3, first=40, node="n")
    simulated_gpus.unplug(tmp_path, simulated_gpus.uuid_of(2, "n"), node="n")
    registry = Registry(lambda: source, managed(settings))
    registry.take()
    assert len(registry.gpus) == 2
    assert {Device(4, 40), Device(4, 41), Device(4, 42)} <= registry.devices
    assert Device(4, 63) in registry.devices, "there may have been more of them when a pod that runs began"


def test_rules_always_deny_a_device() -> None:
    """Rules that deny nothing are a mistake elsewhere, so they must never be needed."""
    for settings in (Settings(), Settings(simulated=Simulated(0, 40)), Settings(simulated=Simulated(24, 40))):
        registry = Registry(Silent, managed(settings))
        known = frozenset(simulated_gpus.device_of(index, 40) for index in range(24))
        assert DeviceRules(registry.devices | known, known).denied


@pytest.mark.root
def test_adopted_pod_stays_closed_while_the_driver_is_silent(
    unified: Path, uid: str, nodes: tuple[Path, ...], spawn: Callable[..., Child]
) -> None:
    """The rules of the next process are made of what is always covered, not of what is seen."""
    group = cgroup.create(unified, uid)
    child = spawn()
    cgroup.enter(group, child.pid)
    hold = Pins(None).create(uid, group, compile_rules(CLOSED))  # by an earlier process
    pod = guarded_pod.GuardedPod(hold, None)
    registry = Registry(Silent, DEVICES)
    registry.take()
    assert pod.apply([], registry.seen, registry.devices)
    assert child.probe(*nodes) == "----"
    pod.close()
