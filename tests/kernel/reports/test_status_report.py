"""The report of `gpu.status()`: the rows of its GPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_gpu.cli.rules.watch_view import change
from jupyter_gpu.cli.rules.workers_table import lines
from jupyter_gpu.kernel.reports.status import GpuStatus
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu.model.gpu_kind import GpuKind
from jupyter_gpu.model.pod_worker import PodWorker
from jupyter_gpu.model.stranger import Stranger
from jupyter_gpu.model.strict import FieldError
from jupyter_gpu.model.view import View
from jupyter_gpu.model.worker_words import kinds
from tests.model import golden

FAR = {case["name"]: View.from_json(case["view"]) for case in golden.load("views") if "workers" in case["view"]}
LENT = "ready, lent while it rests"
CASE = next(case for case in golden.load("views") if case["name"] == "ready, one of two is open and idle")


def test_gpu_that_rests_says_for_how_long() -> None:
    """At the moment of the report, however late it is shown; as text and as a table."""
    status = GpuStatus(View.from_json(CASE["view"]), at=1767225600 + 125 * 60.0)
    rows = repr(status).splitlines()[1:]
    assert ["exclusive, idle for 2 h 5 min" in row for row in rows] == [True, False]
    assert "exclusive, idle for 2 h 5 min" in status._repr_html_()


def test_gpus_of_other_nodes_are_told() -> None:
    """They follow those of this node, with its name; a row has no empty cell in a text, and all in a table."""
    status = GpuStatus(FAR["ready, one here and one on another node"])
    own, far = status.devices
    assert (own.remote, own.node, own.name) == (False, "", "GPU 0")
    assert (far.remote, far.node, far.name, far.milli, far.exclusive) == (True, "node2", "GPU 0 on node2", 1000, True)
    assert repr(status).splitlines()[2] == "  GPU 0 on node2 · exclusive · GPU-b100"
    assert "<td>GPU 0 on node2</td><td></td><td></td><td>exclusive</td>" in status._repr_html_()
    table = GpuStatus(replace(status.view, gpus=()))._repr_html_()
    assert "<th>GPU</th><th>Yours</th><th>UUID</th>" in table  # no column in which nothing is known yet
    assert "<td>GPU 0 on node2</td><td>exclusive</td><td>GPU-b100</td>" in table


def test_broken_gpu_of_another_node_cannot_be_used() -> None:
    """It is among no devices, and the table says that it is unhealthy, as of one of this node."""
    status = GpuStatus(FAR["degraded, a GPU of another node stopped working"])
    assert [device.node for device in status.devices] == [""]
    assert repr(status).splitlines()[2] == "  GPU 0 on node2 · exclusive, unhealthy · GPU-b100"


def test_model_and_memory_of_gpus_of_other_nodes_are_told() -> None:
    """Once their worker has told them; in both tables, and in those of the terminal."""
    view = FAR["ready, one here and one on another node"]
    (worker,) = view.workers
    kind = GpuKind("NVIDIA A100", 40 * 2**30)
    known = replace(view, workers=(worker._replace(kinds=(kind,)),))
    assert View.from_json(known.to_json()) == known
    far = GpuStatus(known).devices[-1]
    assert (far.model, far.memory) == ("NVIDIA A100", 40 * 2**30)
    assert repr(GpuStatus(known)).splitlines()[2] == "  GPU 0 on node2 · NVIDIA A100 · 40 GiB · exclusive · GPU-b100"
    two = worker._replace(gpus=(*worker.gpus, GpuShare("GPU-b101", 1000)), kinds=(kind, kind))
    assert kinds(two) == "2 × NVIDIA A100, 40 GiB"
    assert kinds(two._replace(kinds=(kind, GpuKind("T4", 2**34)))) == "1 × NVIDIA A100, 40 GiB; 1 × T4, 16 GiB"
    assert kinds(worker) == ""
    assert "1 GPU  Other node, same switch  NVIDIA A100, 40 GiB  700 MiB sent" in "".join(lines(known))
    with pytest.raises(FieldError, match="one kind for each"):
        PodWorker.from_json({**worker.to_json(), "kinds": [kind.to_json()] * 2})


def test_gpu_of_a_worker_that_is_not_reached_cannot_be_used() -> None:
    """Its row says why, and it is not among the devices."""
    status = GpuStatus(FAR["attaching, a worker has its GPU but is not reached yet"])
    assert not any(device.remote for device in status.devices)
    assert "exclusive, connecting" in repr(status)


def test_share_on_another_node() -> None:
    """A part of a GPU is not exclusive."""
    view = FAR["ready, one here and one on another node"]
    worker = view.workers[0]._replace(milli=250, gpus=(GpuShare("GPU-b100", 250),))
    status = GpuStatus(replace(view, workers=(worker,)))
    assert not status.devices[-1].exclusive
    assert "0.25 of it" in repr(status)


def test_guest_is_told_when_it_runs() -> None:
    """No part of the GPU is its own; in the terminal, too."""
    view = View.from_json(CASE["view"])
    guest = replace(view, gpus=(view.gpus[0]._replace(milli=0), *view.gpus[1:]))
    rows = repr(GpuStatus(guest, at=0)).splitlines()[1:]
    assert ["lent while others rest, may pause at any moment" in row for row in rows] == [True, False]
    assert "GPU 0 (lent while others rest)" in change(guest)
    assert View.from_json(guest.to_json()) == guest


def test_owner_is_told_that_its_gpu_is_lent_and_what_it_keeps() -> None:
    """In the terminal, too; such a GPU is not called exclusive, whoever else uses it."""
    view = next(View.from_json(case["view"]) for case in golden.load("views") if case["name"] == LENT)
    status = GpuStatus(view, at=0)
    assert "all of it, lent while it rests, keeps 60 GiB" in repr(status).splitlines()[1]
    assert "GPU 0 (lent while it rests)" in change(view)
    assert not status.devices[0].exclusive
    other = replace(view, gpus=(view.gpus[0]._replace(strangers=(Stranger(1, "python", "ann"),)),))
    assert "keeps 60 GiB, others use it too" in repr(GpuStatus(other, at=0))
