"""The GPUs that a process in a worker's pod sees, as the node plugin describes them: no server tells of them there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from jupyter_gpu.common.rules.visible import VISIBLE
from jupyter_gpu.kernel.reports.status import GpuDevice
from jupyter_gpu.model import strict
from jupyter_gpu.model.errors import ServerUnreachable
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu.remote.rules import pairing
from jupyter_gpu.worker import plugin_socket


def is_in_pod(environ: Mapping[str, str] = os.environ) -> bool:
    """Tell whether this process is in the pod of a worker, or of a notebook."""
    return plugin_socket.VARIABLE in environ


def seen(environ: Mapping[str, str] = os.environ) -> tuple[GpuDevice, ...]:
    """Return the GPUs that ``CUDA_VISIBLE_DEVICES`` names, in its order. Raises `ServerUnreachable`.

    How large a part of each is the pod's is not known here: it is given as a whole.
    """
    path = Path(environ[plugin_socket.VARIABLE])
    try:
        of_node = {gpu.uuid: gpu for gpu in pairing.read_gpus(plugin_socket.ask(path, "node"))}
    except (OSError, strict.FieldError) as error:
        raise ServerUnreachable(f"The GPU program of this node does not answer: {error}.") from None
    named = [of_node[uuid] for uuid in environ.get(VISIBLE, "").split(",") if uuid in of_node]
    return tuple(_device(gpu, place) for place, gpu in enumerate(named))


def _device(gpu: Gpu, place: int) -> GpuDevice:
    about = (gpu.model, gpu.memory, MILLI_PER_GPU)
    return GpuDevice(gpu.uuid, place, *about, exclusive=False, path=gpu.path, simulated=gpu.simulated)
