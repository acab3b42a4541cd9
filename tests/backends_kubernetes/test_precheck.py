"""The precheck refuses what the scheduler would refuse, and never more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.backends.kubernetes.rules import precheck
from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.errors import Infeasible, LimitExceeded
from jupyter_gpu_scheduler.rules.placement import feasible
from tests.builders import GIB, inventory

MODELS = ("NVIDIA A100-SXM4-80GB", "NVIDIA H100 PCIe", "Tesla T4")


@given(
    gpus=st.integers(0, 5),
    pieces=st.integers(0, 6),
    each=st.sampled_from([None, 250, 500, 1000]),
    model=st.sampled_from([(), ("a100",), ("A100 SXM4",), ("A10",), ("t4", "H100"), ("Abacus",)]),
    memory=st.sampled_from([None, GIB, 20 * GIB, 40 * GIB, 80 * GIB, 2**50]),
    topology=st.sampled_from([None, "any", "island", "switch"]),
    limit=st.sampled_from([None, 0, 1000, 2500]),
)
def test_it_never_refuses_what_the_scheduler_would_serve(
    gpus: int,
    pieces: int,
    each: int | None,
    model: tuple[str, ...],
    memory: int | None,
    topology: str | None,
    limit: int | None,
) -> None:
    """The scheduler decides: the precheck may only say earlier what it would say."""
    node = inventory(gpus, island=2, models=MODELS, memory=(80, 40, 16))
    wish = Wish(pieces * (each or 1000), each=each, model=model, memory=memory, topology=topology)
    told = precheck.refuse(wish, limit=limit, gpus=node)
    decided = feasible.refuse(wish, limit=limit, gpus=node)
    if told is not None:
        assert type(told) is type(decided)
        assert told.message


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (Wish(3000), "Only 2 GPUs here can serve this"),
        (Wish(1000, model=("Abacus",)), r"No GPU of this pod's node is what you ask for \(Abacus\)"),
        (Wish(1000, memory=2**50), "1 PiB of memory in each share"),
        (Wish(1500, each=500), "3 shares are on as many GPUs, and only 2"),
    ],
)
def test_the_sentence_says_what_is_missing(wish: Wish, words: str) -> None:
    """What, why, and what to do."""
    error = precheck.refuse(wish, limit=None, gpus=inventory(2))
    assert isinstance(error, Infeasible)
    with pytest.raises(Infeasible, match=words):
        raise error


def test_what_cannot_be_known_here_passes() -> None:
    """A node that has not answered yet, GPUs of other nodes, and a wish for nothing; a limit holds always."""
    assert precheck.refuse(Wish(9000), limit=None, gpus=None) is None
    assert precheck.refuse(Wish(9000, placement="any"), limit=None, gpus=inventory(1)) is None
    assert precheck.refuse(Wish(0), limit=0, gpus=()) is None
    assert isinstance(precheck.refuse(Wish(9000), limit=1000, gpus=None), LimitExceeded)
    error = precheck.refuse(Wish(1000), limit=None, gpus=())
    assert error is not None
    assert "has no GPU" in error.message
