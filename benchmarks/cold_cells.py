"""The first cell on another node, which has no worker yet, against a bare pod of the same image there, in turn.

Both are pods of one real cluster with simulated GPUs. A bare pod has no GPU, and does nothing: its time is that from
its creation until the kubelet tells that it runs. Programs that create pods, and take their time to start, count for
neither. The steps of a cell are told on standard error.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from jupyter_gpu.model.annotations import SERVICE, WORKER
from jupyter_gpu.model.service import WorkerPart, decode_service

from .lib.figures import CannotRunError, Figure, percentile

if TYPE_CHECKING:
    from tests.cluster.whole.notebooks import NotebookKernel
    from tests.cluster.whole.states import Moment, PodState
    from tests.cluster.whole.world import World

COMMAND = "scripts/bench cold_cells"
ROUNDS = 10
NOTEBOOK, BARE = "ann", "bare"
BEYOND = 1000.0
"""Milliseconds beyond a bare pod."""
SECONDS = 120.0


class ColdCell(NamedTuple):
    """Milliseconds from the start of a cell until what is said here."""

    named: float
    """A worker is named for the notebook."""
    created: float
    """Its pod is there."""
    runs: float
    """The kubelet tells that it runs."""
    reached: float
    """Its address and key are written for the notebook."""
    attached: float
    """It has its GPU."""
    first: float
    """The first line of the cell is there."""


def run() -> Sequence[Figure]:
    """Measure for some minutes, most of them to create the cluster."""
    if os.geteuid():
        raise CannotRunError("a cluster runs containers, which needs root")
    from tests.cluster.whole import pods
    from tests.cluster.whole.notebooks import NotebookKernel
    from tests.cluster.whole.world import REMOTE, installed, world
    from tests.deploy import product as chart

    with installed() as product:
        short = ("--reuse-values", "--set", "workers.graceSeconds=1", "--namespace", chart.NAMESPACE, "--wait")
        product.cluster.helm("upgrade", chart.RELEASE, str(chart.CHART), *short)
        chart.load(product.cluster, "notebook")
        with world(product, REMOTE) as here:
            alone = {"generation": 1, "milli": 1000 * chart.GPUS, "placement": "local"}
            here.run(pods.pod("holder", node=here.one, wants=alone))
            here.run(pods.notebook(NOTEBOOK, product.notebook, node=here.one))
            kernel = NotebookKernel(here.pod(NOTEBOOK).address)
            kernel.run("from jupyter_gpu import gpu")
            found = [(_cell(here, kernel), _bare(here, product.notebook)) for _ in range(ROUNDS + 1)][1:]
    cells, bare = [cell for cell, _ in found], [one for _, one in found]
    _tell(cells)
    return [
        Figure.of(
            f"cold_cells: %%gpu cell without a worker to its first line, p{at}",
            "ms",
            [cell.first for cell in cells],
            COMMAND,
            at=at,
            goal=percentile(bare, at) + BEYOND,
            baseline=bare,
            sure=at == 50,
        )
        for at in (50, 90)
    ]


def _cell(here: World, kernel: NotebookKernel) -> ColdCell:
    """Run one cell; at the end its worker is gone."""
    since, began = len(here.history.moments), time.monotonic()
    cell = kernel.start("%%gpu 1\nprint('first')")
    cell.says("first")
    first = time.monotonic()
    cell.result()
    kernel.run("gpu.resize(0)")
    workers = here.history.moments[since:]
    name = next(one.state.name for one in workers if WORKER in one.state.annotations)
    steps = [
        _when(workers, NOTEBOOK, lambda state: any(part.milli for part in _parts(state))),
        _when(workers, name, lambda _: True),
        _when(workers, name, lambda state: state.phase == "Running"),
        _when(workers, NOTEBOOK, lambda state: any(part.key and part.address for part in _parts(state))),
        _when(workers, name, lambda state: bool(state.usable)),
        first,
    ]
    here.until(lambda: not here.history.pods(name), "the worker to be gone", SECONDS)
    return ColdCell(*(1000 * (at - began) for at in steps))


def _bare(here: World, image: str) -> float:
    """Return the milliseconds of a bare pod; at the end it is gone."""
    from tests.cluster.whole import pods

    since = len(here.history.moments)
    here.create(pods.pod(BARE, image=image, node=here.two, slot=False))
    here.until(lambda: here.pod(BARE).phase == "Running", "the bare pod to run", SECONDS)
    moments = here.history.moments[since:]
    runs = _when(moments, BARE, lambda state: state.phase == "Running")
    here.kubectl("delete", "pod", BARE, "--grace-period=1", "--wait=false")
    here.until(lambda: not here.history.pods(BARE), "the bare pod to be gone", SECONDS)
    return 1000 * (runs - _when(moments, BARE, lambda _: True))


def _parts(state: PodState) -> Sequence[WorkerPart]:
    return decode_service(state.annotations[SERVICE]).workers if SERVICE in state.annotations else ()


def _when(moments: Sequence[Moment], name: str, condition: Callable[[PodState], bool]) -> float:
    """Return when a pod was first heard to be like that."""
    return next(one.heard for one in moments if one.state.name == name and condition(one.state))


def _tell(cells: Sequence[ColdCell]) -> None:
    steps = (f"{name} {percentile([getattr(cell, name) for cell in cells], 50):.0f}" for name in ColdCell._fields)
    print(f"ms after the start of a cell, medians: {', '.join(steps)}", file=sys.stderr)
