"""Rules for the managed devices that a pod may open. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from jupyter_gpu.model.gpu import Device


@dataclass(frozen=True, slots=True)
class DeviceRules:
    """Rules that deny the devices in ``managed`` but not in ``allowed``; other devices are none of our business.

    Raises `ValueError` if nothing is managed: such rules would open every GPU.
    """

    managed: frozenset[Device]
    allowed: frozenset[Device] = frozenset()

    def __post_init__(self) -> None:
        if not self.managed:
            raise ValueError("Device rules that cover no device at all would open every GPU.")

    @classmethod
    def closed(cls, managed: Iterable[Device]) -> DeviceRules:
        """Return rules that allow no managed device: the state before the first grant."""
        return cls(frozenset(managed))

    @property
    def denied(self) -> tuple[Device, ...]:
        """The denied devices, sorted, so that equal rules always make the same program."""
        return tuple(sorted(self.managed - self.allowed, key=lambda device: (device.major, device.minor)))
