"""One pod's device rules: taken over or closed, changed, and its processes held still for the last look.

Plain calls that take milliseconds at most; whoever calls sees to it that no two run at once for the same pod.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from jupyter_gpu.model.gpu import Device, Gpu

from . import cgroup
from .device_filter import compile as compile_rules
from .device_rules import DeviceRules
from .pins import Hold, Pins
from .places import Places
from .thawing import Thawer

FREEZE = 0.02
"""Seconds that processes get to stand still; one that waits for a disk may take longer, and is not waited for."""
FEW = 300
"""Processes of a pod that are held still: to look at more would stop them for too long."""

_thawer = Thawer()


class GuardedPod:
    """The rules in force on the group of one pod."""

    def __init__(self, hold: Hold, rules: DeviceRules | None) -> None:
        self._hold = hold
        self._rules = rules
        self.group = hold.group
        self.allowed: frozenset[str] = frozenset()
        """Uuids that the rules in force allow; nothing is known while :attr:`known` is false."""

    @property
    def known(self) -> bool:
        """Whether this process made the rules that are in force; else an earlier one did."""
        return self._rules is not None

    def apply(self, uuids: Iterable[str], gpus: Mapping[str, Gpu], managed: frozenset[Device]) -> bool:
        """Have rules in force that allow exactly these, and whether that was a change. Raises :class:`OSError`."""
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
        """Whether the group still is the one that was guarded."""
        return self._hold.in_force()

    def processes(self) -> tuple[int, ...]:
        """Pids of the pod."""
        return cgroup.processes(self.group)

    def close(self) -> None:
        """Let go; the rules stay in force."""
        self._hold.close()


def enclose(pins: Pins, places: Places, uid: str, managed: Collection[Device]) -> tuple[GuardedPod, bool] | None:
    """Guard the pod: what an earlier process has in force stays as it is, else everything is closed.

    The second of the two is whether it was closed just now. None: the pod has no group. Raises :class:`OSError`.
    """
    group = places.find(uid)
    if group is None:
        return None
    hold = pins.adopt(uid, group)
    if hold is not None:
        thaw(group)  # the earlier process may have been killed in the middle of a look
        return GuardedPod(hold, None), False
    rules = DeviceRules.closed(managed)
    return GuardedPod(pins.create(uid, group, compile_rules(rules)), rules), True


@contextlib.contextmanager
def frozen(group: Path) -> Iterator[bool]:
    """Hold all processes of the group still for as long as the block runs; whether they are.

    They are not where the group's files may not be written, where there are many, or where one does not stop in time.
    If this process dies meanwhile, they run again (:mod:`.thawing`).
    """
    if len(cgroup.processes(group)) > FEW:
        yield False
        return
    try:
        _thawer.hold(group)
        (group / "cgroup.freeze").write_text("1")
    except OSError:
        yield False
        return
    try:
        yield _stands_still(group)
    finally:
        thaw(group)
        _thawer.release(group)


def thaw(group: Path) -> None:
    """Let the pod's processes run; no harm if they do, or are gone."""
    with contextlib.suppress(OSError):
        if (group / "cgroup.freeze").read_text().strip() != "0":
            (group / "cgroup.freeze").write_text("0")


def _stands_still(group: Path) -> bool:
    patience = time.monotonic() + FREEZE
    while time.monotonic() < patience:
        if "frozen 1" in (group / "cgroup.events").read_text().splitlines():
            return True
        time.sleep(0.0005)
    return False
