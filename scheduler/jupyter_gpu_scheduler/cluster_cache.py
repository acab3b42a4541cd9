"""The state of the API server as one `ClusterSnapshot`, updated with each change.

Unconfirmed decisions are added to what the watches reported: a write in flight counts as done where it takes a GPU, and
as not done where it frees one. So no GPU is given away twice, whatever the result of the write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any

from jupyter_gpu.kube import ObjectChange
from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model.annotations import Allocated
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.limits.account import Account
from jupyter_gpu.model.limits.limit import Limit
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu_scheduler.rules.pairs.terms import PairPolicy
from jupyter_gpu_scheduler.rules.queue.slider_end import moves_end, only_end_moved
from jupyter_gpu_scheduler.rules.state.offers import OfferedNodes
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.records import NodeRecord, PodRecord, read_node, read_pod
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot

from .clocks import Clocks
from .due_times import DueTimes
from .node_use import NodeUse
from .notebooks import Notebooks
from .owners import Owners
from .pending_write import PendingWrite, overlaid
from .settings import SchedulerSettings
from .usage_counters import UsageCounters

WITHHELD = (
    "What a pod on this node holds cannot be read, so nothing is given here until its node plugin wrote it again."
)


_rest = attrgetter(*(each.name for each in fields(PodState) if each.compare and each.name != "standing"))


class ClusterCache:
    """The known pods, nodes and limits, with the writes in flight. The JSON of each version is read once, here.

    ``on_change`` is called after each change, on the event loop.

    ``complete``: whether all is known from the start; otherwise nothing may be decided before `begin`, and until then
    no terms are computed, as each new pod of an owner changes those of the others.
    """

    def __init__(
        self,
        on_change: Callable[[], None],
        settings: SchedulerSettings = SchedulerSettings(),  # noqa: B008 it can't be changed
        *,
        complete: bool = True,
        clocks: Clocks = Clocks(),  # noqa: B008
    ) -> None:
        self.snapshot = ClusterSnapshot(settings.policy.gpus, lends=settings.lending)
        self.owners = Owners(self.snapshot, settings.limits, settings.priorities, clocks)
        self.counters = UsageCounters(self.snapshot, settings.status.users)
        self._on_change = on_change
        self._complete = complete
        self._namespaces = frozenset(settings.namespaces)
        self._times = DueTimes(settings.line, clocks, on_change)
        self._pods: dict[str, PodRecord] = {}
        self.notebooks = Notebooks(
            self.snapshot,
            self._pods,
            settings.workers,
            PairPolicy(settings.policy, settings.relation),
            clocks,
            self.owners.limits_by_kind,
            self.owners.may_leave,
        )
        self._nodes: dict[str, NodeRecord] = {}
        self._node_use = NodeUse()
        self._unseen: set[str] = set()  # pods that were read and that no watch has shown yet
        self._pending_writes: dict[str, PendingWrite] = {}
        self._blocked: set[str] = set()
        self._offers: dict[str, OfferedNodes] = {}
        self._changed_nodes: dict[str, None] = {}
        self._changed_pods: dict[str, None] = {}
        self._moved_ends: dict[str, None] = {}

    # --- from the watches ---------------------------------------------------------------------------------------------

    def pod_changed(self, change: ObjectChange) -> None:
        """Apply a pod's change from the watch."""
        uid = objects.uid(change.object)
        self._unseen.discard(uid)
        if change.kind == "removed":
            self._forget_pod(uid)
        elif not self._is_newer(uid, objects.resource_version(change.object)):  # the watch repeats our own writes
            return
        else:
            self._take_pod(read_pod(change.object, self._pods.get(uid)))
        self._on_change()

    def add_unseen(self, record: PodRecord) -> None:
        """Add a pod that was read directly, because kube-scheduler asked about it before the watch has shown it."""
        uid = record.state.uid
        if uid not in self._pods and record.matters:
            self._unseen.add(uid)
            self._take_pod(record)
            self._on_change()

    def is_unseen(self, uid: str) -> bool:
        """Tell whether a pod was added that the watch has not shown: the watch may never report that it is gone."""
        return uid in self._unseen

    def forget(self, uid: str) -> None:
        """Remove an unseen pod that is gone."""
        self._unseen.discard(uid)
        self._forget_pod(uid)
        self._on_change()

    def node_changed(self, change: ObjectChange) -> None:
        """Apply a node's change from the watch."""
        node = read_node(change.object)
        if change.kind != "removed":
            self._nodes[node.name] = node
            self._put_node(node.name)
        elif node.name in self._nodes and self.node_uid(node.name) == node.uid:  # another may have that name by now
            del self._nodes[node.name]
            self.snapshot.remove_node(node.name)
            self.owners.gpus_changed()
            self.counters.node_changed(node.name)
            self._changed_nodes[node.name] = None
        self._on_change()

    def limit_changed(self, limit: Limit) -> None:
        """Apply a new or changed limit."""
        self._update_terms(self.owners.put_limit(limit))

    def limit_removed(self, name: str) -> None:
        """Apply the removal of a limit."""
        self._update_terms(self.owners.remove_limit(name))

    def restore(self, account: Account) -> None:
        """Take over what the leader before wrote about an owner."""
        self.owners.restore(account)
        self._update_terms((account.owner,))

    def reclaim(self, node: str) -> None:
        """Make pods of a node give back what others are guaranteed, or what preemptible pods hold while others wait."""
        if owners := self.owners.reclaim(node):
            self._update_terms(owners)

    def begin(self) -> None:
        """Compute the terms of all pods, now that pods, nodes and limits are known."""
        if not self._complete:
            self._complete = True
            self._update_terms(tuple(self.snapshot.owners()))

    def _update_terms(self, owners: Iterable[Owner]) -> None:
        """Compute the terms of these owners' pods again, and put the pods that they change into the snapshot."""
        changed = tuple(owners) if self._complete else ()
        for owner in changed:
            for state in self.owners.update_terms(owner):
                self._put_state(state)
        self._put_known(self.notebooks.terms_changed(changed))
        self._on_change()

    # --- what is known ------------------------------------------------------------------------------------------------

    def record(self, uid: str) -> PodRecord | None:
        """Return a pod as the API server has it, without writes in flight; ``None`` if it is not known."""
        return self._pods.get(uid)

    def node(self, name: str) -> NodeRecord | None:
        """Return a node's record; ``None`` if it is not known."""
        return self._nodes.get(name)

    def node_uid(self, name: str) -> str:
        """Return the UID of a Node object; empty where there is none."""
        node = self._nodes.get(name)
        return node.uid if node else ""

    def take_changed_nodes(self) -> tuple[str, ...]:
        """Return the nodes where something changed since the last call, longest ago first."""
        found = tuple(self._changed_nodes)
        self._changed_nodes.clear()
        return found

    def take_changed_pods(self) -> tuple[str, ...]:
        """Return the pods that came, changed or went since the last call."""
        found = tuple(self._changed_pods)
        self._changed_pods.clear()
        return found

    def take_moved_ends(self) -> tuple[str, ...]:
        """Return the pods of which nothing but the end of the slider changed since the last call."""
        found = tuple(self._moved_ends)
        self._moved_ends.clear()
        return found

    def read(self, pod: Mapping[str, Any]) -> PodRecord:
        """Return a pod from another source than the watch, or the version known here if that is as new.

        If the pod is known here, a newer version is applied, too.
        """
        uid = objects.uid(pod)
        known = self._pods.get(uid)
        if known and not self._is_newer(uid, objects.resource_version(pod)):
            return known
        record = read_pod(pod, known)
        if known and record.matters:
            self._take_pod(record)
            self._on_change()
        return record

    def nodes_of(self, uid: str) -> tuple[str, ...]:
        """Return the node that a pod is on, or in whose line it waits; empty if there is none."""
        state = self.snapshot.pod(uid)
        found = (state.node, state.nominated) if state else ()
        return tuple(node for node in found if node)

    def mark_changed(self, node: str) -> None:
        """Mark a node to be decided again."""
        self._changed_nodes[node] = None
        self._on_change()

    def begin_deciding(self, node: str) -> None:
        """Note that a node is decided now, with all that changed so far."""
        self._changed_nodes.pop(node, None)

    def forget_due(self) -> None:
        """Forget each ``service`` that a leader before decided here, and did not see confirmed."""
        self._put_known(self.notebooks.forget_due())

    def mark_all_changed(self) -> None:
        """Mark every node and every pod to be examined again."""
        self._changed_nodes.update(dict.fromkeys(self._nodes))
        self._changed_pods.update(dict.fromkeys(self._pods))
        self._on_change()

    # --- changes that time brings -------------------------------------------------------------------------------------

    def seconds_until_due(self) -> float | None:
        """Return the seconds until the next change that time brings, for `catch_up`; ``None``: there is none."""
        seconds = self._times.seconds_until_due()
        for until in (self.owners.seconds_until_due(), self.notebooks.seconds_until_due()):
            if until is not None:
                seconds.append(until)
        return max(0.0, min(seconds)) if seconds else None

    def catch_up(self) -> None:
        """Apply the changes that are due by now."""
        for uid in self._times.due_answers():
            if uid in self._pods:
                self._times.pace(self._pods[uid].state)
                self._put_pod(uid)
        for uid in self._times.newly_overdue():
            self._put_pod(uid)
        if owners := self.owners.due():
            self._update_terms(owners)

    def under_terms(self, state: PodState) -> PodState:
        """Return a pod, known here or not, with its terms: the highest priority and the GPUs that it may have."""
        return next(self.owners.update_terms(state.owner, state if state.node else self.notebooks.unbound(state)))

    # --- writes in flight ---------------------------------------------------------------------------------------------

    def in_flight(self, uid: str) -> bool:
        """Tell whether a decision about a pod is not confirmed yet."""
        return uid in self._pending_writes

    def uncertain(self) -> tuple[tuple[str, PendingWrite], ...]:
        """Return the pods with an unconfirmed decision whose result no watch will report."""
        return tuple(item for item in self._pending_writes.items() if not item[1].written)

    @property
    def writes_in_flight(self) -> int:
        """The number of writes in flight."""
        return len(self._pending_writes)

    def assume(self, uid: str, allocated: Allocated, node: str = "", *, decided: str = "") -> PendingWrite:
        """Begin a write about a known pod, in place of an earlier one; ``node``: where it binds the pod.

        ``decided``: the node whose decision this is. That alone is no reason to decide for it again, but terms are that
        follow from it, of this pod or of others of its owner.
        """
        pod, alone = self.snapshot.pod(uid), uid not in self._pending_writes
        pending_write = self._pending_writes[uid] = PendingWrite(
            allocated, node or self._pods[uid].state.node, self.notebooks.due(uid)
        )
        if alone and pod and pod.node and moves_end(pod.allocated, allocated):
            self.snapshot.show(pod.showing(pod.pod_limit, allocated))
        else:
            self._put_pod(uid, decided)
        return pending_write

    def finish_write(self, uid: str, pending_write: PendingWrite, found: PodRecord | None = None) -> None:
        """End a write, whatever its result; ``found`` is the pod as it is now, where that is known."""
        if self._pending_writes.get(uid) is pending_write:
            del self._pending_writes[uid]
        if uid in self._pods:
            if found and found.state.uid == uid and self._is_newer(uid, found.resource_version):
                if self._is_as_assumed(found):
                    self._pods[uid] = found
                else:
                    self._take_pod(found, assumed=True)
            else:
                self._put_pod(uid)
        self._on_change()

    def _is_as_assumed(self, found: PodRecord) -> bool:
        """Tell whether the snapshot has a pod as it was ``found`` now: nothing but our write changed it."""
        before, assumed = self._pods[found.state.uid], self.snapshot.pod(found.state.uid)
        return (
            assumed is not None
            and assumed.node == found.state.node
            and assumed.allocated == found.state.allocated
            and assumed.attached == found.state.attached
            and found.is_decided(before)
        )

    def bound(self, uid: str, pending_write: PendingWrite) -> None:
        """Note a done Binding: it counts as in flight until the watch shows the pod on its node, or gone."""
        record = self._pods.get(uid)
        pending_write.written = True
        if record and record.state.node:
            self.finish_write(uid, pending_write)

    def block(self, uid: str, blocked: bool) -> None:
        """Record whether a pod waits for something other than GPUs: then no GPUs are kept back for it."""
        if (uid in self._blocked) != blocked and uid in self._pods:
            (self._blocked.add if blocked else self._blocked.discard)(uid)
            self._put_pod(uid)
            self._on_change()

    def set_offer(self, uid: str, offered: OfferedNodes | None) -> None:
        """Record the nodes in kube-scheduler's last request for a waiting pod; ``None``: none that still hold."""
        if uid not in self._pods or self._offers.get(uid) == offered:
            return
        if offered is None:
            del self._offers[uid]
        else:
            self._offers[uid] = offered
        self._put_pod(uid)
        self._on_change()

    # --- inside -------------------------------------------------------------------------------------------------------

    def _is_newer(self, uid: str, resource_version: str) -> bool:
        known = self._pods.get(uid)
        return known is None or objects.newer_version(resource_version, known.resource_version)

    def _take_pod(self, record: PodRecord, *, assumed: bool = False) -> None:
        """Take over a newer version of a pod; ``assumed``: the snapshot still has it with a write that has ended."""
        uid = record.state.uid
        self._put_nodes(self._node_use.count(uid, record.usage))
        if not record.matters or (self._namespaces and record.state.namespace not in self._namespaces):
            if uid in self._pods:  # its annotations were removed, or it finished and no longer holds anything
                self._forget_record(uid)
            return
        known, asked = self._pods.get(uid), self._times.paced(uid)
        self._pods[uid] = record
        self._changed_pods[uid] = None
        paced = self._times.pace(record.state)
        pending_write = self._pending_writes.get(uid)
        bound = pending_write is not None and pending_write.written and bool(record.state.node)
        if bound:
            del self._pending_writes[uid]
        self._put_nodes(self._node_use.withhold(uid, record.state.node if record.opaque else ""))
        same = known is not None and known.state == record.state and paced == asked
        others = self.notebooks.seen(known, record)
        if assumed or bound or not same or uid in others or not self.owners.has_settled(record.state.owner):
            self._put_pod(uid)
        self._put_known(other for other in others if other != uid)

    def _forget_pod(self, uid: str) -> None:
        self._put_nodes(self._node_use.count(uid, None))
        if uid in self._pods:
            self._forget_record(uid)

    def _forget_record(self, uid: str) -> None:
        others = self.notebooks.seen(self._pods.pop(uid), None)
        self._times.forget(uid)
        self._pending_writes.pop(uid, None)
        self._blocked.discard(uid)
        self._offers.pop(uid, None)
        self._changed_pods[uid] = None
        self._put_nodes(self._node_use.withhold(uid, ""))
        self._mark_nodes_of(uid)
        state = self.snapshot.pod(uid)
        self.snapshot.remove_pod(uid)
        self.counters.pod_changed(uid)
        self._put_workers(uid)
        self._put_known(others)
        if state:
            self._update_terms((state.owner,))

    def _put_pod(self, uid: str, decided: str = "") -> None:
        """Put a pod's record, with its write in flight, into the snapshot. ``decided``: see `assume`."""
        state, pending_write, asked = self._pods[uid].state, self._pending_writes.get(uid), self._times.asked(uid)
        if asked.requested != state.requested or asked.fault != state.fault:
            state = replace(state, requested=asked.requested, fault=asked.fault)
        if pending_write:
            state = overlaid(state, pending_write)
        state = self.notebooks.divided(self._pods[uid], state)
        blocked, overdue = uid in self._blocked, self._times.is_overdue(uid, state.allocated)
        if blocked or overdue or uid in self._offers:
            state = replace(state, blocked=blocked, offered=self._offers.get(uid), overdue=overdue)
        self._put_under_terms(state, decided)
        self._put_workers(uid)

    def _put_under_terms(self, state: PodState, decided: str = "") -> None:
        before = self.snapshot.pod(state.uid)
        for updated in self.owners.update_terms(state.owner, state) if self._complete else (state,):
            own = updated.uid == state.uid and before is not None and _same_allowance(before, updated)
            self._put_state(updated, decided if own else "")
        if before and before.owner != state.owner:
            self._update_terms((before.owner,))

    def _put_known(self, uids: Iterable[str]) -> None:
        for uid in uids:
            if uid in self._pods:
                self._put_pod(uid)

    def _put_workers(self, notebook: str) -> None:
        """Put the workers of a notebook into the snapshot, as its ``service`` says; of most pods there are none."""
        pods, promises, void = self.notebooks.workers_of(notebook)
        self._put_known(pods)
        for state in promises:
            self._put_under_terms(state)
        for uid in void:
            if known := self.snapshot.pod(uid):
                self._mark_nodes_of(uid)
                self.snapshot.remove_pod(uid)
                self._update_terms((known.owner,))

    def divide(self, uid: str) -> bool:
        """Take the next step in dividing a notebook's wish among nodes, if any; tell whether another may follow."""
        changed, goes_on = self.notebooks.divide(uid)
        if changed:
            self._put_pod(uid)
        return goes_on

    def _put_state(self, state: PodState, decided: str = "") -> None:
        before = self.snapshot.pod(state.uid)
        if state == before:
            return
        if before and only_end_moved(before, state):
            self.snapshot.show(state)
            self._moved_ends[state.uid] = None
            return
        if before and before.standing and state.standing and self._waits_alone(before, state):
            self.snapshot.put_pod(state)
            return
        nodes = self.nodes_of(state.uid)
        self.snapshot.put_pod(state)
        self.counters.pod_changed(state.uid)
        for node in (*nodes, *self.nodes_of(state.uid)):
            if node != decided:
                self._changed_nodes[node] = None

    def _waits_alone(self, before: PodState, after: PodState) -> bool:
        """Tell whether only the standing changed of a pod that waits alone on its node: it stands behind no other."""
        if not after.node or _rest(before) != _rest(after):
            return False
        return [pod.uid for pod in self.snapshot.line(after.node)] == [after.uid]

    def _mark_nodes_of(self, uid: str) -> None:
        for node in self.nodes_of(uid):
            self._changed_nodes[node] = None

    def _put_nodes(self, names: Iterable[str]) -> None:
        for name in names:
            self._put_node(name)

    def _put_node(self, name: str) -> None:
        """Put a node's inventory and facts into the snapshot."""
        node = self._nodes.get(name)
        if node is None:
            return
        self._changed_nodes[name] = None
        kinds, before = self.snapshot.gpu_kinds(name), self.snapshot.gpus(name)
        if node.gpus is None:
            self.snapshot.remove_node(name)
        else:
            gpus = _withheld(node.gpus) if self._node_use.is_withheld(name) else node.gpus
            self.snapshot.put_node(name, gpus, node.facts(self._node_use.used(name)))
        if self.snapshot.gpus(name) != before:
            self.owners.gpus_changed()
            self._put_known(self.notebooks.on(name))
        if self.snapshot.gpu_kinds(name) != kinds:
            self.counters.node_changed(name)
            self._update_terms(self.owners.limited_by_kind())


def _same_allowance(one: PodState, other: PodState) -> bool:
    """Tell whether a pod may have the same in two states; its standing is left out, as a decision foresees that."""
    return (one.allowance, one.model_allowances, one.pod_limit) == (
        other.allowance,
        other.model_allowances,
        other.pod_limit,
    )


def _withheld(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """Return the GPUs marked so that none is given out; present holders keep theirs."""
    return tuple(replace(gpu, healthy=False, health=WITHHELD) for gpu in gpus)
