"""Settings of time sharing: what may be said, and what holds for one GPU then."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpu.model.strict import FieldError
from jupyter_gpu_node.shares.rules.gpu_settings import GpuRules, of, read
from jupyter_gpu_node.shares.rules.turns.elasticity import Elastic
from jupyter_gpu_node.shares.rules.turns.timing import Timing
from jupyter_gpu_node.shares.rules.violations.penalties import Penalties


def test_empty_settings_are_the_default_everywhere() -> None:
    """Code and files have the same defaults."""
    assert of(read({}, "shares"), "node1", "GPU-1") == GpuRules(Timing(), Elastic(), Penalties())


def test_the_gpu_s_own_come_before_its_node_s_and_these_before_all() -> None:
    """Key by key."""
    settings = read(
        {
            "timing": {"lease": 10_000, "least": 1_000},
            "nodes": {"node2": {"timing": {"lease": 5_000}, "elastic": {"enabled": False}}},
            "gpus": {"GPU-7": {"timing": {"least": 4_000}, "penalties": {"strikes": 2}, "elastic": {"enabled": True}}},
        },
        "shares",
    )
    assert of(settings, "node1", "GPU-1").timing == Timing(lease=10_000, least=1_000)
    assert of(settings, "node2", "GPU-1") == GpuRules(Timing(lease=5_000, least=1_000), None)
    assert of(settings, "node2", "GPU-7") == GpuRules(Timing(lease=5_000, least=4_000), Elastic(), Penalties(strikes=2))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], "'shares' must be a JSON object"),
        ({"timings": {}}, "'timings' in 'shares' is not known; known are elastic, enforce"),
        ({"enforce": "yes"}, "shares.enforce"),
        ({"timing": {"perod": 1}}, "'shares.timing': 'perod' is not known; known are expiry, grace"),
        ({"timing": {"period": "long"}}, "'shares.timing': 'period' must be a whole number"),
        ({"timing": {"period": 1}}, "'shares.timing': period is 1; it must be from 10000 to 10000000"),
        ({"timing": {"lease": 200_000}}, "must not be shorter than the one before"),
        ({"elastic": {"grow": 0.2}}, "each must be above the last"),
        ({"elastic": {"enabled": 1}}, "shares.elastic.enabled"),
        ({"elastic": None}, "shares.elastic"),
        ({"penalties": {"strikes": 0}}, "strikes is 0"),
        ({"timing": {"grace": 600_000}}, "the grace of penalties"),
        ({"nodes": {"node2": {"timing": {"lease": 1}}}}, "shares.nodes.node2.timing"),
        ({"nodes": {"node2": {"enforce": False}}}, "'enforce' in 'shares.nodes.node2' is not known"),
        ({"gpus": {"GPU-7": []}}, "shares.gpus.GPU-7"),
        ({"gpus": {f"GPU-{number}": {} for number in range(1001)}}, "more than 1,000 entries"),
        (
            {"nodes": {"node2": {"timing": {"lease": 3_000}}}, "gpus": {"GPU-7": {"timing": {"least": 4_000}}}},
            "shares.gpus.GPU-7 on node node2",
        ),
    ],
)
def test_invalid_settings_are_refused(value: Any, words: str) -> None:
    """With the place in the file; also what only conflicts on one GPU of one node."""
    with pytest.raises(FieldError, match=words):
        read(value, "shares")
