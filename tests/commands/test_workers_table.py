"""The text of `jupyter gpu workers`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_gpu.cli.rules.workers_table import lines
from jupyter_gpu.model.view import View
from tests.model import golden

VIEWS = {case["name"]: View.from_json(case["view"]) for case in golden.load("views")}


def test_each_worker_has_a_line() -> None:
    """Columns are aligned; what Kubernetes says of one that does not run is below it."""
    view = VIEWS["attaching, two workers start"]
    first, second = (worker._replace(node=node) for worker, node in zip(view.workers, ("n", "node33"), strict=True))
    second = second._replace(round_trip=1500)
    shown = list(lines(replace(view, workers=(first._replace(message="No room."), second))))
    assert shown[2].endswith("answers in 1.5 ms")
    assert shown[1] == "    No room."
    assert shown[0].startswith("w1  n       ")
    assert shown[2].startswith("w2  node33  ")
    assert len(shown) == 3
    broken = list(lines(VIEWS["degraded, a GPU of another node stopped working"]))
    assert "Not working" in broken[0]
    assert broken[1:] == ["    Xid 79: it fell off the bus."]


@pytest.mark.parametrize(
    ("elsewhere", "words"), [(None, "own node alone"), (0, "no GPU"), (4000, "could give 4 GPUs, and give none now")]
)
def test_without_workers(elsewhere: int | None, words: str) -> None:
    """It says whether other nodes could give any."""
    (line,) = lines(replace(VIEWS["idle, never asked"], elsewhere=elsewhere))
    assert words in line
