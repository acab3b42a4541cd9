"""From the change of a limit to what the node of the user's pod hears: a real API server, the scheduler as a process.

The figures have no goals, as what a user waits for is longer: `limit_page` measures the whole way.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_gpu.kube.rules import objects, paths
from jupyter_gpu.model.annotations import ALLOCATED, Allocated, decode_allocated
from jupyter_gpu.model.limits.owner import HUB, USERNAME

from .figures import CannotRunError, Figure

if TYPE_CHECKING:
    from tests.scheduler_process.stage import Stage

_KINDS = ("gpulimits", "gpuaccounts")
_SECONDS = 30.0


def measure(turns: int, command: str) -> Sequence[Figure]:
    """Measure milliseconds. Raises CannotRunError where no API server can be started."""
    try:
        from tests.cluster.testbed import ClusterError
    except ImportError as error:
        raise CannotRunError(f"the test cluster is not there: {error}") from None
    try:
        with _stage() as stage:
            bare, told, lowered = _turns(stage, turns)
    except ClusterError as error:
        raise CannotRunError(str(error)) from None
    found = []
    for percent in (50, 99):
        name = f"limits: a limit is written until the pod's node hears of it, p{percent}"
        found.append(Figure.of(name, "ms", told, command, at=percent, baseline=bare))
        name = f"limits: a limit is lowered until the pod's node hears when GPUs go, p{percent}"
        found.append(Figure.of(name, "ms", lowered, command, at=percent, baseline=bare))
    return found


@contextmanager
def _stage() -> Iterator[Stage]:
    """Yield a cluster with a node, a user's pod with two GPUs, a limit, and a scheduler."""
    from tests.cluster.testbed import control_plane
    from tests.scheduler_process.definitions import define, limit_body
    from tests.scheduler_process.stage import Loop, Stage

    loop = Loop()
    with control_plane() as plane, tempfile.TemporaryDirectory() as folder:
        stage = Stage(plane, loop, Path(folder), "bench")
        try:
            stage.do(define(stage.kube, *_KINDS))
            spec = {"subject": {"kind": "User", "name": "ann"}, "max": 4, "grace": "1h"}
            stage.do(stage.kube.create(paths.limits(), limit_body("ann", spec)))
            node = stage.node(gpus=4)
            stage.scheduler()
            stage.pod("p", node, 2, annotations={USERNAME: "ann", HUB: "hub"})
            stage.until_count("p", 2)
            yield stage
        finally:
            stage.close()
    loop.close()


def _turns(stage: Stage, turns: int) -> tuple[list[float], list[float], list[float]]:
    """Return the milliseconds of a bare write that a watch tells, of a change, and of a lowered limit."""
    bare, told, lowered = [], [], []
    for turn in range(turns):
        told += [_until(stage, most, partial(_is_told, most=most)) for most in (3, 2)]  # not below what the pod has
        lowered.append(_until(stage, 1, lambda found: bool(found.limit and found.limit.give_back_at)))
        _until(stage, 4, partial(_is_told, most=4))
        bare.append(_bare(stage, str(turn)))
    return bare, told, lowered


def _is_told(found: Allocated, most: int) -> bool:
    return bool(found.limit and found.limit.max == 1000 * most and found.limit.give_back_at is None)


def _until(stage: Stage, most: int, holds: Callable[[Allocated], bool]) -> float:
    """Write a maximum; return the milliseconds until a watch shows ``allocated`` as it then is."""
    seen = len(stage.watcher.seen)
    began = time.monotonic()
    stage.do(stage.kube.patch(paths.limit("ann"), {"spec": {"max": most}}))
    heard = _heard(stage, seen, lambda pod: holds(decode_allocated(objects.annotation(pod, ALLOCATED) or "{}")))
    return (heard - began) * 1000


def _bare(stage: Stage, word: str) -> float:
    """Return the milliseconds of one write to the pod, until a watch shows it."""
    seen = len(stage.watcher.seen)
    began = time.monotonic()
    stage.annotate("p", **{"example.com/word": word})
    return (_heard(stage, seen, lambda pod: objects.annotation(pod, "example.com/word") == word) - began) * 1000


def _heard(stage: Stage, seen: int, holds: Callable[[dict[str, Any]], bool]) -> float:
    """Return the moment at which the watch showed a pod that is so; ``seen``: what it had shown before."""
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        for _, moment, pod in stage.watcher.seen[seen:]:
            if holds(pod):
                return moment
        time.sleep(0.002)
    raise RuntimeError("the pod was not told its limit in time")
