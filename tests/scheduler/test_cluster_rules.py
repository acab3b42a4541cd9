"""The rules that hold at every instant, in random clusters: new pods, resizes and misfortune in any order.

The machine plays users, kube-scheduler, the nodes and misfortune; the controller decides now and then. In half of the
worlds all wishes are for whole GPUs of any kind: there, counting alone tells what each pod may get, and is the check.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from jupyter_gpu.model.annotations import Allocated, Attached, Requested, Wish, record
from jupyter_gpu.model.gpu import DrainingShare, Gpu, GpuShare, total
from jupyter_gpu_scheduler.rules.new_pods.admit import allocate
from jupyter_gpu_scheduler.rules.new_pods.nominate import nominate
from jupyter_gpu_scheduler.rules.new_pods.review import review
from jupyter_gpu_scheduler.rules.queue.candidates import filter_nodes
from jupyter_gpu_scheduler.rules.queue.decide import decide
from jupyter_gpu_scheduler.rules.queue.repair import repair
from jupyter_gpu_scheduler.rules.scoring.policy import Policy
from jupyter_gpu_scheduler.rules.scoring.score import prioritize
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot, NodeFacts
from tests.builders import apply, facts, inventory, uuid

NODES = ("n", "m", "k")
UIDS = tuple("abcdefg")
POLICY = Policy()
whole = st.builds(Wish, st.sampled_from([0, 1000, 1000, 2000, 2000, 3000]), priority=st.sampled_from([None, None, 1]))
mixed = st.builds(
    Wish,
    st.sampled_from([250, 500, 1000, 1500, 2000, 2500]),
    priority=st.sampled_from([None, None, 1]),
    model=st.sampled_from([(), (), ("A100",)]),
    topology=st.sampled_from([None, None, "island"]),
)
uids = st.sampled_from(UIDS)
nodes = st.sampled_from(NODES)


class Cluster(RuleBasedStateMachine):
    """Three nodes, and pods that come, grow, shrink and go."""

    def __init__(self) -> None:
        super().__init__()
        self.snapshot = ClusterSnapshot()
        self.nodes: dict[str, tuple[tuple[Gpu, ...], NodeFacts]] = {}
        self.known: set[str] = set(NODES)
        self.binding: dict[str, str] = {}
        self.whole = True
        self.clock = 0

    # --- what happens -------------------------------------------------------------------------------------------

    @initialize(counts=st.lists(st.integers(1, 4), min_size=3, max_size=3), whole=st.booleans())
    def start(self, counts: list[int], whole: bool) -> None:
        """Nodes with GPUs and no pods."""
        self.whole = whole
        for number, (name, count) in enumerate(zip(NODES, counts, strict=True)):
            models = ("A100",) if whole else ("A100", "H100")
            gpus = (
                replace(gpu, uuid=uuid(10 * number + gpu.index)) for gpu in inventory(count, island=2, models=models)
            )
            self._see(name, tuple(gpus), facts(4))

    @rule(uid=uids, one=whole, other=mixed)
    def create(self, uid: str, one: Wish, other: Wish) -> None:
        """A new pod; it is tried at once."""
        if self.snapshot.pod(uid) is None:
            self.clock += 1
            wish = one if self.whole else other
            self.snapshot.put_pod(PodState(uid, requested=record(None, wish), created=float(self.clock)))
            self._try(uid)

    @rule(uid=uids)
    def schedule(self, uid: str) -> None:
        """kube-scheduler tries a pending pod again."""
        self._try(uid)

    @rule(uid=uids)
    def look(self, uid: str) -> None:
        """kube-scheduler filters, and binds some time later, when other things have happened."""
        pod = self._pending(uid)
        fitting = self._filter(pod) if pod else ()
        if pod and fitting:
            scores = prioritize(self.snapshot, pod, fitting, POLICY)
            self.binding[uid] = max(fitting, key=lambda name: (scores[name], name))

    @rule(uid=uids)
    def bind(self, uid: str) -> None:
        """A bind that comes late: the room may be gone, and then nothing is allocated."""
        if uid in self.binding:
            self._bind(uid, self.binding.pop(uid))

    @rule(uid=uids, one=whole, other=mixed)
    def resize(self, uid: str, one: Wish, other: Wish) -> None:
        """A user asks for something else; also for a pod that is still waiting."""
        pod = self.snapshot.pod(uid)
        if pod and not pod.gone:
            self.snapshot.put_pod(replace(pod, requested=record(pod.requested, one if self.whole else other)))

    @rule(uid=uids, busy=st.booleans())
    def use(self, uid: str, busy: bool) -> None:
        """Programs of a pod open all they can, or close it."""
        pod = self.snapshot.pod(uid)
        if pod:
            can = {share.uuid for share in (pod.attached or Attached(0)).shares}
            self.snapshot.put_pod(replace(pod, busy=frozenset(can if busy else ())))

    @rule(node=nodes)
    def enforce(self, node: str) -> None:
        """The node does what was decided; what is open when it is revoked drains."""
        for pod in self.snapshot.pods(node):
            self._enforce(pod)

    @rule(uid=uids, removed=st.booleans())
    def delete(self, uid: str, removed: bool) -> None:
        """A pod is deleted; its object goes at once or some time later, and until then its programs run."""
        pod = self.snapshot.pod(uid)
        if pod:
            self.snapshot.put_pod(replace(pod, gone=True))
            if removed or pod.pending:
                self.snapshot.remove_pod(uid)
                self.binding.pop(uid, None)

    @rule(uid=uids)
    def finish(self, uid: str) -> None:
        """All programs of a pod have ended, be it deleted or not; its node has not looked yet."""
        pod = self.snapshot.pod(uid)
        if pod and not pod.pending:
            self.snapshot.put_pod(replace(pod, gone=True, finished=True, busy=frozenset()))

    @rule(node=nodes, kind=st.sampled_from(["breaks", "heals", "cordoned", "vanishes", "comes back"]))
    def misfortune(self, node: str, kind: str) -> None:
        """A GPU breaks, a node is cordoned or vanishes; or all is well again."""
        gpus, about = self.nodes[node]
        if kind == "vanishes":
            self.known.discard(node)
            self.snapshot.remove_node(node)
        elif kind == "comes back":
            self.known.add(node)
            self._see(node, gpus, replace(about, schedulable=True))
        elif kind == "cordoned":
            self._see(node, gpus, replace(about, schedulable=False))
        else:
            self._see(node, (replace(gpus[0], healthy=kind == "heals"), *gpus[1:]), about)

    @rule()
    def control(self) -> None:
        """The controller decides for all that changed."""
        self._control()

    @rule()
    def settle(self) -> None:
        """Carry everything out until nothing changes; then no pod waits that could be served."""
        self._settle()
        for name in self.known:
            self._check_rest(name)

    # --- what must be so at every instant -----------------------------------------------------------------------

    @invariant()
    def a_gpu_is_never_given_twice(self) -> None:
        """Rules 1 and 2: with what drains; a pod that is not bound holds nothing.

        GPUs that `allocated` or `attached` of a pod being deleted names belong to no other pod, nor do those
        that a finished pod still has attached or draining.
        """
        held: dict[str, int] = {}
        for pod in self._all():
            assert not (pod.pending and pod.allocated and pod.allocated.shares)
            for gpu, milli in _named(pod).items():
                held[gpu] = held.get(gpu, 0) + milli
        assert all(milli <= 1000 for milli in held.values()), held

    @invariant()
    def a_restart_changes_nothing(self) -> None:
        """A snapshot built anew from the records answers as the one that was kept: no answer of it is stale."""
        fresh = self._rebuilt()
        for wish in (Wish(1000), Wish(2000, priority=1), Wish(500)):
            probe = PodState("probe", requested=Requested(1, wish), created=1e9)
            assert filter_nodes(self.snapshot, probe, NODES) == filter_nodes(fresh, probe, NODES)
            assert prioritize(self.snapshot, probe, NODES, POLICY) == prioritize(fresh, probe, NODES, POLICY)
        assert review(self.snapshot, POLICY) == review(fresh, POLICY)
        for name in self.known:
            assert decide(self.snapshot, name) == decide(fresh, name)
        assert self.snapshot.pending() == fresh.pending()
        assert self.snapshot.last_ticket == fresh.last_ticket

    # --- kube-scheduler -----------------------------------------------------------------------------------------

    def _filter(self, pod: PodState) -> tuple[str, ...]:
        """Filter, and check that allocate says the same of each node."""
        found = filter_nodes(self.snapshot, pod, NODES)
        assert sorted((*found.fitting, *found.failed, *found.never)) == sorted(NODES)
        for name in NODES:
            assert isinstance(allocate(self.snapshot, pod, name), Allocated) == (name in found.fitting)
            if self.whole:
                assert (name in found.fitting) == self._has_room(pod, name), f"{pod.uid} on {name}"
        return found.fitting

    def _try(self, uid: str) -> bool:
        """One attempt; whether anything changed."""
        pod = self._pending(uid)
        if pod is None or uid in self.binding:
            return False
        fitting = self._filter(pod)
        if fitting:
            scores = prioritize(self.snapshot, pod, fitting, POLICY)
            return self._bind(uid, max(fitting, key=lambda name: (scores[name], name)))
        step = nominate(self.snapshot, pod, sorted(self.known), POLICY)
        if step is None:
            return False
        assert not step.allocated.shares
        self.snapshot.put_pod(replace(pod, allocated=step.allocated))
        now = self.snapshot.pod(uid)
        assert now is not None
        assert nominate(self.snapshot, now, sorted(self.known), POLICY) is None
        return True

    def _bind(self, uid: str, node: str) -> bool:
        pod = self._pending(uid)
        if pod is None:
            return False
        free = {gpu.uuid: self.snapshot.free(gpu.uuid) for gpu in self.snapshot.gpus(node) or ()}
        found = allocate(self.snapshot, pod, node)
        if not isinstance(found, Allocated):
            return False
        wish = pod.requested.wish if pod.requested else Wish(0)
        assert sorted((share.milli for share in found.shares), reverse=True) == list(wish.pieces)
        assert all(share.milli <= free[share.uuid] for share in found.shares)
        assert not self.whole or self._has_room(pod, node)
        self.snapshot.put_pod(replace(pod, node=node, allocated=found))
        assert allocate(self.snapshot, pod, node) == found, "binding twice gave something else"
        return True

    def _pending(self, uid: str) -> PodState | None:
        pod = self.snapshot.pod(uid)
        return pod if pod and pod.pending and not pod.gone else None

    # --- controller and nodes -------------------------------------------------------------------------------------

    def _control(self) -> bool:
        """Decide until nothing changes, as when each write comes back as a change; whether anything did."""
        for turn in range(12):
            moved = review(self.snapshot, POLICY)
            apply(self.snapshot, moved)
            assert review(self.snapshot, POLICY) == (), "reviewing again changed something"
            steps = moved
            for name in sorted(self.known):
                decided = decide(self.snapshot, name)
                apply(self.snapshot, decided)
                self.a_gpu_is_never_given_twice()
                assert decide(self.snapshot, name) == (), "deciding again changed something"
                steps += decided
            if not steps:
                return turn > 0
        raise AssertionError("the controller does not come to rest")

    def _settle(self) -> None:
        self.binding.clear()
        for _ in range(40):
            changed = self._control()
            for name in NODES:
                for pod in self.snapshot.pods(name):
                    self.snapshot.put_pod(replace(pod, busy=frozenset()))
                    changed |= self._enforce(replace(pod, busy=frozenset()))
            for uid in UIDS:
                changed |= self._try(uid)
            if not changed:
                return
        raise AssertionError("the cluster does not come to rest")

    def _enforce(self, pod: PodState) -> bool:
        """The node plugin's part; whether anything changed."""
        granted = () if pod.finished or not pod.allocated else pod.allocated.shares
        before = pod.attached or Attached(0)
        leaving = {share.uuid: share.milli for share in (*before.shares, *(item.share for item in before.draining))}
        kept = {share.uuid for share in granted}
        draining = tuple(DrainingShare(gpu, milli) for gpu, milli in leaving.items() if gpu in pod.busy - kept)
        after = pod.allocated or Allocated(0)
        actual = Attached(after.observed_generation, granted, draining, revision=after.revision)
        self.snapshot.put_pod(replace(pod, attached=actual))
        return actual != pod.attached

    # --- counting, where all wishes are for whole GPUs --------------------------------------------------------------

    def _has_room(self, pod: PodState, node: str) -> bool:
        """Whether as many GPUs are free as the pod and all before it are owed, and a slot is."""
        if node not in self.known:
            return False
        gpus, about = self.nodes[node]
        bound = [other for other in self.snapshot.pods(node) if not other.gone]
        if not about.schedulable or len(bound) >= 4:
            return False
        wish = pod.requested.milli if pod.requested else 0
        if not wish:
            return True
        before = [other for other in self._waiting(node) if other.uid != pod.uid and other.rank < pod.rank]
        return sum(map(self._owed, before)) + wish <= self._free(node) and wish <= 1000 * len(gpus)

    def _waiting(self, node: str) -> list[PodState]:
        """Return the pods that are owed something on a node and can be served there."""
        most = 1000 * len(self.nodes[node][0])
        pods = (*self.snapshot.pods(node), *self.snapshot.nominated(node))
        return [
            pod
            for pod in pods
            if not pod.gone and pod.requested and pod.requested.milli <= most and self._owed(pod) > 0
        ]

    def _owed(self, pod: PodState) -> int:
        has = 0 if pod.pending or not pod.allocated else total(pod.allocated.shares)
        return max(0, (pod.requested.milli if pod.requested else 0) - has)

    def _free(self, node: str) -> int:
        return sum(self.snapshot.free(gpu.uuid) for gpu in self.nodes[node][0] if gpu.healthy)

    def _check_rest(self, node: str) -> None:
        """Check that the next in line is served if it can be, and that no pod waits that another line would serve."""
        if not self.whole:
            return
        line = sorted(self._waiting(node), key=lambda pod: pod.rank)
        if line and not line[0].pending:
            assert not self._free(node), f"{line[0].uid} is owed what is free"
        for pod in self.snapshot.nominated(node):
            for name in self.known:
                assert not self._has_room(pod, name), f"{pod.uid} waits for {node} and fits on {name}"

    # --- tools ---------------------------------------------------------------------------------------------------

    def _see(self, name: str, gpus: tuple[Gpu, ...], about: NodeFacts) -> None:
        self.nodes[name] = (gpus, about)
        if name in self.known:
            self.snapshot.put_node(name, gpus, about)

    def _all(self) -> list[PodState]:
        return [pod for uid in UIDS if (pod := self.snapshot.pod(uid))]

    def _rebuilt(self) -> ClusterSnapshot:
        fresh = ClusterSnapshot()
        for pod in self._all()[::-1]:
            fresh.put_pod(pod)
        for name in self.known:
            fresh.put_node(name, self.nodes[name][0][::-1], self.nodes[name][1])
        return fresh

    def teardown(self) -> None:
        """Check that no pod starves: if all is well and served pods go, every pod is served that ever can be."""
        if not self.nodes:
            return
        for name in NODES:
            self.misfortune(name, "heals")
            self.misfortune(name, "comes back")
        for _ in range(len(UIDS) + 1):
            self._settle()
            for pod in self._all():
                if not pod.pending:
                    self.snapshot.remove_pod(pod.uid)
        probe = filter_nodes(self.snapshot, PodState("probe"), NODES)
        assert probe.fitting == NODES
        for pod in self._all():
            assert len(filter_nodes(self.snapshot, pod, NODES).never) == len(NODES), f"{pod.uid} starved"


TestCluster = pytest.mark.uncounted(after=30)(Cluster.TestCase)
TestCluster.settings = settings(
    max_examples=80, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)


@st.composite
def contradictions(draw: st.DrawFn) -> ClusterSnapshot:
    """A node whose records can't all be true."""
    snapshot = ClusterSnapshot()
    snapshot.put_node("n", inventory(draw(st.integers(1, 3))), facts())
    for uid in UIDS[:4]:
        shares = {
            where: tuple(
                GpuShare(uuid(index), draw(st.sampled_from([250, 500, 1000])))
                for index in sorted(draw(st.sets(st.integers(0, 2), max_size=2)))
            )
            for where in ("allocated", "attached")
        }
        draining = tuple(DrainingShare(uuid(index), 1000) for index in draw(st.sets(st.integers(0, 2), max_size=1)))
        pod = PodState(
            uid,
            "n",
            Requested(1, Wish(draw(st.sampled_from([0, 500, 1000, 2000])))),
            Allocated(1, shares["allocated"], ticket=draw(st.sampled_from([None, 1, 2]))),
            Attached(1, shares["attached"], draining),
            created=draw(st.sampled_from([1.0, 2.0])),
            gone=(gone := draw(st.sampled_from([False, False, True]))),
            finished=gone and draw(st.booleans()),
        )
        snapshot.put_pod(pod)
    return snapshot


@pytest.mark.uncounted(after=50)
@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(contradictions())
def test_any_records_are_repaired_to_one_owner_for_each_gpu(snapshot: ClusterSnapshot) -> None:
    """Repaired, decided and carried out, no GPU has two owners, whatever the records said; a second repair changes
    nothing.
    """
    apply(snapshot, repair(snapshot, "n"))
    assert repair(snapshot, "n") == ()
    allocated: dict[str, int] = {}
    for pod in snapshot.pods("n"):
        for share in pod.allocated.shares if pod.allocated else ():
            if not pod.finished:  # the promise to a pod that finished is void, whatever it still has attached
                allocated[share.uuid] = allocated.get(share.uuid, 0) + share.milli
    gpus = {gpu.uuid for gpu in snapshot.gpus("n") or ()}
    assert all(milli <= 1000 for gpu, milli in allocated.items() if gpu in gpus), allocated
    for _ in range(20):
        apply(snapshot, (*repair(snapshot, "n"), *decide(snapshot, "n")))
        for pod in snapshot.pods("n"):
            granted = () if pod.finished or not pod.allocated else pod.allocated.shares
            revision = pod.allocated.revision if pod.allocated else 0
            snapshot.put_pod(replace(pod, attached=Attached(1, granted, revision=revision)))
    assert decide(snapshot, "n") == ()
    assert snapshot.contested("n") == ()
    # of a GPU that is not there records may say what they like: it is contested when it comes back
    assert all(milli <= 1000 for gpu, milli in _held(snapshot.pods("n")).items() if gpu in gpus)


def _held_once(pods: Iterable[PodState]) -> None:
    held = _held(pods)
    assert all(milli <= 1000 for milli in held.values()), held


def _held(pods: Iterable[PodState]) -> dict[str, int]:
    held: dict[str, int] = {}
    for pod in pods:
        for gpu, milli in _named(pod).items():
            held[gpu] = held.get(gpu, 0) + milli
    return held


def _named(pod: PodState) -> dict[str, int]:
    """Return the milli that records name, by uuid: `allocated` and revoked unless finished, `attached`, draining."""
    there = pod.attached or Attached(0)
    decided = pod.allocated if pod.allocated and not pod.finished else Allocated(0)
    promised = (*decided.shares, *decided.pending(pod.attached))
    found: dict[str, int] = {}
    for share in (*promised, *there.shares, *(item.share for item in there.draining)) if pod.node else ():
        found[share.uuid] = max(found.get(share.uuid, 0), share.milli)
    return found
