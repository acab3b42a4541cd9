"""Many small wishes never keep a big one from being served: the first to ask is first, whatever comes behind it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Allocated, Attached
from jupyter_gpu_scheduler.rules.new_pods.admit import allocate
from jupyter_gpu_scheduler.rules.new_pods.nominate import nominate
from jupyter_gpu_scheduler.rules.queue.candidates import filter_nodes
from jupyter_gpu_scheduler.rules.scoring.policy import Policy
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from tests.builders import NODE, apply, cluster, decided, new, pod, requested

pytestmark = pytest.mark.uncounted


class Line:
    """A node that is full, and the pods that come to it."""

    def __init__(self, gpus: int) -> None:
        self.count = gpus
        holders = [pod(f"holder{index}", wants=1, has=[index]) for index in range(gpus)]
        self.snapshot: ClusterSnapshot = cluster({NODE: gpus}, holders)

    def come(self, state: PodState) -> None:
        """A pod runs here and asks, or is new, and kube-scheduler asks for it."""
        self.snapshot.put_pod(state)
        if state.pending and not self.fits(state.uid):
            decision = nominate(self.snapshot, state, (NODE,), Policy())
            apply(self.snapshot, (decision,) if decision else ())
        self.decide()

    def decide(self) -> None:
        """Decide and carry all of it out at once: first what is given back, then what is given."""
        for _ in range(2):
            decided(self.snapshot)
            for state in self.snapshot.pods(NODE):
                after = state.allocated or Allocated(0)
                attached = Attached(1, after.shares, revision=after.revision)
                self.snapshot.put_pod(replace(state, attached=attached))

    def shrinks(self, uid: str) -> None:
        """Gives all back."""
        self.snapshot.put_pod(replace(self.state(uid), requested=requested(0, generation=2)))
        self.decide()

    def state(self, uid: str) -> PodState:
        """Return the pod as it is now."""
        found = self.snapshot.pod(uid)
        assert found
        return found

    def has(self, uid: str) -> int:
        """Milli."""
        return sum(share.milli for share in found.shares) if (found := self.state(uid).allocated) else 0

    def fits(self, uid: str) -> bool:
        """Whether a new pod would be let in now, by the filter and by the bind."""
        state = self.state(uid)
        fits = bool(filter_nodes(self.snapshot, state, (NODE,)).fitting)
        assert isinstance(allocate(self.snapshot, state, NODE), Exception) is not fits
        return fits


@given(data=st.data(), gpus=st.integers(2, 5), starts=st.booleans())
def test_first_pod_gets_all_of_its_wish(data: st.DataObject, gpus: int, starts: bool) -> None:
    """However many small ones come, each GPU that is given back is the big one's until it has all that it asked for."""
    line = Line(gpus)
    line.come(new("big", wants=gpus) if starts else pod("big", wants=gpus))
    small: list[str] = []
    for gone, holder in enumerate(data.draw(st.permutations([f"holder{index}" for index in range(gpus)])), start=1):
        for kind, amount in data.draw(st.lists(st.tuples(st.booleans(), st.sampled_from([1, "500m"])), max_size=3)):
            uid = f"small{len(small)}"
            line.come(new(uid, wants=amount, created=9.0) if kind else pod(uid, wants=amount))
            small.append(uid)
        line.shrinks(holder)
        assert line.has("big") == (0 if starts else 1000 * gone)
        assert not any(line.has(uid) or (line.state(uid).pending and line.fits(uid)) for uid in small)
    assert line.fits("big") if starts else line.has("big") == 1000 * gpus


@pytest.mark.parametrize("starts", [False, True])
@pytest.mark.parametrize("priority", [0, 3])
def test_only_a_higher_priority_overtakes(starts: bool, priority: int) -> None:
    """A pod of equal priority never goes before the first one."""
    line = Line(2)
    big = {"wants": 2, "priority": 1}
    line.come(new("big", **big) if starts else pod("big", **big))  # type: ignore[arg-type]
    line.come(pod("small", wants=1, priority=priority))
    line.shrinks("holder0")
    assert line.has("small") == (1000 if priority > 1 else 0)
    line.shrinks("holder1")
    line.shrinks("small")
    assert line.fits("big") if starts else line.has("big") == 2000
