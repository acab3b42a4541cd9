"""The introduction of a gate: in its order, once, and before anything else."""

from __future__ import annotations

import pytest

from jupyter_gpu_node.parking.rules.introduction import MOST_BYTES, Introduction
from jupyter_gpu_node.parking.rules.messages import Ability, Can, FromGate, Gpu, Hello, Need, ProcessState, State, Use
from jupyter_gpu_node.shares.rules.framing import Malformed

HELLO, STATE = Hello(13000, Ability.PARK, 2), ProcessState(State.RUNNING)
ONE, TWO = Gpu("GPU-a", 0), Gpu("GPU-b", 1)


def test_gate_introduces_itself() -> None:
    """Its GPUs are in the order of CUDA; what comes afterwards is for others."""
    found = Introduction()
    assert [found.hear(message) for message in (HELLO, ONE, TWO)] == [False] * 3
    assert not found.complete
    assert found.use.busy, "until it says more"
    assert found.hear(STATE)
    assert (found.complete, found.hello, found.gpus, found.state) == (True, HELLO, ("GPU-a", "GPU-b"), STATE)
    assert found.hear(Use(False, False, 9, 1))
    assert found.use == Use(False, False, 9, 1)
    assert found.hear(Need(True))
    assert found.hear(Can(1, 5, 1))


@pytest.mark.parametrize(
    "messages",
    [
        [STATE],
        [ONE],
        [Need(True)],
        [HELLO, HELLO],
        [HELLO, STATE],
        [HELLO, ONE, ONE],
        [HELLO, TWO],
        [HELLO, ONE, Gpu("GPU-a", 1)],
        [HELLO, ONE, Need(True)],
        [HELLO, ONE, TWO, Gpu("GPU-c", 2)],
        [HELLO, ONE, TWO, STATE, STATE],
        [HELLO, ONE, TWO, STATE, HELLO],
        [HELLO, ONE, TWO, STATE, TWO],
        [HELLO, ONE, TWO, ProcessState(State.PARKED, 1, MOST_BYTES + 1)],
        [HELLO, ONE, TWO, STATE, Can(1, MOST_BYTES + 1, 1)],
    ],
)
def test_what_is_out_of_order_is_refused(messages: list[FromGate]) -> None:
    """The last message is; those before it are not."""
    found = Introduction()
    for message in messages[:-1]:
        found.hear(message)
    with pytest.raises(Malformed):
        found.hear(messages[-1])
