"""The rating of the CPU that is left for free GPUs."""

from __future__ import annotations

import pytest

from jupyter_gpu_scheduler.rules.scoring.policy import HEADROOM
from jupyter_gpu_scheduler.rules.scoring.ratings import cpu_headroom


@pytest.mark.parametrize(
    ("left", "free", "rating"),
    [
        (20_000, 2000, 1.0),
        (10_000, 2000, 0.5),
        (10_000, 1000, 1.0),
        (5000, 500, 1.0),
        (99_000, 1000, 1.0),
        (0, 1000, 0.0),
        (-5, 1000, 0.0),
        (0, 0, 1.0),
        (None, 0, 1.0),
        (None, 1000, 0.5),
    ],
)
def test_cpu_for_free_gpus_is_rated(left: int | None, free: int, rating: float) -> None:
    """Ten cores for each free GPU are enough; where none is free, none are needed; unknown is one half."""
    assert HEADROOM == 10_000
    assert cpu_headroom(left, free) == rating
    assert cpu_headroom(left, free, headroom=0) == 1.0
