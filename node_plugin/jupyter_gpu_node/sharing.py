"""Time shares of this node's GPUs: the arbiter's server and the bouncer, fed from what the agent has in its hands.

:meth:`Sharing.update` makes it so, from all pods at once: whoever opens a GPU has it called before, so that everybody
else's terms are those of the pods' holdings by then. Until the pods of this node are known nobody is served: programs
wait, and nothing is forgotten that an earlier process had kept.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from . import driver_files, gate, places, sharing_rules, slot_places
from .gate import Gate
from .inventory import Inventory
from .member import Member
from .metrics import Metrics
from .publisher import Publisher
from .settings import Settings
from .share_metrics import Figures
from .shares.bouncer import Bouncer
from .shares.desk import Terms
from .shares.identity import Check, in_its_pod
from .shares.offences import Process
from .shares.server import ArbiterServer, Placed
from .shares.usage_by_process import Reader
from .sharing_rules import Taken

TAKEN, STOPPED = "GpuShareTaken", "GpuShareStopped"
DEADLINE = 5.0
"""Seconds that a step waits for the arbiter's server."""
RETRY = 1.0
"""Seconds until what failed is tried again."""

P = ParamSpec("P")
T = TypeVar("T")
Place = tuple[str, str]
"""GPU and pod."""
Shares = Mapping[str, Mapping[str, Placed]]
"""By GPU and pod."""
_log = logging.getLogger(__name__)


class Sharing:
    """Of one node. ``members`` tells its pods; ``servers`` who is never stopped; ``reader`` who uses which GPU."""

    def __init__(
        self,
        settings: Settings,
        members: Callable[[], Mapping[str, Member]],
        inventory: Inventory,
        publisher: Publisher,
        metrics: Metrics,
        *,
        installed: Gate,
        servers: Callable[[], Iterable[Process]] = lambda: (),
        reader: Reader | None = None,
        check: Check = in_its_pod,
    ) -> None:
        self._settings = settings
        self._members = members
        self._inventory = inventory
        self._publisher = publisher
        self._metrics = metrics
        self._installed = installed
        self._slots: dict[str, tuple[str, ...]] = {}
        self._taken: dict[Place, Taken] = {}
        self._gated: set[str] = set()
        self._begun = asyncio.Event()
        self._restoring = False
        self._done: tuple[object, ...] = ()
        self._shown: dict[str, tuple[object, ...]] = {}
        self._again = asyncio.Event()
        self._one = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sharing")
        rules = functools.partial(settings.shares.of, settings.node)
        self._bouncer = Bouncer(
            settings.state / "offences.json",
            self.take_away,
            pod_of=self._pod_of,
            never=servers,
            reader=reader,
            tell=self._stopped,
            penalties=lambda gpu: rules(gpu).penalties,
        )
        self.server = ArbiterServer(
            slot_places.PodStore(settings.state, self._others),
            check,
            timing=lambda gpu: rules(gpu).timing,
            elastic=lambda gpu: rules(gpu).elastic,
            overdue=self._bouncer.late,
        )

    # -- as the node plugin lives --------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """The pods of this node and their slots are known: serve them, and stop nobody any more."""
        self._restoring = True
        await self._bouncer.start(self.server)
        self._restoring = False
        self._begun.set()
        self.changed()

    async def run(self) -> None:
        """Until cancelled: whatever failed, or changed without a step of a pod, is done here."""
        await self._begun.wait()
        while True:
            await self._again.wait()
            self._again.clear()
            try:
                await self.update()
            except OSError as error:
                _log.warning("The shares of this node cannot be served as they should: %s It is tried again.", error)
                self.changed()
                await asyncio.sleep(RETRY)

    async def close(self) -> None:
        """End: whoever is stopped runs again, and what banks hold is written down."""
        if self._begun.is_set():
            await self._bouncer.close()
        await self.server.close()
        self._thread.shutdown(wait=False, cancel_futures=True)

    # -- what the agent asks -------------------------------------------------------------------------------------------

    async def update(self) -> None:
        """Have served what the pods have in their hands now. Raises :class:`OSError` if not all of it can be.

        Whoever opens a GPU waits until it is known what everybody has.
        """
        try:
            async with asyncio.timeout(DEADLINE):
                await self._begun.wait()
                doing = asyncio.ensure_future(self._update())
                doing.add_done_callback(
                    lambda done: done.cancelled() or done.exception()
                )  # it may end after our patience
                await asyncio.shield(doing)
        except TimeoutError:
            raise OSError("the arbiter's server took too long.") from None

    def changed(self) -> None:
        """Something is other than before, and nobody waits for what follows from it."""
        self._again.set()

    async def serve(self, slot: str, uid: str) -> None:
        """That slot is that pod's: its container finds the shares there. Raises :class:`OSError`."""
        for other, known in list(self._slots.items()):
            if slot in known and other != uid:
                self._slots[other] = tuple(one for one in known if one != slot)
        if slot not in self._slots.get(uid, ()):
            self._slots[uid] = (*self._slots.get(uid, ()), slot)
        if self._begun.is_set():
            await self.update()

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._slots.pop(uid, None)
        self._shown.pop(uid, None)
        self._gated.discard(uid)
        for place in [place for place in self._taken if place[1] == uid]:
            del self._taken[place]
        self.changed()

    def taken(self, uid: str) -> Mapping[str, str]:
        """By GPU why the pod's share of it was taken away, until its user asks anew."""
        member = self._members().get(uid)
        return {
            gpu: found.reason for (gpu, pod), found in self._taken.items() if pod == uid and _stands(member, gpu, found)
        }

    def take_away(self, gpu: str, uid: str, reason: str) -> None:
        """Close that GPU for the pod, which ends its processes on it, and tell its user why; returns at once."""
        if (gpu, uid) in self._taken:
            return
        member = self._members().get(uid)
        if self._restoring or member is None or member.view is None:
            self._taken[gpu, uid] = Taken(reason)
        else:
            allocated = member.view.allocated
            generation = allocated.observed_generation if allocated else None
            milli = next((share.milli for share in allocated.shares if share.uuid == gpu), None) if allocated else None
            self._taken[gpu, uid] = Taken(reason, generation, milli)
            self._metrics.shares_taken.inc()
            self._publisher.about_pod(member.view.ref, TAKEN, f"GPU {gpu}: {reason}")
        if member:
            member.wake.set()
        self.changed()

    # -- what is told --------------------------------------------------------------------------------------------------

    async def answer(self, uid: str) -> Mapping[str, Any]:
        """For the pod: why its shares are not enforced, empty if they are, and which were taken away."""
        return {"problem": await self._in_thread(self._problem, uid), "taken": self.taken(uid)}

    def figures(self) -> Iterator[Figures]:
        """Of all shares that are served, whole GPUs too."""
        for gpu, pods in self._wanted().items():
            for uid in pods:
                member = self._members().get(uid)
                if member and member.view:
                    try:
                        use = self.server.share(gpu, uid)
                        clients = self.server.usage(gpu, uid).clients
                    except KeyError:  # it has just come
                        continue
                    yield Figures(member.view.ref, use, clients)

    # -- the rest ------------------------------------------------------------------------------------------------------

    def _wanted(self) -> Shares:
        members = self._members()
        served = sharing_rules.served({uid: member.holding for uid, member in members.items()}, self._standing())
        found: dict[str, dict[str, Placed]] = {}
        for gpu, pods in served.items():
            for uid, milli in pods.items():
                if self._slots.get(uid):
                    limit = self._limit(members[uid], gpu, milli)
                    found.setdefault(gpu, {})[uid] = Placed(Terms(milli, limit), self._first(uid))
        return found

    def _standing(self) -> frozenset[Place]:
        """GPU and pod of shares that were taken away and not asked for again."""
        members = self._members()
        return frozenset(
            (gpu, uid) for (gpu, uid), found in self._taken.items() if _stands(members.get(uid), gpu, found)
        )

    def _limit(self, member: Member, gpu: str, milli: int) -> int | None:
        known = self._inventory.seen.get(gpu)
        asked = member.view.memory if member.view else None
        return sharing_rules.limit(
            milli, asked, known.memory if known else None, parted=self._settings.shares.part_memory
        )

    async def _update(self) -> None:
        async with self._one:
            standing, wanted, slots = self._standing(), self._wanted(), dict(self._slots)
            if (wanted, standing, slots, self._taken.keys()) == self._done:
                return
            self._done = ()
            await self.server.set(wanted)
            await self._show(wanted, slots)
            forgiven = self._taken.keys() - standing
            if forgiven:  # their offences are forgotten with them
                await self._bouncer.set(_pods(wanted, (), forgiven))
                self._taken = {place: found for place, found in self._taken.items() if place not in forgiven}
            await self._bouncer.set(_pods(wanted, standing, ()))
            self._done = (wanted, standing, slots, self._taken.keys() - forgiven)

    async def _show(self, wanted: Shares, slots: Mapping[str, tuple[str, ...]]) -> None:
        """In the directories of all slots of each pod."""
        for uid, names in slots.items():
            gpus = frozenset(gpu for gpu, by_pod in wanted.items() if uid in by_pod)
            if names and self._shown.get(uid) != (names, gpus):
                first, *others = map(self._settings.slot_directory, names)
                await self._in_thread(slot_places.match, first, others, gpus)
                self._shown[uid] = (names, gpus)

    def _first(self, uid: str) -> Path:
        return self._settings.slot_directory(self._slots[uid][0])

    def _others(self, uid: str) -> list[Path]:
        return [self._settings.slot_directory(slot) for slot in self._slots.get(uid, ())[1:]]

    def _stopped(self, gpu: str, uid: str, reason: str) -> None:
        self._metrics.share_stops.inc()
        member = self._members().get(uid)
        if member and member.view:
            self._publisher.about_pod(member.view.ref, STOPPED, f"GPU {gpu}: {reason}")

    def _pod_of(self, pid: int) -> str | None:
        """In the bouncer's thread. Who was started without the gate cannot keep to turns, and is no offender."""
        uid = places.pod_of(pid)
        return uid if uid and self._has_gate(uid) else None

    def _has_gate(self, uid: str) -> bool:
        if uid not in self._gated:
            member = self._members().get(uid)
            if member is None or member.guard is None or not gate.in_front_of(member.guard.processes()):
                return False
            self._gated.add(uid)
        return True

    def _problem(self, uid: str) -> str:
        if self._has_gate(uid):
            return ""
        if not self._settings.shares.enforce:
            return "the administrator of the cluster has switched it off"
        if self._installed.problem:
            return self._installed.problem
        if not driver_files.find(self._settings):
            simulated = self._settings.simulated is not None
            return "simulated GPUs have no driver" if simulated else "no NVIDIA driver was found on this node"
        return "this container was started before that was possible; start your server anew"

    def _in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, functools.partial(work, *args, **kwargs))


def _stands(member: Member | None, gpu: str, found: Taken) -> bool:
    if member is None or member.view is None or member.view.problem:
        return True  # nothing is known of a new decision
    if found.generation is None and member.attached:  # what an earlier process took away
        found = replace(found, generation=member.attached.observed_generation)
    return found.stands(gpu, member.view.allocated)


def _pods(wanted: Shares, more: Iterable[Place], less: Collection[Place]) -> Mapping[str, set[str]]:
    """By GPU the pods that the bouncer looks after."""
    found: dict[str, set[str]] = {}
    for gpu, uid in (*((gpu, uid) for gpu, by_pod in wanted.items() for uid in by_pod), *more):
        if (gpu, uid) not in less:
            found.setdefault(gpu, set()).add(uid)
    return found
