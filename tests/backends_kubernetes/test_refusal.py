"""The server refuses at once what the scheduler refuses, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.backends.kubernetes.rules.views import Node, candidates
from jupyter_gpu.model.annotations import Reason, Requested, Wish
from jupyter_gpu.model.errors import Infeasible, LimitExceeded
from jupyter_gpu.model.feasible import refuse
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.limits.pod_limit import PodLimit
from jupyter_gpu.model.limits.source import Source, SourceKind
from jupyter_gpu.model.refusal import refusal
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


ML = Source(SourceKind.GROUP, "ml", "root", 1777800000)
TWO = PodLimit(2000, 2000, ML)


def above(wish: Wish, current: Wish | None, of_user: PodLimit | None, limit: int | None = None) -> str:
    """Return how the refusal of ``wish`` after ``current`` begins; empty where it is accepted."""
    before = None if current is None else Requested(3, current)
    error = refusal(wish, before, limit=limit, of_user=of_user, gpus=inventory(4))
    assert error is None or isinstance(error, LimitExceeded)
    return "" if error is None else error.message.partition(" GPU")[0]


@pytest.mark.parametrize(
    ("wish", "current", "of_user", "limit", "says"),
    [
        (Wish(3000), None, TWO, None, "Your limit is 2"),
        (Wish(2001), Wish(2000), TWO, None, "Your limit is 2"),
        (Wish(2000), None, TWO, None, ""),
        (Wish(0), None, PodLimit(0, 0, ML), None, ""),
        (Wish(250), None, PodLimit(0, 2000, ML), None, "Your limit is 2"),
        (Wish(4000), None, PodLimit(None, None, ML), None, ""),
        (Wish(4000), None, None, None, ""),
        (Wish(3000), None, TWO, 1000, "Your server's limit is 1"),  # the lower one is told
        (Wish(3000), None, TWO, 2000, "Your limit is 2"),
        (Wish(3000), None, TWO, 4000, "Your limit is 2"),
        (Wish(2000), None, TWO, 1000, "Your server's limit is 1"),
        (Wish(3000), Wish(3000), TWO, None, ""),  # it stands already
        (Wish(3000), Wish(4000), TWO, None, "Your limit is 2"),  # a person who asks for less asks for it anew
        (Wish(3000), Wish(3000, memory=GIB), TWO, None, "Your limit is 2"),
        (Wish(3000, base=1000), Wish(4000, base=1000), TWO, None, ""),  # a block of code ended
        (Wish(4000, base=1000), Wish(3000, base=1000), TWO, None, "Your limit is 2"),  # a block began
        (Wish(4000), Wish(3000), TWO, None, "Your limit is 2"),
    ],
)
def test_wish_above_the_users_limit_is_refused(
    wish: Wish, current: Wish | None, of_user: PodLimit | None, limit: int | None, says: str
) -> None:
    """Above the user's limit a wish is refused, unless it stands already; of two limits the error names the lower."""
    assert above(wish, current, of_user, limit) == says


def test_users_limit_is_told_before_what_the_node_lacks() -> None:
    """A wish beyond both is refused by the limit; one within it is still refused where no GPU fits."""
    assert isinstance(refusal(Wish(9000), None, limit=None, of_user=TWO, gpus=inventory(1)), LimitExceeded)
    assert isinstance(refusal(Wish(2000), None, limit=None, of_user=TWO, gpus=inventory(1)), Infeasible)
    assert isinstance(refusal(Wish(9000), None, limit=None, of_user=TWO, gpus=None), LimitExceeded)
