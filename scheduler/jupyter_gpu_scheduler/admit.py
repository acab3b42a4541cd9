"""Which GPUs a new pod gets, at the moment when it is bound to its node."""

from __future__ import annotations

from jupyter_gpu.model.annotations import Allocated
from jupyter_gpu.model.errors import GpuError

from .snapshot import ClusterSnapshot, PodState


def allocate(snapshot: ClusterSnapshot, pod: PodState, node: str) -> Allocated | GpuError:
    """What the Binding of ``pod`` to ``node`` carries as ``allocated``, or why it can't be bound there (any more).

    The snapshot is not changed. A pod that is bound there already gets what it has: asking again changes nothing.
    """
    raise NotImplementedError
