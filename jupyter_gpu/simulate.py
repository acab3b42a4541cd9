"""Work for simulated GPUs: for demonstrations, charts and tests.

It behaves like a real program: it opens the devices with `open()`, keeps them open while it works, and fails with
PermissionError where it may not open one. On another node, in a ``%%gpu`` cell or a call, it uses the GPUs there.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from jupyter_gpu.common.rules.visible import VISIBLE
from jupyter_gpu.kernel.api import gpu as _gpu
from jupyter_gpu.kernel.cuda.errors import NoGpuAttached
from jupyter_gpu.kernel.reports.status import GpuDevice, GpuStatus
from jupyter_gpu.model.errors import ServerUnreachable
from jupyter_gpu.model.view import Mode
from jupyter_gpu_node.gpus.simulated import VARIABLE, clear_load, write_load

_OPEN = os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
_TICK = 0.2
_WAVE = 8.0
"""Seconds from one peak of the load to the next."""

Choice = Iterable[int | str | GpuDevice]


def work(
    seconds: float,
    gpus: Choice | None = None,
    *,
    busy: float = 0.9,
    memory: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> None:
    """Keep GPUs busy for ``seconds``.

    ``gpus``: indices, uuids or items of `gpu.devices`; default all attached ones, or those of ``CUDA_VISIBLE_DEVICES``.
    ``busy``: 0–1, the peak of a load that comes in waves; ``memory``: bytes on each GPU, default more than half of it.
    ``progress`` is called with 0 … 1.

    Raises PermissionError for a GPU that may not be opened, `NoGpuAttached` where there is none,
    and ValueError for numbers that make no sense and for real GPUs.
    """
    if not 0 <= seconds < math.inf or not 0 <= busy <= 1 or (memory is not None and memory < 0):
        raise ValueError("'seconds' and 'memory' are 0 or more, 'busy' is 0 to 1.")
    with hold(gpus) as held:
        began = time.monotonic()
        try:
            while (passed := time.monotonic() - began) < seconds:
                for place, device in enumerate(held):
                    part = device.milli / 1000
                    used = int(0.6 * part * device.memory) if memory is None else memory
                    with contextlib.suppress(FileNotFoundError):  # in a pod, whose node looks at its processes itself
                        write_load(_directory(device), device.uuid, part * wave(busy, passed, place), used)
                if progress:
                    progress(passed / seconds)
                time.sleep(min(_TICK, max(0.0, seconds - passed)))
        finally:
            for device in held:
                with contextlib.suppress(OSError):  # it ends with this process anyway
                    clear_load(_directory(device), device.uuid)
    if progress:
        progress(1.0)


@contextlib.contextmanager
def hold(gpus: Choice | None = None) -> Iterator[tuple[GpuDevice, ...]]:
    """Keep GPUs open and do nothing; inside `with`, they cannot be given back. Raises like `work`."""
    chosen = _choose(gpus)
    descriptors: list[int] = []
    try:
        for device in chosen:
            descriptors.append(os.open(device.path, _OPEN))  # noqa: PERF401 - what is open must be closed if one fails
        yield chosen
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def wave(busy: float, seconds: float, place: int) -> float:
    """Return the load at a time, 0 … ``busy``: each GPU's waves are shifted, so that their curves can be told apart."""
    swing = 0.5 + 0.5 * math.sin(2 * math.pi * seconds / _WAVE + place)
    return busy * (0.7 + 0.3 * swing)


def _attached() -> tuple[tuple[GpuDevice, ...], GpuStatus | None]:
    """Return the GPUs that can be used here, and what the server says; in a worker's pod there is none."""
    try:
        status = _gpu.status()
    except ServerUnreachable:
        from jupyter_gpu.worker import pod_gpus  # a kernel of a notebook needs none of it

        if not pod_gpus.is_in_pod():
            raise
        return pod_gpus.seen(), None
    return tuple(device for device in status.devices if not device.remote), status


def _choose(gpus: Choice | None) -> tuple[GpuDevice, ...]:
    attached, status = _attached()
    chosen = _visible(attached) if gpus is None else tuple(_find(attached, item) for item in gpus)
    if not chosen:
        here = " here" if status is None or status.devices else ""
        raise NoGpuAttached(f"Your server has no GPU{here}: gpu.resize(1) first.")
    for device in chosen:
        if not device.simulated:
            raise ValueError(f"GPU {device.index} is a real one. This is for simulated GPUs; give real ones real work.")
        if status is not None and status.view.mode is Mode.SOFT and device.uuid not in {mine.uuid for mine in attached}:
            # Nothing else would keep us from it, so be as polite as a real program has to be.
            raise _refusal(device.index, device.path)
    return chosen


def _visible(attached: tuple[GpuDevice, ...]) -> tuple[GpuDevice, ...]:
    """Return those that ``CUDA_VISIBLE_DEVICES`` names; all where it is about other GPUs, or not set."""
    names = os.environ.get(VISIBLE, "").split(",")
    return tuple(device for device in attached if device.uuid in names) or attached


def _find(attached: tuple[GpuDevice, ...], item: int | str | GpuDevice) -> GpuDevice:
    if isinstance(item, GpuDevice):
        return item  # also one that is not attached any more: the device rules say what comes of it
    for device in attached:
        if item in (device.index, device.uuid):
            return device
    raise _refusal(item, "")


def _refusal(name: object, path: str) -> PermissionError:
    return PermissionError(errno.EPERM, f"GPU {name} is not attached: gpu.resize(…) first", path)


def _directory(device: GpuDevice) -> Path:
    """Return the folder of loads: beside the device nodes, or in the state directory if these are elsewhere."""
    beside = Path(device.path).parent
    given = os.environ.get(VARIABLE)
    return beside if (beside / "load").is_dir() or not given else Path(given)
