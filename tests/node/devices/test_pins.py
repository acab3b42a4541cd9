"""Programs pinned in a real bpffs, and found again by a process that knows nothing."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jupyter_gpu_node.devices import bpf, cgroup, freeze
from jupyter_gpu_node.devices.pins import Pins
from jupyter_gpu_node.devices.rules.device_program import compile as compile_rules
from jupyter_gpu_node.devices.rules.device_rules import DeviceRules
from tests.node.conftest import CLOSED, DEVICES, MANAGED, Child

pytestmark = pytest.mark.root
OPEN = compile_rules(DeviceRules(MANAGED, frozenset(DEVICES[:1])))
SHUT = compile_rules(CLOSED)


@pytest.fixture
def bpffs(tmp_path: Path) -> Iterator[Path]:
    """A bpffs of our own."""
    path = tmp_path / "bpf"
    path.mkdir()
    subprocess.run(["mount", "-t", "bpf", "bpf", str(path)], check=True)
    yield path
    subprocess.run(["umount", str(path)], check=True)


@pytest.fixture
def group(unified: Path, uid: str) -> Path:
    """A group of a pod."""
    return cgroup.create(unified, uid)


def names(bpffs: Path) -> list[str]:
    return sorted(path.name for path in (bpffs / "pins").iterdir())


def test_replaced_program_has_exactly_one_pin(
    bpffs: Path, group: Path, uid: str, nodes: tuple[Path, ...], spawn: Callable[..., Child]
) -> None:
    """Each change is in force at once."""
    child = spawn()
    cgroup.enter(group, child.pid)
    pins = Pins.at(bpffs / "pins")
    hold = pins.create(uid, group, SHUT)
    assert child.probe(*nodes) == "----"
    hold.replace(OPEN)
    assert child.probe(*nodes) == "+---"
    assert names(bpffs) == [f"{uid}_2"]
    assert len(bpf.attached(group)) == 1
    pins.discard(uid)
    assert child.probe(*nodes) == "+---"  # a program stays whatever happens to its pin


def test_next_process_adopts_the_program_in_force(bpffs: Path, group: Path, uid: str) -> None:
    """The pin whose program is on the group counts; the others were left by a step that was cut off."""
    first = Pins.at(bpffs / "pins")
    hold = first.create(uid, group, SHUT)
    first.put(uid, 2, bpf.load(OPEN, "jupyter_gpu"))  # pinned, and killed before the replacing
    later = Pins.at(bpffs / "pins")
    taken = later.adopt(uid, group)
    assert taken is not None
    assert taken.in_force()
    assert names(bpffs) == [f"{uid}_1"]
    taken.replace(OPEN)
    assert not hold.in_force()
    assert names(bpffs) == [f"{uid}_2"]
    taken.close()


def test_pin_without_a_program_in_force_is_removed(bpffs: Path, group: Path, uid: str) -> None:
    """The group was made anew, or nothing was attached yet."""
    pins = Pins.at(bpffs / "pins")
    (bpffs / "pins").mkdir()
    pins.put(uid, 1, bpf.load(SHUT, "jupyter_gpu"))
    assert pins.uids() == {uid}
    assert pins.adopt(uid, group) is None
    assert names(bpffs) == []


def test_program_is_found_by_name_without_a_bpffs(tmp_path: Path, group: Path, uid: str) -> None:
    """It needs more rights, and works."""
    pins = Pins.at(tmp_path / "no-bpffs")
    assert pins.directory is None
    pins.create(uid, group, SHUT).close()
    taken = pins.adopt(uid, group)
    assert taken is not None
    taken.replace(OPEN)
    assert taken.in_force()
    assert pins.uids() == frozenset()
    taken.close()


def test_program_of_a_removed_group_is_not_in_force(bpffs: Path, group: Path, uid: str) -> None:
    """Nor is one of a group of the same name that was made anew."""
    pins = Pins.at(bpffs / "pins")
    hold = pins.create(uid, group, SHUT)
    cgroup.remove(group)
    assert not hold.in_force()
    group.mkdir()
    assert not hold.in_force()
    with pytest.raises(OSError, match="Attaching"):
        hold.replace(OPEN)
    assert names(bpffs) == [f"{uid}_1"]
    hold.close()


def test_processes_are_frozen_during_a_scan(group: Path, spawn: Callable[..., Child]) -> None:
    """They run on afterwards, whatever happened in between."""
    child = spawn()
    cgroup.enter(group, child.pid)
    with pytest.raises(RuntimeError, match="meanwhile"), freeze.frozen(group) as still:  # noqa: PT012
        assert still is freeze.FreezeResult.STILL
        assert "frozen 1" in (group / "cgroup.events").read_text()
        raise RuntimeError("meanwhile")
    assert child.run("1 + 1") == 2
    freeze.unfreeze(group)
    freeze.unfreeze(Path("/nowhere"))
