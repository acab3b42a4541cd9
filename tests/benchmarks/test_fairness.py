"""The simulator of waits of users: its index, and sessions whose waits are known."""

import json
from pathlib import Path

import pytest

from benchmarks.fairness import Cell, Session, Waits, read, simulate

WHOLE = Session(0, (Cell(0, 60, 8),))
"""It takes the only node for an hour."""


@pytest.mark.parametrize(
    ("minutes", "jain"), [((1, 1, 1), 1), ((3, 0, 0), 1 / 3), ((0, 0, 0), 1), ((), 1), ((1, 3), 0.8)]
)
def test_index_is_jains(minutes: tuple[float, ...], jain: float) -> None:
    """It is 1 if all wait equally, and 1/n if one of n waits."""
    assert Waits(minutes).jain == pytest.approx(jain)


@pytest.mark.parametrize("fair", [True, False])
def test_wait_lasts_until_all_gpus_are_there(fair: bool) -> None:
    """The second waits for the first, which has all GPUs; the third, which needs all of them, waits for both."""
    sessions = [WHOLE, Session(0, (Cell(10, 30, 4),)), Session(0, (Cell(20, 5, 8),))]
    assert simulate(sessions, 8, fair=fair).minutes == (0, 50, 70)


def test_pause_follows_the_end_of_the_cell_before() -> None:
    """A cell that waited moves all later cells of its session."""
    sessions = [WHOLE, Session(0, (Cell(30, 10, 8), Cell(5, 10, 8)))]
    assert simulate(sessions, 8, fair=True).minutes == (0, 30)
    assert simulate([WHOLE, WHOLE], 16, fair=True) == Waits((0, 0))  # one on each node


def test_recorded_cells_without_gpus_are_pauses(tmp_path: Path) -> None:
    """Times of a trace are ticks of a minute since its start."""
    cells = [
        {"start_tick": 2, "end_tick": 4, "duration_in_ticks": 2, "gpus": 0},
        {"start_tick": 5, "end_tick": 8, "duration_in_ticks": 3, "gpus": 2},
        {"start_tick": 9, "end_tick": 10, "duration_in_ticks": 1, "gpus": 1},
    ]
    file = tmp_path / "trace.json"
    file.write_text(json.dumps({"sessions": [{"start_tick": 1, "trainings": cells}]}))
    assert read(file) == [Session(1, (Cell(4, 3, 2), Cell(1, 1, 1)))]
