"""Stands for TensorFlow's context: the devices that it found first are the devices."""

import stand_in_cuda  # type: ignore[import-not-found] # on the path of the kernels only

from ..platform import build_info  # noqa: F401 - the library loads it


class Context:
    def __init__(self) -> None:
        self._physical_devices: list[str] | None = None

    def _initialize_physical_devices(self, reinitialize: bool = False) -> None:
        if self._physical_devices is None or reinitialize:
            self._physical_devices = ["CPU:0", *(f"GPU:{uuid}" for uuid in stand_in_cuda.devices())]

    def list_physical_devices(self, device_type: str | None = None) -> list[str]:
        self._initialize_physical_devices()
        assert self._physical_devices is not None
        return [name for name in self._physical_devices if device_type in (None, name.split(":")[0])]


_context = Context()


def context() -> Context:
    return _context
