"""The memory of one node's GPU over its pods' steps: it is never given twice, whoever is killed, and at whatever step.

The agent's own parts decide (`ManagedPod`, `PlannedShares`, `permitted`, `plan`); pods, programs and the scheduler are
lists of what they do next.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Allocated
from jupyter_gpu.model.demand import booked, held_memory, of_shares, part
from jupyter_gpu.model.gpu import Gpu, GpuShare
from jupyter_gpu_node.agent.pod import ManagedPod
from jupyter_gpu_node.agent.rules.holdings import permitted
from jupyter_gpu_node.agent.rules.plan import Observation, plan
from jupyter_gpu_node.agent.rules.pod_view import PodView
from jupyter_gpu_node.agent.sharing.planned_shares import NodePods, PlannedShares
from jupyter_gpu_node.agent.sharing.pod_slots import PodSlots
from jupyter_gpu_node.kubelet.rules.slots import PodRef
from jupyter_gpu_node.shares.rules.divided_memory import MemoryUse
from jupyter_gpu_node.shares.rules.settings import ShareSettings

GPU, ALL = "GPU-0", 80
PODS = ("a", "b", "c")


class World:
    """A node with one GPU and three pods."""

    def __init__(self) -> None:
        self.pods = {uid: ManagedPod(uid, PodView(PodRef(uid, "n", uid)), holdings_known=True) for uid in PODS}
        for pod in self.pods.values():
            pod.guard = cast("Any", SimpleNamespace(allowed=frozenset(), known=True))
        self.recorded = {uid: pod.attached for uid, pod in self.pods.items()}
        self.used = dict.fromkeys(PODS, 0)
        self.limits: dict[str, int | None] = {}
        settings = SimpleNamespace(served=Path("/nonexistent"), shares=ShareSettings())
        inventory = SimpleNamespace(seen={GPU: Gpu(GPU, 0, "T4", ALL)})
        slots = PodSlots(Path)
        for uid in PODS:
            slots.assign(uid, uid)
        pods = NodePods(lambda: self.pods, lambda: True, lambda: ())
        self.planned = PlannedShares(cast("Any", settings), pods, slots, cast("Any", inventory))

    # -- the scheduler, which knows what is recorded

    def _booked(self, uid: str) -> tuple[int, int]:
        view = self.pods[uid].view
        assert view is not None
        allocated, attached = view.allocated, self.recorded[uid]
        shares = [*(allocated.shares if allocated else ()), *(allocated.pending(attached) if allocated else ())]
        shares += [*attached.shares, *(one.share for one in attached.draining)] if attached else []
        memory = held_memory(allocated, attached) or of_shares([])
        milli = max((share.milli for share in shares), default=0)
        return milli, memory[GPU].booked(ALL) if GPU in memory else part(ALL, milli)

    def decide(self, uid: str, milli: int, memory: int) -> None:
        """Give the pod a share, where the books have room for it; 0 milli: none."""
        pod = self.pods[uid]
        assert pod.view is not None
        others = [self._booked(other) for other in PODS if other != uid]
        share = GpuShare(GPU, milli, memory if 0 < milli < 1000 else 0)
        if milli + sum(one for one, _ in others) > 1000:
            return
        if booked(ALL, milli, share.memory) + sum(size for _, size in others) > ALL:
            return
        before = pod.view.allocated or Allocated(0)
        after = before.with_shares((share,) if milli else (), self.recorded[uid])
        pod.view = PodView(pod.view.ref, allocated=after)

    def ask(self, uid: str, milli: int, memory: int) -> None:
        """Decide, and take the step at once."""
        self.decide(uid, milli, memory)
        self.step(uid)

    # -- the node plugin

    def serve(self) -> None:
        """Have the arbiter hold to the limits of what there is now."""
        self.limits = {uid: one.terms.limit for uid, one in self.planned.now(()).get(GPU, {}).items()}

    def step(self, uid: str) -> None:
        """Take the pod's next step, as `AgentSteps` does."""
        pod = self.pods[uid]
        allocated = pod.view.allocated if pod.view else None
        decided = allocated.shares if allocated else ()
        more = {share.uuid for share in decided if not share.is_within(pod.holding.opened(share.uuid))}
        if self.planned.divided(more):
            self.serve()
        divided = {
            gpu: MemoryUse(memory, {one: self.used[one] for one in self.limits})
            for gpu, memory in self.planned.divided(more).items()
        }
        others = [one.holding for one in self.pods.values() if one is not pod]
        shares = permitted(decided, pod.holding, others, {GPU}, (), divided)
        pod.granted |= {share.uuid: share for share in shares}
        self.serve()
        cast("Any", pod.guard).allowed = frozenset(share.uuid for share in shares)
        unproven = frozenset({GPU}) if shares or self.used[uid] else frozenset[str]()
        made = Allocated(0, shares, revision=allocated.revision) if allocated else None
        pod.attached = plan(made, pod.attached, Observation(unproven)).attached
        pod.granted = {share.uuid: share for share in shares}
        pod.holdings_known = True
        self.serve()

    def record(self, uid: str) -> None:
        """Write what the pod has."""
        self.recorded[uid] = self.pods[uid].attached

    def kill(self) -> None:
        """Kill the plugin, and start it: it knows what is recorded, and the rules in force."""
        for uid, pod in self.pods.items():
            pod.attached, pod.granted, pod.holdings_known = self.recorded[uid], {}, False
        self.serve()

    def restart(self) -> None:
        """Kill the plugin, and have the next one find out what each pod has."""
        self.kill()
        for uid in self.pods:
            self.step(uid)

    # -- programs

    def use(self, uid: str, size: int) -> None:
        """Have the pod's program take so much in all, as far as its limit and the GPU allow; less is given back."""
        opens = GPU in cast("Any", self.pods[uid].guard).allowed or self.used[uid] > 0
        limit = self.limits.get(uid, 0)
        free = ALL - sum(self.used.values()) + self.used[uid]
        most = min(free, ALL if limit is None else limit) if opens and uid in self.limits else 0
        if size <= max(most, self.used[uid]):
            self.used[uid] = size

    # -- what must hold

    def check(self) -> None:
        """Check that what was given beyond its part is there for each pod."""
        limits = [limit for limit in self.limits.values() if limit is not None]
        if self.planned.divided((GPU,)):
            assert sum(limits) <= ALL
        for uid, pod in self.pods.items():
            share = pod.granted.get(GPU)
            if share and not share.exclusive and share.memory > part(ALL, share.milli):
                others = sum(size for other, size in self.used.items() if other != uid)
                assert others + share.memory <= ALL, f"{uid} lacks some of its {share.memory}: {self.used}"


pod_names = st.sampled_from(PODS)
steps = st.tuples(st.just("step"), pod_names)
amounts = (pod_names, st.sampled_from([250, 0, 1000]), st.sampled_from([60, 0, 40]))
todos = st.one_of(
    st.tuples(st.just("decide"), *amounts),
    st.tuples(st.just("ask"), *amounts),
    steps,
    st.tuples(st.just("use"), pod_names, st.sampled_from([60, 0, 20])),
    st.tuples(st.just("record"), pod_names) | st.sampled_from([("kill",), ("restart",)]),
)


@given(st.sampled_from([60, 20]), st.lists(todos, max_size=40))
def test_memory_is_never_given_twice(used: int, todo: list[tuple[Any, ...]]) -> None:
    """At every step: what a share was given beyond its part is free, or its own."""
    world = World()
    for name, *arguments in [("decide", "a", 250, 0), ("step", "a"), ("use", "a", used), *todo]:
        getattr(world, name)(*arguments)
        world.check()


@pytest.mark.parametrize("killed", [False, True])
def test_a_share_gets_its_memory_once_others_have_freed_it(killed: bool) -> None:
    """The other program keeps what it has, gets no more, and frees it when it likes."""
    world = World()
    world.decide("a", 250, 0)
    world.step("a")
    world.record("a")
    world.use("a", 60)
    world.decide("b", 1, 60)
    world.step("b")
    assert world.pods["b"].granted == {}
    assert world.limits["a"] == 20, "It is limited at once."
    if killed:
        world.kill()
        world.step("a")
        world.step("c")
    world.use("a", 10)
    world.use("a", 30)
    assert world.used["a"] == 10
    world.step("b")
    assert world.pods["b"].granted == {GPU: GpuShare(GPU, 1, 60)}
    assert world.limits == {"a": 20, "b": 60}
    world.use("b", 60)
    assert world.used["b"] == 60
    world.decide("b", 0, 0)
    world.step("b")
    assert world.limits["a"] == 20, "What drains has its memory until it is closed."
    world.use("b", 0)
    world.step("b")
    assert world.limits["a"] is None
