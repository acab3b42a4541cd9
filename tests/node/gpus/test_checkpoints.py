"""The drivers that can park a process, by the names of their libraries."""

import pytest

from jupyter_gpu_node.gpus.rules.checkpoints import can_park


@pytest.mark.parametrize(
    ("library", "can"),
    [
        ("libnvidia-ml.so.580.126.09", True),
        ("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1010", True),
        ("libnvidia-ml.so.575.57.08", False),
        ("libnvidia-ml.so.1", False),
        ("libnvidia-ml.so", False),
        ("libnvidia-ml.so.580-old", False),
    ],
)
def test_driver_is_told_by_the_name_of_its_library(library: str, can: bool) -> None:
    """A name without a version tells nothing, so nothing is put in front of it."""
    assert can_park(library) == can
