"""One pod's device rules: taken over or closed, and changed.

Plain calls that take milliseconds at most; the caller ensures that no two run at once for the same pod.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from jupyter_gpu.model.gpu import Device, Gpu
from jupyter_gpu_node.devices.rules import program_reader
from jupyter_gpu_node.devices.rules.device_program import compile as compile_rules
from jupyter_gpu_node.devices.rules.device_rules import DeviceRules

from . import cgroup
from .freeze import unfreeze
from .pins import PinnedProgram, Pins
from .pod_cgroups import PodCgroups
from .rules_in_force import RulesInForce


class GuardedPod:
    """The rules in force on the group of one pod."""

    def __init__(self, hold: PinnedProgram, rules: DeviceRules | None, allowed: frozenset[str] = frozenset()) -> None:
        self._hold = hold
        self._rules = RulesInForce(lambda after: hold.replace(compile_rules(after)), rules, allowed)
        self.group = hold.group

    @property
    def allowed(self) -> frozenset[str]:
        """Uuids that the rules in force are sure to allow; all of them, unless `known` is false."""
        return self._rules.allowed

    @property
    def known(self) -> bool:
        """Whether this process made the rules that are in force; else an earlier one did."""
        return self._rules.known

    def apply(self, uuids: Iterable[str], gpus: Mapping[str, Gpu], managed: frozenset[Device]) -> bool:
        """Have rules in force that allow exactly these, and return whether that was a change. Raises `OSError`."""
        return self._rules.allow(uuids, gpus, managed)

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
