"""The day of the co-adjustment benchmark: what is read, what is drawn, and what each way of sharing makes of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.elastic import WAYS, fluid_error, measure, rates
from benchmarks.lib.day import DAY, RECORDING, Cell, Notebook, drawn, placed, recorded
from benchmarks.lib.figures import CannotRunError

FIXED, LENT, FIXED_IDLE, LENT_IDLE = WAYS


def a_training(start: int, end: int, *use: float) -> dict[str, Any]:
    return {"start_tick": start, "end_tick": end, "gpu_utilizations": [{"utilization": one} for one in use]}


def a_recording(folder: Path, *sessions: Any) -> Path:
    (folder / RECORDING).write_text(json.dumps({"sessions": sessions}))
    return folder


def test_recording_is_cut_to_one_day(tmp_path: Path) -> None:
    """Cells without a GPU do not count, and of several GPUs their mean does."""
    trainings = [a_training(150, 160, 30.0), a_training(90, 110, 10.0, 50.0), a_training(120, 130)]
    trainings.append(a_training(100 + DAY - 5, 100 + DAY + 5, 0.01))
    session = {"start_tick": 80, "stop_tick": 100 + 2 * DAY, "trainings": trainings}
    before = {"start_tick": 0, "stop_tick": 90, "trainings": [a_training(10, 20, 50.0)]}
    cells = (Cell(0, 10, 300), Cell(50, 10, 300), Cell(DAY - 5, 5, 1))
    assert recorded(a_recording(tmp_path, session, before), first=100) == [Notebook(0, DAY, cells)]


@pytest.mark.parametrize("session", [5, {}, {"start_tick": 0, "stop_tick": 1, "trainings": [{}]}])
def test_recording_of_another_form_is_refused(tmp_path: Path, session: Any) -> None:
    """The benchmark tells what is missing."""
    with pytest.raises(CannotRunError, match="is no recording of sessions"):
        recorded(a_recording(tmp_path, session))
    with pytest.raises(CannotRunError, match="is no recording of sessions"):
        recorded(tmp_path / "nowhere")


def test_drawn_day_is_possible() -> None:
    """Cells of one notebook do not overlap, and end with the day; the same seed draws the same."""
    notebooks = drawn(20, 1)
    assert notebooks == drawn(20, 1) != drawn(20, 2)
    for one in notebooks:
        ends = [0, *(cell.start + cell.length for cell in one.cells)]
        assert all(end <= cell.start for end, cell in zip(ends, one.cells, strict=False))
        assert ends[-1] <= DAY
        assert all(1 <= cell.pace <= 1000 and cell.length >= 1 for cell in one.cells)


def test_no_gpu_is_given_away_twice() -> None:
    """A notebook that left makes room."""
    first, second, third, later = (Notebook(*when, ()) for when in ((0, 10), (0, 20), (5, 20), (10, 20)))
    assert placed([later, third, second, first], 500) == [(first, second, later), (third,)]


@pytest.mark.parametrize(
    ("wants", "idle", "got"),
    [
        ((1000, 100), False, (300, 100)),
        ((1000, 100), True, (900, 100)),
        ((1000, 1000), True, (600, 400)),  # what is left, in proportion to the claims
        ((320, 1000), True, (320, 680)),
        ((0, 0), True, (0, 0)),
    ],
)
def test_claims_come_first(wants: tuple[int, int], idle: bool, got: tuple[int, int]) -> None:
    """Each gets what it has a claim to before others get the rest."""
    found = rates({"a": 300, "b": 200}, {"a": wants[0], "b": wants[1]}, idle=idle)
    assert list(found.values()) == pytest.approx(got)


def test_lone_cell_takes_its_time() -> None:
    """With a limit below its pace it takes longer, and the next one begins later."""
    gpu = (Notebook(0, DAY, (Cell(10, 100, 500), Cell(120, 10, 250))),)
    found = {way: measure([gpu], 250, way) for way in WAYS}
    assert found[FIXED].waits == pytest.approx([100, 90], abs=0.01)
    assert found[FIXED_IDLE].waits == pytest.approx([0, 0], abs=0.01)
    assert found[FIXED_IDLE].loose == pytest.approx(100 * 25 / 52.5, abs=0.01)
    assert max(found[LENT].waits) < 0.5  # the seconds in which it grew
    assert found[LENT_IDLE].loose < 1
    assert all(day.done == pytest.approx(day.wanted) == pytest.approx(52.5 / 60) for day in found.values())
    assert all(day.unfinished == 0 for day in found.values())


def test_cell_of_a_user_that_leaves_is_not_done() -> None:
    """It was waited for until then."""
    day = measure([(Notebook(0, 100, (Cell(0, 80, 1000), Cell(90, 10, 100))),)], 500, FIXED)
    assert day.waits == pytest.approx([20, 0])
    assert day.unfinished == 2
    assert [day.done * 60, day.wanted * 60] == pytest.approx([50, 81])


def test_share_soon_gets_its_own_time_back() -> None:
    """Beside one that had grown, it lacks its time for a second or so each time it comes back."""
    hog = Notebook(0, DAY, (Cell(0, DAY, 1000),))
    guest = Notebook(0, DAY, tuple(Cell(start, 10, 500) for start in range(10, DAY, 60)))
    day = measure([(hog, guest)], 500, LENT_IDLE)
    assert 0 < day.starved * 3600 < len(guest.cells)
    assert measure([(hog, guest)], 500, FIXED_IDLE).starved == pytest.approx(0)


@pytest.mark.parametrize("elastic", [True, False])
def test_fluid_is_right_about_gpu_time(elastic: bool) -> None:
    """It agrees with the arbiter, except for handovers."""
    assert fluid_error(elastic=elastic) < 3
