"""One pod's device rules: taken over or closed, changed, and its processes frozen for the last scan.

Plain calls that take milliseconds at most; the caller ensures that no two run at once for the same pod.
"""

from __future__ import annotations

import contextlib
import enum
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from jupyter_gpu.model.gpu import Device, Gpu
from jupyter_gpu_node.devices.rules import program_reader
from jupyter_gpu_node.devices.rules.device_program import compile as compile_rules
from jupyter_gpu_node.devices.rules.device_rules import DeviceRules

from . import cgroup
from .pins import PinnedProgram, Pins
from .pod_cgroups import PodCgroups
from .unfreeze import Unfreezer

FREEZE, FREEZE_EACH, FREEZE_MOST = 0.05, 0.0002, 0.5
"""Seconds until the processes must be frozen, with more for each; one that waits for a disk may take longer."""

_unfreezer = Unfreezer()


class GuardedPod:
    """The rules in force on the group of one pod."""

    def __init__(self, hold: PinnedProgram, rules: DeviceRules | None, allowed: frozenset[str] = frozenset()) -> None:
        self._hold = hold
        self._rules = rules
        self.group = hold.group
        self.allowed = allowed
        """Uuids that the rules in force are sure to allow; all of them, unless `known` is false."""

    @property
    def known(self) -> bool:
        """Whether this process made the rules that are in force; else an earlier one did."""
        return self._rules is not None

    def apply(self, uuids: Iterable[str], gpus: Mapping[str, Gpu], managed: frozenset[Device]) -> bool:
        """Have rules in force that allow exactly these, and whether that was a change. Raises `OSError`."""
        wanted = frozenset(uuid for uuid in uuids if uuid in gpus)
        devices = frozenset(device for uuid in wanted if (device := gpus[uuid].device))
        rules = DeviceRules(managed | devices, devices)
        changed = rules != self._rules
        if changed:
            self._hold.replace(compile_rules(rules))
            self._rules = rules
        self.allowed = wanted
        return changed

    def in_force(self) -> bool:
        """Tell whether the group still is the one that was guarded."""
        return self._hold.in_force()

    def processes(self) -> tuple[int, ...]:
        """Return the pids of the pod."""
        return cgroup.processes(self.group)

    def close(self) -> None:
        """Close the program; the rules stay in force."""
        self._hold.close()


def guard_pod(
    pins: Pins, cgroups: PodCgroups, uid: str, managed: Collection[Device], gpus: Iterable[Gpu] = ()
) -> tuple[GuardedPod, bool] | None:
    """Guard the pod: what an earlier process has in force stays as it is, else everything is closed.

    ``gpus``: those that the rules of an earlier process are asked for, whether they allow them. The second of the two
    is whether it was closed just now. None: the pod has no group. Raises `OSError`.
    """
    group = cgroups.find(uid)
    if group is None:
        return None
    hold = pins.adopt(uid, group)
    if hold is not None:
        unfreeze(group)  # the earlier process may have been killed in the middle of a scan
        return GuardedPod(hold, None, _open(hold, gpus)), False
    rules = DeviceRules.closed(managed)
    return GuardedPod(pins.create(uid, group, compile_rules(rules)), rules), True


def _open(hold: PinnedProgram, gpus: Iterable[Gpu]) -> frozenset[str]:
    """Return the uuids of ``gpus`` that the rules in force allow; none if the rules can't be read back."""
    try:
        program = program_reader.parse(hold.code())
        return frozenset(gpu.uuid for gpu in gpus if gpu.device and program_reader.allows(program, gpu.device))
    except (OSError, ValueError):
        return frozenset()


class FreezeResult(enum.Enum):
    """Whether the processes of a group are frozen."""

    STILL = enum.auto()
    MOVING = enum.auto()
    """One of them did not stop in time."""
    IMPOSSIBLE = enum.auto()
    """The group's files may not be written here."""


@contextlib.contextmanager
def frozen(group: Path) -> Iterator[FreezeResult]:
    """Freeze all processes of the group while the block runs; yield whether they are.

    If this process dies meanwhile, they are unfrozen (`Unfreezer`).
    """
    try:
        _unfreezer.hold(group)
        (group / "cgroup.freeze").write_text("1")
    except OSError:
        yield FreezeResult.IMPOSSIBLE
        return
    try:
        yield FreezeResult.STILL if _stands_still(group) else FreezeResult.MOVING
    finally:
        unfreeze(group)
        _unfreezer.release(group)


def unfreeze(group: Path) -> None:
    """Unfreeze the pod's processes; harmless if they run, or are gone."""
    with contextlib.suppress(OSError):
        if (group / "cgroup.freeze").read_text().strip() != "0":
            (group / "cgroup.freeze").write_text("0")


def _stands_still(group: Path) -> bool:
    until = time.monotonic() + min(FREEZE + FREEZE_EACH * len(cgroup.processes(group)), FREEZE_MOST)
    while "frozen 1" not in (group / "cgroup.events").read_text().splitlines():
        if time.monotonic() > until:
            return False
        time.sleep(0.0005)
    return True
