"""The server refuses at once what the scheduler refuses, and nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.backends.kubernetes.rules.views import Node, candidates
from jupyter_gpu.model.annotations import Reason, Wish
from jupyter_gpu.model.errors import LimitExceeded
from jupyter_gpu.model.feasible import refuse
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu_scheduler.rules.queue.decide import decide
from tests.builders import GIB, NODE, inventory, pod, world

MODELS = ("NVIDIA A100-SXM4-80GB", "NVIDIA H100 PCIe", "Tesla T4")
REFUSED = (Reason.INFEASIBLE, Reason.LIMIT_EXCEEDED)


def by_server(wish: Wish, gpus: tuple[Gpu, ...], limit: int | None) -> tuple[str, str] | None:
    """Return reason and message of the server's refusal on a node with ``gpus``."""
    error = refuse(wish, limit=limit, gpus=candidates(wish, Node(NODE, simulated=False, gpus=gpus)))
    return (error.reason, error.message) if error else None


def by_scheduler(wish: Wish, gpus: tuple[Gpu, ...], limit: int | None) -> tuple[str, str] | None:
    """Return reason and message that the scheduler records where it refuses the wish for good."""
    state = pod("a", wants=wish, limit=None if limit is None else f"{limit}m")
    (decision,) = decide(world(gpus, [state]), NODE)
    found = decision.allocated
    return (found.reason, found.message) if found.reason in REFUSED else None


@given(
    gpus=st.integers(0, 5),
    unhealthy=st.sets(st.integers(0, 4)),
    pieces=st.integers(0, 6),
    each=st.sampled_from([None, 250, 500, 1000]),
    rest=st.sampled_from([0, 100, 500]),
    model=st.sampled_from([(), ("a100",), ("A100 SXM4",), ("A10",), ("t4", "H100"), ("Abacus",)]),
    memory=st.sampled_from([None, GIB, 20 * GIB, 40 * GIB, 80 * GIB, 2**50]),
    topology=st.sampled_from([None, "any", "island", "switch"]),
    limit=st.sampled_from([None, 0, 1000, 2500]),
)
def test_server_refuses_the_same_requests_as_the_scheduler(
    gpus: int,
    unhealthy: set[int],
    pieces: int,
    each: int | None,
    rest: int,
    model: tuple[str, ...],
    memory: int | None,
    topology: str | None,
    limit: int | None,
) -> None:
    """The server's refusal has the reason and the message that the scheduler records for the wish on the same node."""
    node = inventory(gpus, island=2, switch=1, models=MODELS, memory=(80, 40, 16), unhealthy=unhealthy)
    amount = pieces * (each or 1000) + (0 if each else rest)
    wish = Wish(amount, each=each, model=model, memory=memory, topology=topology)
    assert by_server(wish, node, limit) == by_scheduler(wish, node, limit)


def test_unknown_gpus_refuse_no_wish() -> None:
    """A node that has not answered and a wish for GPUs of other nodes leave the refusal to the scheduler."""
    node = Node(NODE, simulated=False, gpus=inventory(1))
    assert refuse(Wish(9000), limit=None, gpus=candidates(Wish(9000), None)) is None
    elsewhere = Wish(9000, placement="any")
    assert refuse(elsewhere, limit=None, gpus=candidates(elsewhere, node)) is None
    assert refuse(Wish(0), limit=0, gpus=()) is None


def test_limit_holds_while_gpus_are_unknown() -> None:
    """A wish beyond the limit is refused even before the node has answered."""
    assert isinstance(refuse(Wish(9000), limit=1000, gpus=candidates(Wish(9000), None)), LimitExceeded)
