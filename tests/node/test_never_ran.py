"""Of a pod without a control group: since when could any of its processes have given a GPU away?"""

import asyncio
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jupyter_gpu_node.member import Member
from jupyter_gpu_node.pins import Pins
from jupyter_gpu_node.places import Places
from jupyter_gpu_node.proc import process_start_time
from jupyter_gpu_node.steps import Steps, Tools

UID = "8a4c1b9e-0000-4000-8000-000000000001"


def enclosed(pins: Pins, root: Path) -> Member:
    """A member after the first step of a node plugin that finds no group of it."""
    inventory = SimpleNamespace(seen={}, devices=frozenset())
    tools = cast("Tools", cast("Any", SimpleNamespace(inventory=inventory, pins=pins, places=Places(root))))
    member = Member(UID)
    steps = Steps(tools, {UID: member}, lambda: cast("Any", None))
    assert asyncio.run(steps.enclose(member)) is False
    assert member.settled
    return member


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree of control groups in which the kubelet has no pod."""
    (tmp_path / "groups" / "kubepods").mkdir(parents=True)
    return tmp_path / "groups"


def test_a_pod_without_a_pin_has_not_run_since_the_machine_started(tmp_path: Path, root: Path) -> None:
    """As after a restart of the node: programs that run already have nothing of it, whatever they have open."""
    (tmp_path / "pins").mkdir()
    for directory in (tmp_path / "pins", tmp_path / "none"):
        ticks = time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK")
        began = enclosed(Pins(directory), root).began
        assert (process_start_time(os.getpid()) or 0) < began
        assert began == pytest.approx(ticks, abs=200)


def test_a_pod_with_a_pin_may_have_run(tmp_path: Path, root: Path) -> None:
    """It ended while no node plugin looked: any program may have what it had. Pins of others say nothing of it."""
    (tmp_path / f"{UID}_3").touch()
    assert enclosed(Pins(tmp_path), root).began == 0
    (tmp_path / f"{UID}_3").rename(tmp_path / f"{UID[:-1]}2_3")
    assert enclosed(Pins(tmp_path), root).began > 0


def test_without_pins_nobody_knows(root: Path) -> None:
    """Then the worst is believed."""
    assert enclosed(Pins(None), root).began == 0
