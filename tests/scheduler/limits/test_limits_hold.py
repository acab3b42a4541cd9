"""The rules of limits that hold at every moment, in random clusters: on the real decisions, node by node.

The machine plays users, administrators, nodes and the clock. After each event it does what the process does: the terms
of each owner's pods, then the decisions of each node.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from jupyter_gpu.model.annotations import Allocated, Attached, Reason, Requested, Wish, record
from jupyter_gpu.model.gpu import DrainingShare, total
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu_scheduler.rules.limits.owner_limits import Maximum, OwnerLimits
from jupyter_gpu_scheduler.rules.limits.terms import terms
from jupyter_gpu_scheduler.rules.new_pods.admit import allocate
from jupyter_gpu_scheduler.rules.new_pods.nominate import nominate
from jupyter_gpu_scheduler.rules.new_pods.review import review
from jupyter_gpu_scheduler.rules.queue.candidates import filter_nodes
from jupyter_gpu_scheduler.rules.queue.decide import decide
from jupyter_gpu_scheduler.rules.scoring.policy import Policy
from jupyter_gpu_scheduler.rules.state.offers import offered_nodes
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from tests.builders import GIB, apply, cluster, inventory

OWNERS = (Owner("User", "ann", "hub"), Owner("User", "bob", "hub"))
UIDS = {"a": OWNERS[0], "b": OWNERS[0], "c": OWNERS[0], "d": OWNERS[1], "e": OWNERS[1]}
NODES = ("n", "m")
POLICY = Policy()
uids = st.sampled_from(sorted(UIDS))
wishes = st.one_of(
    st.builds(
        Wish, st.sampled_from([0, 500, 1000, 1000, 2000, 3000]), topology=st.sampled_from([None, None, "island"])
    ),
    st.sampled_from([Wish(1000, 500), Wish(2000, 1000), Wish(1500, model=("A100",)), Wish(2000, memory=60 * GIB)]),
)


class World(RuleBasedStateMachine):
    """Two nodes, two owners with limits, and their pods."""

    def __init__(self) -> None:
        super().__init__()
        self.snapshot = cluster(
            {
                "n": inventory(3, island=2, models=["A100"], memory=[80]),
                "m": inventory(3, models=["A100", "H100"], memory=[40, 80]),
            }
        )
        self.limits = dict.fromkeys(OWNERS, OwnerLimits())
        self.stored: dict[Owner, float | None] = dict.fromkeys(OWNERS)
        self.had = dict.fromkeys(OWNERS, 0)
        self.now = 1000.0
        self.fair = False

    # --- what happens -------------------------------------------------------------------------------------------------

    @initialize(
        first=st.lists(wishes, min_size=5, max_size=5),
        nodes=st.lists(st.sampled_from(NODES), min_size=5, max_size=5),
        fair=st.booleans(),
    )
    def start(self, first: list[Wish], nodes: list[str], fair: bool) -> None:
        """Pods on both nodes; the line is fair, or by tickets alone."""
        self.fair = fair
        for uid, wish, node in zip(UIDS, first, nodes, strict=True):
            self.snapshot.put_pod(PodState(uid, node, record(None, wish), owner=UIDS[uid], created=ord(uid)))
        self.schedule()

    @rule(uid=uids, wish=wishes)
    def ask(self, uid: str, wish: Wish) -> None:
        """A user asks for something else."""
        pod = self.snapshot.pod(uid)
        if pod and not pod.gone:
            self.snapshot.put_pod(replace(pod, requested=record(pod.requested, wish)))
        self.schedule()

    @rule(uid=uids, wish=wishes)
    def create(self, uid: str, wish: Wish) -> None:
        """A pod ends, and a new one comes that has no node yet."""
        self.snapshot.remove_pod(uid)
        offered = offered_nodes(NODES)
        self.snapshot.put_pod(
            PodState(uid, requested=Requested(1, wish), owner=UIDS[uid], created=self.now, offered=offered)
        )
        self.schedule()
        self.bind(uid)

    @rule(uid=uids)
    def bind(self, uid: str) -> None:
        """kube-scheduler asks for a new pod, and binds it where it fits."""
        pod = self.snapshot.pod(uid)
        if pod is None or pod.node:
            return
        fitting = filter_nodes(self.snapshot, pod, NODES).fitting
        if fitting:
            found = allocate(self.snapshot, pod, fitting[0])
            assert isinstance(found, Allocated)
            self.snapshot.put_pod(replace(pod, node=fitting[0], allocated=found))
        else:
            change = nominate(self.snapshot, pod, NODES, POLICY)
            apply(self.snapshot, [change] if change else [])
        self.schedule()

    @rule(
        owner=st.sampled_from(OWNERS),
        most=st.sampled_from([None, 0, 500, 1000, 1500, 2000, 3000]),
        model=st.sampled_from([None, None, 500, 1000]),
        memory=st.sampled_from([None, None, 80]),
        guaranteed=st.sampled_from([0, 500, 1000]),
        grace=st.sampled_from([0.0, 10.0]),
    )
    def administer(
        self, owner: Owner, most: int | None, model: int | None, memory: int | None, guaranteed: int, grace: float
    ) -> None:
        """An administrator sets other limits."""
        self.limits[owner] = OwnerLimits(
            gpus=None if most is None else Maximum(most),
            models={} if model is None else {"a100": Maximum(model)},
            memory=None if memory is None else Maximum(memory * GIB),
            guaranteed=guaranteed,
            weight=1 + guaranteed // 500,
            grace=grace,
        )
        self.had[owner] = self.has(owner)
        self.schedule()

    @rule(seconds=st.sampled_from([-20.0, 1.0, 5.0, 20.0]))
    def wait(self, seconds: float) -> None:
        """Time goes by; sometimes the clock is set back."""
        self.now += seconds
        self.schedule()

    @rule(uid=uids, busy=st.booleans(), closes=st.booleans())
    def enforce(self, uid: str, busy: bool, closes: bool) -> None:
        """A node does what was decided, and programs open what they got; what is open drains until it is closed."""
        pod = self.snapshot.pod(uid)
        if pod and pod.node and pod.allocated:
            now = pod.allocated.shares
            kept = {share.uuid for share in now}
            before = pod.attached or Attached(0)
            lost = {share.uuid: share.milli for share in before.shares if share.uuid not in kept}
            lost |= {item.uuid: item.milli for item in before.draining if item.uuid not in kept}
            draining = () if closes else tuple(DrainingShare(uuid, milli) for uuid, milli in lost.items())
            after = Attached(0, now, draining, revision=pod.allocated.revision)
            self.snapshot.put_pod(replace(pod, attached=after, busy=frozenset(kept if busy else ())))
        self.schedule()

    @rule(uid=uids, overdue=st.booleans())
    def age(self, uid: str, overdue: bool) -> None:
        """A pod has waited too long, or no longer."""
        pod = self.snapshot.pod(uid)
        if pod:
            self.snapshot.put_pod(replace(pod, overdue=overdue and pod.ticket is not None))
        self.schedule()

    @rule(uid=uids)
    def end(self, uid: str) -> None:
        """A pod is being deleted."""
        pod = self.snapshot.pod(uid)
        if pod and pod.node:
            self.snapshot.put_pod(replace(pod, gone=True))
        self.schedule()

    @rule(uid=uids)
    def spoil(self, uid: str) -> None:
        """A user writes what can't be read."""
        pod = self.snapshot.pod(uid)
        if pod and pod.node:
            self.snapshot.put_pod(replace(pod, requested=None, fault="It can't be read."))
        self.schedule()

    # --- the scheduler ------------------------------------------------------------------------------------------------

    def schedule(self) -> None:
        """Do what the process does, until nothing changes any more."""
        for _ in range(20):
            self.divide()
            changes = [*review(self.snapshot, POLICY)]
            apply(self.snapshot, changes)
            for node in NODES:
                self.divide()
                found = decide(self.snapshot, node)
                apply(self.snapshot, found)
                changes += found
                self.check_has()
            if not changes:
                return
        raise AssertionError("it does not come to rest")

    def divide(self) -> None:
        """Give all pods their terms."""
        for owner in OWNERS:
            pods = self.snapshot.owned(owner)
            found = terms(
                self.snapshot, pods, self.limits[owner], stored=self.stored[owner], now=self.now, fair=self.fair
            )
            self.stored[owner] = found.grace.since
            for pod in pods:
                self.snapshot.put_pod(found.pods[pod.uid].applied(pod))

    # --- what must hold -----------------------------------------------------------------------------------------------

    def has(self, owner: Owner) -> int:
        """Return what is allocated to an owner's pods that go on."""
        return sum(pod.has for pod in self.snapshot.owned(owner) if not pod.gone)

    def check_has(self) -> None:
        """An owner never has more than the maximum, or than at the last change of the limits; and never gains."""
        for owner in OWNERS:
            most = self.limits[owner].gpus
            if most:
                assert self.has(owner) <= max(most.amount, self.had[owner])

    @invariant()
    def limits_hold(self) -> None:
        """Once the grace is over, no maximum is exceeded: of GPUs, of a model, of memory."""
        for owner in OWNERS:
            limits, since = self.limits[owner], self.stored[owner]
            if since is not None:
                assert since <= self.now < since + limits.grace, "what was above the maximum is given back"
                continue
            pods = [pod for pod in self.snapshot.owned(owner) if not pod.gone]
            shares = [(share, pod.node) for pod in pods if pod.has and pod.allocated for share in pod.allocated.shares]
            gpus = {gpu.uuid: gpu for node in NODES for gpu in self.snapshot.gpus(node) or ()}
            if limits.gpus:
                assert total(share for share, _ in shares) <= limits.gpus.amount
            for word, maximum in limits.models.items():
                such = [share for share, _ in shares if word in gpus[share.uuid].model.lower()]
                assert total(such) <= maximum.amount
            if limits.memory:
                used = sum(gpus[share.uuid].memory * share.milli // 1000 for share, _ in shares)
                assert used <= limits.memory.amount

    @invariant()
    def limited_pods_stand_in_no_line(self) -> None:
        """A pod that has all that its limit permits has no ticket, and says why."""
        for pod in (pod for owner in OWNERS for pod in self.snapshot.owned(owner)):
            if pod.node and pod.cut and pod.wish and pod.has >= pod.wish.milli and not pod.gone and not pod.fault:
                assert pod.allocated is not None
                assert pod.allocated.ticket is None
                assert pod.allocated.reason in (Reason.LIMIT_EXCEEDED, Reason.INFEASIBLE)

    @invariant()
    def no_gpu_is_given_twice(self) -> None:
        """At most all of a GPU is held."""
        assert not any(self.snapshot.contested(node) for node in NODES)


def test_order_within_an_owner_does_not_follow_the_answers() -> None:
    """A limit that lets only one of two waiting pods have more comes to rest, also in a fair line."""
    world = World()
    wishes_of = (Wish(0), Wish(0), Wish(1000, 500), Wish(2000, 1000), Wish(2000, 1000))
    world.start(list(wishes_of), ["n"] * 5, fair=True)
    world.administer(UIDS["e"], 2000, None, None, 0, 0.0)
    world.limits_hold()
    assert [world.snapshot.pod(uid).wish for uid in "de"] == [Wish(2000, 1000), Wish(0, 1000)]  # type: ignore[union-attr]


@pytest.mark.parametrize(("model", "memory"), [(500, None), (None, 60)])
def test_gpus_that_serve_no_wish_any_more_are_given_back(model: int | None, memory: int | None) -> None:
    """A maximum also bounds what a pod got before its user wished for GPUs of another kind."""
    world = World()
    world.start([Wish(1000), Wish(0), Wish(0), Wish(0), Wish(0)], ["m"] * 5, fair=False)
    assert world.has(UIDS["a"]) == 1000
    world.ask("a", Wish(2000, memory=100 * GIB))
    world.administer(UIDS["a"], None, model, memory, 0, 0.0)
    world.limits_hold()
    world.administer(UIDS["a"], None, model and 0, memory and 30, 0, 0.0)
    world.limits_hold()
    assert world.has(UIDS["a"]) < 1000


TestWorld = World.TestCase
TestWorld.settings = settings(
    max_examples=20, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
pytestmark = [pytest.mark.uncounted, pytest.mark.timeout(400)]
