"""Pure: the amounts in which a wish is divided among nodes, and the most that one node could ever serve of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.feasible import refuse
from jupyter_gpu_scheduler.rules.state.permitted import with_amount
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot


def amounts(wish: Wish, milli: int) -> Iterator[int]:
    """Yield ``milli``, then one share of the wish less, and so on."""
    pieces = with_amount(wish, milli).pieces
    yield from reversed(tuple(accumulate(pieces)))


def movable(wish: Wish, milli: int) -> tuple[int, ...]:
    """Return the amounts that may go to another node, the most first; what needs one island or switch moves whole."""
    if wish.topology in ("island", "switch"):
        return (milli,) if milli == wish.milli else ()
    return tuple(amounts(wish, milli))


def most_here(snapshot: ClusterSnapshot, pod: PodState) -> int | None:
    """Return the most of a pod's wish that its node could ever serve; ``None``: all, or nothing at all."""
    if pod.requested is None or not pod.node or pod.fault:
        return None
    wish = pod.requested.wish
    answers: dict[str, int | None] = snapshot.gpu_memo(("most here", wish, pod.lacks))
    if pod.node not in answers:
        gpus = tuple(gpu for gpu in snapshot.gpus(pod.node) or () if gpu.uuid not in pod.lacks)
        able = (
            milli for milli in amounts(wish, wish.milli) if not refuse(with_amount(wish, milli), limit=None, gpus=gpus)
        )
        most = next(able, None)
        answers[pod.node] = None if most == wish.milli else most
    return answers[pod.node]
