"""The report of `gpu.status()`: the rows of its GPUs."""

from __future__ import annotations

from jupyter_gpu.kernel.reports.status import GpuStatus
from jupyter_gpu.model.view import View
from tests.model import golden

CASE = next(case for case in golden.load("views") if case["name"] == "ready, one of two is open and idle")


def test_gpu_that_rests_says_for_how_long() -> None:
    """At the moment of the report, however late it is shown; as text and as a table."""
    status = GpuStatus(View.from_json(CASE["view"]), at=1767225600 + 125 * 60.0)
    rows = repr(status).splitlines()[1:]
    assert ["exclusive, idle for 2 h 5 min" in row for row in rows] == [True, False]
    assert "exclusive, idle for 2 h 5 min" in status._repr_html_()
