"""Recorded and drawn notebooks, and what happens to their cells on a simulated cluster."""

import json
from pathlib import Path

import pytest

from benchmarks.lib.figures import CannotRunError
from benchmarks.lib.notebook_cluster import NotebookCluster
from benchmarks.lib.notebook_trace import GpuCell, Session, drawn, peak, recorded
from benchmarks.pairs import PARTS, TRACE, Cell, simulate

RUSH = [
    Session(0, 60, 6, (GpuCell(1, 10), GpuCell(30, 10))),
    Session(0, 60, 6, (GpuCell(50, 9),)),
    Session(0, 60, 6, (GpuCell(1, 10), GpuCell(30, 10))),
]
"""Notebooks that want three quarters of a node each, two of them at the same time."""


def test_recording_is_read(tmp_path: Path) -> None:
    """Cells without GPUs are left out, and notebooks without others."""
    cell = {"start_tick": 9, "end_tick": 12, "gpus": 4}
    sessions = [
        {"start_tick": 5, "stop_tick": 50, "trainings": [{**cell, "start_tick": 10}, cell, {**cell, "gpus": 0}]},
        {"start_tick": 5, "stop_tick": 50, "trainings": [{**cell, "gpus": 0}]},
    ]
    (tmp_path / "sessions_june_1_2.json").write_text(json.dumps({"sessions": sessions}))
    assert recorded(tmp_path) == [Session(5, 50, 4, (GpuCell(9, 3), GpuCell(10, 2)))]
    with pytest.raises(CannotRunError, match="no recording"):
        recorded(tmp_path / "none")


def test_recording_as_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder is named by a variable; without it, it is said that there is none."""
    monkeypatch.delenv(TRACE, raising=False)
    with pytest.raises(CannotRunError, match=TRACE):
        PARTS["trace"]()
    cell = {"start_tick": 9, "end_tick": 12, "gpus": 4}
    sessions = [{"start_tick": 5, "stop_tick": 50, "trainings": [cell]}]
    (tmp_path / "sessions_june_1_2.json").write_text(json.dumps({"sessions": sessions}))
    monkeypatch.setenv(TRACE, str(tmp_path))
    figures = PARTS["trace"]()
    assert len(figures) == 12
    assert {(figure.value, figure.baseline) for figure in figures} == {(0.0, 0.0), (0.0, None)}
    assert [figure.goal for figure in figures if " 64 GPUs" in figure.name] == [5.0, 30.0]


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
    everywhere = simulate(RUSH, NotebookCluster(16, remote=True))
    assert everywhere.cells.count(Cell(0, False)) == 3
    assert everywhere.cells.count(Cell(0, True)) == 2


@pytest.mark.parametrize(("grace", "workers"), [(1800.0, 1), (600.0, 2)])
def test_worker_is_kept_for_the_next_cell(grace: float, workers: int) -> None:
    """Within its grace; here the next one begins after nineteen minutes."""
    assert simulate(RUSH, NotebookCluster(16, remote=True, grace=grace)).workers == workers
