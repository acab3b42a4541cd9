"""Recorded and drawn notebooks, and what happens to their cells on a simulated cluster."""

import json
from pathlib import Path

import pytest

from benchmarks.lib.figures import CannotRunError
from benchmarks.lib.notebook_cluster import NotebookCluster
from benchmarks.lib.notebook_trace import GpuCell, Session, drawn, peak, recorded
from benchmarks.lib.remote_costs import Delay, RemoteCosts, lost, told
from benchmarks.pairs import PARTS, TRACE, Cell, simulate

FREE = RemoteCosts(cold=0.0, warm=0.0, sent=0.0)
"""Nothing costs anything."""

RUSH = [
    Session(0, 60, 6, (GpuCell(1, 10), GpuCell(30, 10))),
    Session(0, 60, 6, (GpuCell(50, 9),)),
    Session(0, 60, 6, (GpuCell(1, 10), GpuCell(30, 10))),
]
"""Notebooks that want three quarters of a node each, two of them at the same time."""


def test_recording_is_read(tmp_path: Path) -> None:
    """Cells without GPUs are left out, and notebooks without others."""
    cell = {"start_tick": 9, "end_tick": 12, "gpus": 4, "vram": 1.5}
    sessions = [
        {"start_tick": 5, "stop_tick": 50, "trainings": [{**cell, "start_tick": 10}, cell, {**cell, "gpus": 0}]},
        {"start_tick": 5, "stop_tick": 50, "trainings": [{**cell, "gpus": 0}]},
    ]
    (tmp_path / "sessions_june_1_2.json").write_text(json.dumps({"sessions": sessions}))
    assert recorded(tmp_path) == [Session(5, 50, 4, (GpuCell(9, 3, 1500.0), GpuCell(10, 2, 1500.0)))]
    with pytest.raises(CannotRunError, match="no recording"):
        recorded(tmp_path / "none")


def test_recording_as_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder is named by a variable; without it, it is said that there is none."""
    monkeypatch.delenv(TRACE, raising=False)
    with pytest.raises(CannotRunError, match=TRACE):
        PARTS["trace"]()
    cell = {"start_tick": 9, "end_tick": 12, "gpus": 4, "vram": 1.5}
    sessions = [{"start_tick": 5, "stop_tick": 50, "trainings": [cell]}]
    (tmp_path / "sessions_june_1_2.json").write_text(json.dumps({"sessions": sessions}))
    monkeypatch.setenv(TRACE, str(tmp_path))
    figures = PARTS["trace"]()
    assert len(figures) == 18
    assert {(figure.value, figure.baseline) for figure in figures} == {(0.0, 0.0), (0.0, None)}
    assert [figure.goal for figure in figures if " 64 GPUs" in figure.name] == [5.0, 30.0, None]


def test_peak_is_of_cells_that_never_wait() -> None:
    """Cells of one notebook follow each other; reserved GPUs are held between them."""
    one = Session(0, 30, 4, (GpuCell(2, 10), GpuCell(5, 5)))
    assert peak([one, one._replace(start=17, cells=(GpuCell(17, 9),))]) == 4
    assert peak([one, one._replace(start=17, cells=(GpuCell(17, 9),))], reserved=True) == 8


def test_drawn_day_resembles_the_recording() -> None:
    """Sizes are those of the recording, and reservations need more than cells."""
    day = drawn(60)
    assert {one.gpus for one in day} == {1, 4, 8}
    assert peak(day) < peak(day, reserved=True)


def test_cells_use_other_nodes_only_where_that_is_allowed() -> None:
    """Two of three notebooks are on one node, which has room for one of their cells: the other cell waits, or goes."""
    own = simulate(RUSH, NotebookCluster(16, remote=False))
    assert [cell.wait for cell in own.cells if cell.wait] == [10, 10]
    assert not own.remote
    assert not own.workers
    everywhere = simulate(RUSH, NotebookCluster(16, remote=True), FREE)
    assert everywhere.cells.count(Cell(0, False)) == 3
    assert everywhere.cells.count(Cell(0, True, Delay(0.0, 0.0, 0.0))) == 2


def test_what_a_cell_elsewhere_waits_for() -> None:
    """For the rest of its worker's start, or else for the way there; and for its bytes: those assumed, or recorded."""
    costs = RemoteCosts(cold=2.0, warm=0.5, rate=100.0)
    assert costs.delay(0.0, 300.0) == Delay(2.0, 0.0, 3.0)
    assert costs.delay(1.25, 0.0) == Delay(0.75, 0.0, 0.0)
    assert costs.delay(1.75, 0.0) == costs.delay(900.0, 0.0) == Delay(0.0, 0.5, 0.0)
    assert costs._replace(sent=50.0).delay(0.0, 300.0).sent == 0.5


def test_cell_elsewhere_is_delayed() -> None:
    """It has its GPUs at once and begins later, so they come free later, and the next cell there waits as long."""
    costs = RemoteCosts(cold=90.0, warm=30.0, sent=0.0)
    found = simulate(RUSH, NotebookCluster(16, remote=True, grace=1800.0), costs)
    assert found.delays == [Delay(90.0, 0.0, 0.0), Delay(0.0, 30.0, 0.0)]
    assert found.busy == 49.0
    shift = [
        Session(0, 60, 6, (GpuCell(1, 10), GpuCell(11, 10))),
        Session(0, 60, 6, (GpuCell(11, 10),)),
        Session(0, 60, 6, (GpuCell(1, 10, 100.0),)),
    ]
    assert not any(simulate(shift, NotebookCluster(16, remote=True), FREE).waits)
    sending = simulate(shift, NotebookCluster(16, remote=True), RemoteCosts(cold=50.0, rate=1.0))
    assert sending.delays == [Delay(50.0, 0.0, 100.0)]
    assert sending.waits == [0.0, 0.0, 0.0, 2.5]


def test_costs_are_told() -> None:
    """In seconds by their cause, as a part of the time of all cells, and for each; without any it is said."""
    assert told([], 10, 5.0) == "no remote cells"
    delays = [Delay(2.0, 0.0, 1.0), Delay(0.0, 0.5, 1.0)]
    assert lost(delays, 15.0) == 0.5
    words = (
        "remote cells wait 22.5 s per 100 cells (10.0 for starts, 2.5 for ways, 10.0 for bytes), 0.500 % of the time"
    )
    assert told(delays, 20, 15.0) == f"{words} of all; each p50 1500, p99 3000 ms"


@pytest.mark.parametrize(("grace", "workers"), [(1800.0, 1), (600.0, 2)])
def test_worker_is_kept_for_the_next_cell(grace: float, workers: int) -> None:
    """Within its grace; here the next one begins after nineteen minutes."""
    assert simulate(RUSH, NotebookCluster(16, remote=True, grace=grace)).workers == workers
