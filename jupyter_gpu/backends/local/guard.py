"""The guard of this server's pod: its device rules, and its processes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jupyter_gpu.model.errors import BackendUnavailable
from jupyter_gpu.model.gpu import Device, Gpu
from jupyter_gpu.model.view import Mode
from jupyter_gpu_node.devices import cgroup, enforcement
from jupyter_gpu_node.devices.rules.device_rules import DeviceRules
from jupyter_gpu_node.devices.rules_in_force import RulesInForce

from .processes.pod_processes import PodProcesses


class PodGuard:
    """One pod's enforcement. From `enter` on the pod's process and its children can open no managed device."""

    def __init__(self, uid: str, pid: int) -> None:
        self._uid = uid
        self._pid = pid
        self._enforcement: enforcement.Enforcement | None = None
        self._rules: RulesInForce | None = None
        self.problem = ""
        """Reason the rules could not be changed last time; empty if they were."""

    def enter(self, managed: frozenset[Device], preference: enforcement.Preference, bare: str = "") -> None:
        """Deny all managed devices.

        ``bare``: why no single GPU here can be guarded; then the mode is soft, or the server is refused.
        """
        if bare and preference == "required":
            raise BackendUnavailable(f"The operating system cannot guard the GPUs. {bare}")
        if bare:
            chosen: enforcement.Enforcement = enforcement.SoftEnforcement(self._uid, self._pid, bare)
        else:
            chosen = enforcement.choose(managed, self._uid, self._pid, preference)
        self._enforcement, self._rules = chosen, RulesInForce(chosen.apply, DeviceRules.closed(managed))

    @property
    def entered(self) -> bool:
        """Whether the pod's process is guarded, or in soft mode."""
        return self._enforcement is not None

    @property
    def mode(self) -> Mode:
        """Mode of enforcement: by the kernel, or soft."""
        return self._enforcement.mode if self._enforcement else Mode.SOFT

    @property
    def soft(self) -> bool:
        """Whether it was found that nothing can be enforced."""
        return self.entered and self.mode is Mode.SOFT

    @property
    def why(self) -> str:
        """Note for the user about the mode."""
        return self._enforcement.why if self._enforcement else ""

    @property
    def recorded(self) -> str | None:
        """Place of the pod, as its record names it."""
        return (self._enforcement.place or None) if self._enforcement else None

    @property
    def processes(self) -> PodProcesses:
        """The pod's processes."""
        place = self.recorded
        return PodProcesses.at(self._uid, place) if place else PodProcesses(self._uid, server=self._pid)

    @property
    def allowed(self) -> frozenset[str]:
        """Uuids that the rules in force allow."""
        return self._rules.allowed if self._rules else frozenset()

    def allow(self, uuids: Iterable[str], gpus: Mapping[str, Gpu], managed: frozenset[Device]) -> bool:
        """Have rules in force that allow exactly these; false if the system refuses: then the old ones stay."""
        assert self._rules is not None
        self.problem = ""
        try:
            self._rules.allow(uuids, gpus, managed)
        except OSError as error:
            self.problem = error.strerror or str(error)
            return False
        return True

    def move_out(self, pid: int) -> None:
        """Move a helper that was started later out of the pod's group, into the one above."""
        if (group := self.processes.group) is not None:
            cgroup.enter(group.parent, pid)

    def leave(self) -> bool:
        """Allow nothing, and leave; whether nothing of the pod is left."""
        if self._enforcement is None or self._rules is None:
            return True
        self.allow((), {}, self._rules.managed)
        return self._enforcement.close()
