"""The fabric that a GPU is in, as the driver tells it."""

from __future__ import annotations

import pytest

from jupyter_gpu_node.gpus.rules.fabric import COMPLETED, word

CLUSTER = bytes(range(16))


def test_word_has_the_fabric_and_the_clique() -> None:
    """As NVIDIA's label on nodes says it."""
    assert word(CLUSTER, 32766, state=COMPLETED, status=0) == "00010203-0405-0607-0809-0a0b0c0d0e0f.32766"


@pytest.mark.parametrize(
    ("cluster", "state", "status"),
    [(CLUSTER, 0, 0), (CLUSTER, 2, 0), (CLUSTER, COMPLETED, 1), (bytes(16), COMPLETED, 0)],
)
def test_gpu_that_reaches_no_other_node_has_none(cluster: bytes, state: int, status: int) -> None:
    """Not supported, in progress, failed, or within one machine."""
    assert word(cluster, 1, state=state, status=status) is None
