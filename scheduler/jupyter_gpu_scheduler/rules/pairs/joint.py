"""Pure: wishes of new pods that only two nodes together can serve: the pod's own node and one other.

The own node gives the most that it can now, share by share, and the best other node the rest. A set, and what needs one
island or switch, is never divided. Nor is a wish under limits for models, as those count both parts together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu_scheduler.rules.queue.candidates import unacceptable
from jupyter_gpu_scheduler.rules.queue.fit_cache import fits_on, wanted
from jupyter_gpu_scheduler.rules.state.permitted import with_amount
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot

from .amounts import movable
from .choose import LOCAL, Pair, PairChooser


class Joint(NamedTuple):
    """Two nodes that serve a wish together."""

    here: PodState
    """The pod, with the part of its wish that its own node gives."""
    pair: Pair
    """The pair that serves the rest."""
    rest: int
    """Milli of the rest."""
    points: int
    """Billionths: of each part those of its pair, by the part's size."""


def joints(chooser: PairChooser, pod: PodState, names: Sequence[str]) -> dict[str, Joint]:
    """Return what each of ``names`` can give a pod together with the best other node; without those that can't."""
    return dict(_joints(chooser, pod, names))


def serves_jointly(chooser: PairChooser, pod: PodState, names: Sequence[str]) -> bool:
    """Tell whether any of ``names`` can serve a pod together with another node now."""
    return any(True for _ in _joints(chooser, pod, names))


def could_be_joint(snapshot: ClusterSnapshot, pod: PodState, names: Sequence[str]) -> bool:
    """Tell whether any of ``names`` could ever serve a pod together with another node, once both have room."""
    for here, rest in _divisions(pod):
        there = {name for name, found, _ in fits_on(snapshot, rest, snapshot.nodes()) if not found.never}
        if any(there - {name} for name, found, _ in fits_on(snapshot, here, names) if not found.never):
            return True
    return False


def _joints(chooser: PairChooser, pod: PodState, names: Sequence[str]) -> Iterator[tuple[str, Joint]]:
    left = list(names)
    for here, rest in _divisions(pod):
        if not left or not chooser.givers(rest):
            return  # more than that can be had nowhere, either
        own, beside = chooser.own_points(here, left), milli_of(rest)
        for name, pair in chooser.pairs(rest, list(own)):
            points = milli_of(here) * own[name] + beside * pair.points
            yield name, Joint(here, pair, beside, points // (milli_of(here) + beside))
        left = [name for name in left if name not in own]


def _divisions(pod: PodState) -> Iterator[tuple[PodState, PodState]]:
    """Yield the pod with the part for its own node, the most first, and with the rest for another node."""
    wish = wanted(pod)
    if wish is None or wish.placement == LOCAL or wish.set or pod.model_allowances or unacceptable(pod):
        return
    for milli in movable(wish, wish.milli):
        if 0 < milli < wish.milli:
            yield _wishing(pod, wish, milli, 0), _wishing(pod, wish, wish.milli - milli, milli)


def milli_of(pod: PodState) -> int:
    """Return the milli that a pod wishes."""
    return pod.requested.milli if pod.requested else 0


def _wishing(pod: PodState, wish: Wish, milli: int, beside: int) -> PodState:
    """Return a pod that wishes ``milli`` while its owner has so much more ``beside``."""
    assert pod.requested
    standing = replace(pod.standing, holds=pod.standing.holds + beside) if pod.standing else None
    return replace(pod, requested=replace(pod.requested, wish=with_amount(wish, milli)), standing=standing)
