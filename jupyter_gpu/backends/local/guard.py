"""The guard of this server's pod: its device rules, and its processes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jupyter_gpu.model.errors import BackendUnavailable
from jupyter_gpu.model.gpu import Device, Gpu
from jupyter_gpu.model.view import Mode
from jupyter_gpu_node.devices import enforcement
from jupyter_gpu_node.devices.rules.device_rules import DeviceRules
from jupyter_gpu_node.devices.rules_in_force import RulesInForce

from .pod_processes import PodProcesses


class PodGuard:
    """One pod's enforcement. From its making on the pod's process and its children can open no managed device."""

    def __init__(
        self, uid: str, pid: int, managed: frozenset[Device], preference: enforcement.Preference, bare: str = ""
    ) -> None:
        """Deny all managed devices.

        ``bare``: why no single GPU here can be guarded; then the mode is soft, or the server is refused.
        """
        self._uid = uid
        self._pid = pid
        if bare and preference == "required":
            raise BackendUnavailable(f"The operating system cannot guard the GPUs. {bare}")
        if bare:
            self._enforcement: enforcement.Enforcement = enforcement.SoftEnforcement(uid, pid, bare)
        else:
            self._enforcement = enforcement.choose(managed, uid, pid, preference)
        self._rules = RulesInForce(self._enforcement.apply, DeviceRules.closed(managed))
        self.problem = ""
        """Reason the rules could not be changed last time; empty if they were."""

    @property
    def mode(self) -> Mode:
        """Mode of enforcement: by the kernel, or soft."""
        return self._enforcement.mode

    @property
    def why(self) -> str:
        """Note for the user about the mode."""
        return self._enforcement.why

    @property
    def recorded(self) -> str | None:
        """Place of the pod, as its record names it."""
        return self._enforcement.place or None

    @property
    def processes(self) -> PodProcesses:
        """The pod's processes."""
        if self._enforcement.place:
            return PodProcesses.at(self._uid, self._enforcement.place)
        return PodProcesses(self._uid, server=self._pid)

    @property
    def allowed(self) -> frozenset[str]:
        """Uuids that the rules in force allow."""
        return self._rules.allowed

    def allow(self, uuids: Iterable[str], gpus: Mapping[str, Gpu], managed: frozenset[Device]) -> bool:
        """Have rules in force that allow exactly these; false if the system refuses: then the old ones stay."""
        self.problem = ""
        try:
            self._rules.allow(uuids, gpus, managed)
        except OSError as error:
            self.problem = error.strerror or str(error)
            return False
        return True

    def leave(self) -> bool:
        """Allow nothing, and leave; whether nothing of the pod is left."""
        self.allow((), {}, self._rules.managed)
        return self._enforcement.close()
