"""Pods that are being deleted or have finished: GPUs that they may still use are not free."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Allocated, Requested, Wish
from jupyter_gpu_scheduler.rules.new_pods.admit import allocate
from jupyter_gpu_scheduler.rules.queue.decide import decide
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from tests.builders import allocated, apply, attached, cluster, pod, uuid

few = st.sets(st.integers(0, 2))


@given(promised=few, attaches=few, drains=few, finished=st.booleans(), wants=st.integers(1, 3))
def test_gpus_that_a_leaving_pod_may_use_are_not_free(
    promised: set[int], attaches: set[int], drains: set[int], finished: bool, wants: int
) -> None:
    """They are free neither for a new pod nor for one that grows; a finished pod's promises are free."""
    there = attached(attaches, draining=drains)
    leaves = PodState("a", "n", None, allocated(promised), there, gone=True, finished=finished)
    taken = {uuid(index) for index in (attaches | drains if finished else promised | attaches | drains)}
    snapshot = cluster({"n": 3}, [leaves, pod("b", wants=wants, node="n")])
    found = allocate(snapshot, PodState("c", requested=Requested(1, Wish(wants * 1000))), "n")
    given_away = {share.uuid for share in found.shares} if isinstance(found, Allocated) else set()
    apply(snapshot, decide(snapshot, "n"))
    grown = snapshot.pod("b")
    assert grown
    given_away |= set(grown.held)
    assert not given_away & taken
    assert len(grown.held) == min(wants, 3 - len(taken))
