"""The device rules in force for one pod, and the smallest change to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from jupyter_gpu.model.gpu import Device, Gpu
from jupyter_gpu_node.devices.rules.device_rules import DeviceRules


class RulesInForce:
    """The device rules in force for one pod."""

    def __init__(
        self,
        put: Callable[[DeviceRules], None],
        rules: DeviceRules | None,
        allowed: frozenset[str] = frozenset(),
    ) -> None:
        """``put`` has rules in force when it returns, or raises `OSError`. ``rules``: in force now; None: not known."""
        self._put = put
        self._rules = rules
        self.allowed = allowed
        """Uuids that the rules in force are sure to allow; all of them, unless `known` is false."""

    @property
    def known(self) -> bool:
        """Whether this process made the rules that are in force; else an earlier one did."""
        return self._rules is not None

    @property
    def managed(self) -> frozenset[Device]:
        """The devices that they cover; none if they are not known."""
        return self._rules.managed if self._rules else frozenset()

    def allow(self, uuids: Iterable[str], gpus: Mapping[str, Gpu], managed: frozenset[Device]) -> bool:
        """Have rules in force that allow exactly these, and return whether that was a change.

        Raises `OSError`: then the old ones stay.
        """
        wanted = frozenset(uuid for uuid in uuids if uuid in gpus)
        devices = frozenset(device for uuid in wanted if (device := gpus[uuid].device))
        rules = DeviceRules(managed | devices, devices)
        changed = rules != self._rules
        if changed:
            self._put(rules)
            self._rules = rules
        self.allowed = wanted
        return changed
