"""A pod without a control group: since when could any of its processes have given a GPU away?"""

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jupyter_gpu_node.agent.pod import ManagedPod
from jupyter_gpu_node.agent.steps import AgentSteps
from jupyter_gpu_node.agent.tools import Tools
from jupyter_gpu_node.devices.pins import Pins
from jupyter_gpu_node.devices.pod_cgroups import PodCgroups
from jupyter_gpu_node.processes.proc import process_start_time

UID = "8a4c1b9e-0000-4000-8000-000000000001"


def enclosed(pins: Pins, root: Path) -> ManagedPod:
    """A pod after the first step of a node plugin that finds no group of it."""
    inventory = SimpleNamespace(seen={}, devices=frozenset())
    guarding = SimpleNamespace(pins=pins, cgroups=PodCgroups(root))
    tools = cast("Tools", cast("Any", SimpleNamespace(inventory=inventory, guarding=guarding)))
    pod = ManagedPod(UID)
    steps = AgentSteps(tools, {UID: pod}, lambda: cast("Any", None))
    assert asyncio.run(steps.guard(pod)) is False
    assert pod.holdings_known
    return pod


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree of control groups in which the kubelet has no pod."""
    (tmp_path / "groups" / "kubepods").mkdir(parents=True)
    return tmp_path / "groups"


def test_pod_without_a_pin_has_not_run_since_boot(tmp_path: Path, root: Path) -> None:
    """As after a restart of the node: programs that run already have nothing of it, whatever they have open."""
    (tmp_path / "pins").mkdir()
    for directory in (tmp_path / "pins", tmp_path / "none"):
        ticks = time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK")
        began = enclosed(Pins(directory), root).began
        assert (process_start_time(os.getpid()) or 0) < began
        assert began == pytest.approx(ticks, abs=200)


def test_pod_with_a_pin_may_have_run(tmp_path: Path, root: Path) -> None:
    """It ended while no node plugin ran: any program may have what it had. Pins of others say nothing of it."""
    (tmp_path / f"{UID}_3").touch()
    assert enclosed(Pins(tmp_path), root).began == 0
    (tmp_path / f"{UID}_3").rename(tmp_path / f"{UID[:-1]}2_3")
    assert enclosed(Pins(tmp_path), root).began > 0


def test_without_pins_the_start_is_unknown(root: Path) -> None:
    """Then the worst is assumed."""
    assert enclosed(Pins(None), root).began == 0


class Machine:
    """The pins of a node plugin in a real bpffs, and its note of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.note = folder / "run" / "pins.json"
        self.bpffs = folder / "bpf"
        self.bpffs.mkdir()
        self.mount()
        self.directory = self.bpffs / "jupyter-gpu"

    def mount(self) -> None:
        """Or over what is mounted."""
        subprocess.run(["mount", "-t", "bpf", "bpf", str(self.bpffs)], check=True)

    def unmount(self) -> None:
        """All of them."""
        while subprocess.run(["umount", "-q", str(self.bpffs)], check=False).returncode == 0:
            pass

    def pins(self, *, bpffs: bool = True) -> Pins:
        """Return the pins of a process that starts."""
        return Pins.at(self.directory if bpffs else self.folder / "none", self.note)

    def reboot(self) -> None:
        """Neither outlives it."""
        self.unmount()
        self.mount()
        shutil.rmtree(self.note.parent, ignore_errors=True)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """One that has just started."""
    made = Machine(tmp_path)
    yield made
    made.unmount()


@pytest.mark.root
def test_pod_without_a_pin_has_not_run_after_a_boot_or_a_restart(machine: Machine, root: Path) -> None:
    """No pin can have been lost."""
    for _ in range(2):
        assert enclosed(machine.pins(), root).began > 0
    machine.reboot()
    assert enclosed(machine.pins(), root).began > 0


@pytest.mark.root
@pytest.mark.parametrize("how", ["unmounted", "mounted over", "made again", "another directory", "without pins"])
def test_lost_pins_mean_that_any_pod_may_have_run(machine: Machine, root: Path, how: str) -> None:
    """Its program can be outside every pod, with its GPU open: it is not free, until the machine starts anew."""
    first = machine.pins()
    pin = machine.directory / f"{UID}_1"
    pin.mkdir()
    if how == "unmounted":
        machine.unmount()
        assert enclosed(first, root).began == 0, "while the plugin runs"
        machine.mount()
    elif how == "mounted over":
        machine.mount()
        assert enclosed(first, root).began == 0, "while the plugin runs"
    elif how == "made again":
        pin.rmdir()
        machine.directory.rmdir()
        machine.directory.mkdir()
        assert enclosed(first, root).began == 0, "while the plugin runs"
    elif how == "another directory":
        machine.directory = machine.bpffs / "other"
    else:
        pin.rmdir()
        machine.pins(bpffs=False)
    for _ in range(2):
        assert enclosed(machine.pins(), root).began == 0
    machine.reboot()
    assert enclosed(machine.pins(), root).began > 0


@pytest.mark.root
@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"directory":[],"whole":true}', '{"directory":["/a","b",1],"whole":true}']
)
def test_unusable_note_proves_nothing(machine: Machine, root: Path, text: str) -> None:
    """Nor does one that cannot be written, or that was removed from beside its pins."""
    machine.note.parent.mkdir()
    machine.note.write_text(text)
    assert enclosed(machine.pins(), root).began == 0
    machine.note.unlink()
    assert enclosed(machine.pins(), root).began == 0
    machine.reboot()
    machine.note.parent.write_text("no folder")
    assert enclosed(machine.pins(), root).began == 0
