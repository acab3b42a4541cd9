"""One-line worlds: views of a pod that has, wants and gives back GPUs."""

from __future__ import annotations

from typing import Any

from jupyter_gpu.model.annotations import Allocated, Attached, Reason, Requested, Wish
from jupyter_gpu.model.gpu import DrainingShare, Gpu, GpuShare, pieces
from jupyter_gpu.model.limits.pod_limit import PodLimit
from jupyter_gpu.model.view import GpuState, GpuUser, Mode, PodGpu, View, steps


def gpu(index: int, *, simulated: bool = True) -> Gpu:
    """Return the GPU with this index."""
    return Gpu(f"GPU-{index:04d}", index, "Test 80GB", 80 * 2**30, path=f"/dev/nvidia{index}", simulated=simulated)


def view(
    wanted: int = 0,
    *,
    attached: int | None = None,
    draining: tuple[int, ...] = (),
    users: tuple[GpuUser, ...] = (),
    limit: int = 4000,
    generation: int | None = None,
    version: int = 1,
    instance: str = "one",
    simulated: bool = True,
    position: int | None = None,
    reason: Reason | None = None,
    seen: bool = True,
    of_user: PodLimit | None = None,
    **wish: Any,
) -> View:
    """Return a view; amounts are milli, ``draining`` are indices, ``seen``: whether the scheduler has answered.

    ``of_user`` is the limit of its user, ``limit`` where the slider ends.
    """
    have = wanted if attached is None else attached
    parts = pieces(have)
    generation = (1 if wanted else 0) if generation is None else generation
    shares = tuple(GpuShare(gpu(i).uuid, part) for i, part in enumerate(parts))
    leaving = tuple(DrainingShare(gpu(i).uuid, 1000) for i in draining)
    return View(
        instance=instance,
        version=version,
        mode=Mode.SOFT,
        simulated=simulated,
        backend="test",
        total=limit,
        limit=limit,
        steps=steps(limit, (500,)),
        requested=Requested(generation, Wish(wanted, **wish)) if generation else None,
        allocated=Allocated(generation if seen else generation - 1, shares, reason, position=position, limit=of_user),
        attached=Attached(generation, shares, leaving),
        gpus=(
            *(PodGpu(gpu(i, simulated=simulated), part, GpuState.ATTACHED) for i, part in enumerate(parts)),
            *(PodGpu(gpu(i, simulated=simulated), 1000, GpuState.DRAINING, users) for i in draining),
        ),
    )
