"""Time shares of this node's GPUs: the arbiter's server and the enforcer, fed with the holdings of the agent's pods.

`Sharing.update` serves all pods at once. A step calls it before it opens a GPU, so that the terms of all other pods
match their holdings by then. A failure for one pod concerns only that pod. `PlannedShares` says which shares to serve.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ParamSpec

from jupyter_gpu_node.agent.inventory.inventory import Inventory
from jupyter_gpu_node.agent.metrics import Metrics
from jupyter_gpu_node.agent.publisher import Publisher
from jupyter_gpu_node.devices import pod_cgroups
from jupyter_gpu_node.kubelet import driver_files, slot_shares
from jupyter_gpu_node.kubelet.gate_mount import Gate
from jupyter_gpu_node.processes import device_scan
from jupyter_gpu_node.settings import Settings
from jupyter_gpu_node.shares.enforced_shares import EnforcedShares
from jupyter_gpu_node.shares.enforcement.enforcer import PenaltyCallbacks
from jupyter_gpu_node.shares.rules import gpu_settings
from jupyter_gpu_node.shares.rules.divided_memory import MemoryUse
from jupyter_gpu_node.shares.rules.share_file import ShareKey
from jupyter_gpu_node.shares.scans.node_processes import NodeProcesses
from jupyter_gpu_node.shares.scans.usage_by_process import UsageReader
from jupyter_gpu_node.shares.server.peer import in_its_pod
from jupyter_gpu_node.shares.server.worker_thread import WorkerThread

from .planned_shares import NodePods, PlannedShares, Shares
from .pod_slots import PodSlots
from .share_metrics import ShareSample
from .taken_shares import TakenShares

DEADLINE = 5.0
"""Seconds that a step waits for the arbiter's server."""
RETRY = 1.0
"""Seconds until what failed is tried again."""

P = ParamSpec("P")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NodeGate:
    """The gate on this node."""

    installed: Gate
    slots: Callable[[], Collection[str]]
    """Returns the slots whose containers have it."""


class Sharing:
    """The time shares of one node. ``reader`` reads GPU use."""

    def __init__(
        self,
        settings: Settings,
        pods: NodePods,
        gate: NodeGate,
        inventory: Inventory,
        publisher: Publisher,
        metrics: Metrics,
        reader: UsageReader | None = None,
    ) -> None:
        self._settings = settings
        self._pods = pods
        self._gate = gate
        self._inventory = inventory
        self.taken = TakenShares(pods.managed, publisher.about_pod, metrics)
        self._slots = PodSlots(settings.slot_directory)
        self._planned = PlannedShares(settings, pods, self._slots, inventory)
        self._problems: dict[str, str] = {}
        self._done: tuple[object, ...] = ()
        self._begun = asyncio.Event()
        self._again = asyncio.Event()
        self._one = asyncio.Lock()
        self._worker = WorkerThread("sharing")
        self._enforced = EnforcedShares(
            slot_shares.PodStore(settings.state, self._slots.others),
            settings.violations,
            NodeProcesses(in_its_pod, self._pod_of, pods.servers, self._opens),
            PenaltyCallbacks(self._take_away, self.taken.stopped),
            functools.partial(gpu_settings.of, settings.shares, settings.node),
            reader,
        )
        self.server = self._enforced.server

    # -- start, run and end --------------------------------------------------------------------------------------------

    @property
    def remembers(self) -> bool:
        """Whether it is known what an earlier process served."""
        return self._planned.remembered

    async def begin(self) -> None:
        """Serve the slots of this node's pods, which are known now, and let stopped processes run.

        Called again once the pods are known, too, if an earlier process recorded only what it served.
        """
        if not self._begun.is_set():
            self.taken.restoring = True
            await self._enforced.start()
            self.taken.restoring = False
            self._begun.set()
        self.changed()

    async def run(self) -> None:
        """Repeat until cancelled what failed, or what changed without a step of a pod."""
        await self._begun.wait()
        told: Mapping[str, str] = {}
        while True:
            await self._again.wait()
            self._again.clear()
            try:
                await self.update()
                problems = dict(self._problems)
            except OSError as error:
                problems = {"": str(error)}
            for uid in problems.keys() - told.keys():
                whose = f"Pod {uid}: its shares" if uid else "The shares of this node"
                _log.warning("%s cannot be served as they should: %s It is tried again.", whose, problems[uid])
            told = problems
            if problems:
                self.changed()
                await asyncio.sleep(RETRY)

    async def close(self) -> None:
        """End: stopped processes run again, and what banks hold is written down."""
        await self._enforced.close()
        self._worker.close(cancel=True)

    # -- what the agent asks -------------------------------------------------------------------------------------------

    async def update(self, uid: str = "") -> None:
        """Serve the present holdings of all pods.

        Raises `OSError` if no pod can be served, or not that pod. A step that opens a GPU waits until all
        holdings are known.
        """
        try:
            async with asyncio.timeout(DEADLINE):
                await self._begun.wait()
                doing = asyncio.ensure_future(self._update())
                doing.add_done_callback(_heard)
                await asyncio.shield(doing)
        except TimeoutError:
            raise OSError("The arbiter's server took too long.") from None
        if problem := self._problems.get(uid):
            raise OSError(problem)

    async def divided(self, uuids: Collection[str]) -> Mapping[str, MemoryUse]:
        """Return those of ``uuids`` on which a share has more memory than its part, with what is used there.

        All shares there have their limits by then. Raises `OSError` if they cannot be served.
        """
        if not self._planned.divided(uuids):
            return {}
        await self.update()
        found = {}
        for uuid, memory in self._planned.divided(uuids).items():
            used = await self._enforced.memory_used(uuid)
            found[uuid] = MemoryUse(memory, {uid: size for uid, size in used.items() if self.limits(uid)})
        return found

    def limits(self, uid: str) -> bool:
        """Tell whether programs of that pod can take memory only through the gate."""
        slots = self._slots.slots(uid)
        return bool(slots) and all(slot in self._gate.slots() for slot in slots)

    def changed(self) -> None:
        """Note a change whose consequences no caller waits for."""
        self._again.set()

    async def serve(self, slot: str, uid: str) -> None:
        """Note that the slot is that pod's: its container finds the shares there. Raises `OSError`."""
        self._slots.assign(slot, uid)
        if self._begun.is_set():
            await self.update(uid)

    def knows(self, uid: str) -> bool:
        """Tell whether any slot of that pod is known."""
        return bool(self._slots.slots(uid))

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone."""
        self._slots.forget(uid)
        self._problems.pop(uid, None)
        self.taken.forget(uid)
        self.changed()

    # -- what is reported ----------------------------------------------------------------------------------------------

    async def answer(self, uid: str) -> Mapping[str, Any]:
        """Return for the pod why its shares are not enforced, empty if they are, and which were taken away."""
        problem = "" if self._has_gate(uid) else await asyncio.to_thread(self._why_not)
        return {"problem": problem, "taken": self.taken.of(uid)}

    def turns_so_far(self, gpu: str, uid: str) -> tuple[int, bool] | None:
        """Return the microseconds for which the pod's programs had that GPU, or work and not the GPU, so far.

        And whether turns alone let them compute, as the pod has a part of the GPU. None: they take no turns.
        """
        if not self._has_gate(uid):
            return None
        try:
            share = self.server.share(gpu, uid)
        except KeyError:  # it is not served
            return None
        return share.with_work, not share.exclusive

    def figures(self) -> Iterator[ShareSample]:
        """Yield the figures of all shares that are served, whole GPUs too."""
        for gpu, pods in self._planned.now(self.taken.in_force).items():
            for uid in pods:
                pod = self._pods.managed().get(uid)
                if pod and pod.view:
                    try:
                        share, clients = self.server.share(gpu, uid), self.server.usage(gpu, uid).clients
                    except KeyError:  # it has just come
                        continue
                    yield ShareSample(pod.view.ref, share, clients)

    def _has_gate(self, uid: str) -> bool:
        return any(slot in self._gate.slots() for slot in self._slots.slots(uid))

    def _why_not(self) -> str:
        """Return why shares are not enforced. Blocks."""
        if not self._settings.shares.enforce:
            return "the administrator of the cluster has switched it off"
        if self._gate.installed.problem:
            return self._gate.installed.problem
        if not driver_files.find(self._settings):
            simulated = self._settings.simulated is not None
            return "simulated GPUs have no driver" if simulated else "no NVIDIA driver was found on this node"
        return "this container was started before that was possible; start your server anew"

    # -- the shares ----------------------------------------------------------------------------------------------------

    async def _update(self) -> None:
        async with self._one:
            in_force, slots = self.taken.in_force, self._slots.by_pod()
            wanted = self._planned.now(in_force)
            state = (wanted, in_force, self.taken.known - in_force, slots)
            if state == self._done:
                return
            self._done = ()
            problems: dict[str, str] = {}
            views = self._slots.outdated(wanted, slots)
            for uid, view in views.items():
                if not self._slots.only_grows(uid, view):
                    self._slots.shows(uid, None)
                    directories = self._slots.directories(view.slots)
                    await self._try(problems, uid, slot_shares.withdraw, directories, view.gpus)
            await self._serve(wanted, problems)
            for uid, view in views.items():
                first, *others = self._slots.directories(view.slots)
                alone = not others and self._slots.only_grows(uid, view)  # the server does all that there is to do
                if alone or await self._try(problems, uid, slot_shares.show, first, others, view.gpus):
                    self._slots.shows(uid, view)
            if forgiven := self.taken.known - in_force:  # their violations are forgotten with them
                await self._enforced.enforce(_watched(wanted, (), forgiven))
                self.taken.forgive(forgiven)
            await self._enforced.enforce(_watched(wanted, in_force, ()))
            self._problems = problems
            if not problems:
                self._done = (wanted, in_force, frozenset(), slots)

    async def _serve(self, wanted: Shares, problems: dict[str, str]) -> None:
        try:
            await self._enforced.serve(wanted)
        except OSError as error:  # all else is so
            for gpu, pods in wanted.items():
                for uid in pods:
                    try:
                        self.server.share_socket(gpu, uid)
                    except KeyError:
                        problems[uid] = f"The socket of its share of {gpu} cannot be made: {error}."
        await self._planned.record(wanted, self._worker)

    async def _try(
        self, problems: dict[str, str], uid: str, work: Callable[P, None], *args: P.args, **kwargs: P.kwargs
    ) -> bool:
        """Do work for that pod, and tell whether it could be done."""
        try:
            await self._worker.run(work, *args, **kwargs)
        except OSError as error:
            problems[uid] = f"What its containers see of its shares cannot be changed: {error}."
            return False
        return True

    # -- for the enforcer ----------------------------------------------------------------------------------------------

    def _take_away(self, gpu: str, uid: str, reason: str) -> None:
        """Have the pod's next step close that GPU for it, and end its processes on it."""
        self.taken.add(gpu, uid, reason)
        self.changed()

    def _pod_of(self, pid: int) -> str | None:
        """Return the pod of a process; None for one without the gate: it cannot keep to turns."""
        uid = pod_cgroups.pod_of(pid)
        return uid if uid and self._has_gate(uid) else None

    def _opens(self, pid: int) -> bool:
        return device_scan.has_open(pid, self._inventory.devices)


def _heard(done: asyncio.Future[None]) -> None:
    """Retrieve the error of work that ended after the deadline, which no caller awaits any more."""
    if not done.cancelled():
        done.exception()


def _watched(wanted: Shares, more: Iterable[ShareKey], less: Collection[ShareKey]) -> Mapping[str, set[str]]:
    """Return, by GPU, the pods that the enforcer watches."""
    found: dict[str, set[str]] = {}
    for gpu, uid in (*((gpu, uid) for gpu, by_pod in wanted.items() for uid in by_pod), *more):
        if (gpu, uid) not in less:
            found.setdefault(gpu, set()).add(uid)
    return found
