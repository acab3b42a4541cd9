"""Stands for the CUDA runtime: looks for GPUs once in a process, and remembers for ever what it found."""

import os

_found: list[str] | None = None


class NoDeviceError(RuntimeError):
    """The error that the runtime raises where it found no GPU."""


def visible() -> list[str]:
    """Return the GPUs that CUDA would find now: NVML looks each time."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        raise AssertionError("CUDA_VISIBLE_DEVICES was never set, so this process would take any GPU")
    return [uuid for uuid in chosen.split(",") if uuid.startswith("GPU-")]


def devices() -> list[str]:
    """The GPUs of the first look, which is the only one."""
    global _found
    if _found is None:
        _found = visible()
    return _found


def need() -> list[str]:
    """The devices; an error, for ever, if there were none."""
    if not devices():
        raise NoDeviceError("cudaErrorNoDevice: no CUDA-capable device is detected")
    return devices()
