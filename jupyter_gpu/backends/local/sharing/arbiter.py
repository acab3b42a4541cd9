"""The process that hands out the turns on the GPUs of a state directory, to the pods in its records.

It is started by a server (`supervisor`) and belongs to none: it goes on when that one ends, and ends itself when no
server has a GPU any more, or the state directory is gone. Everything that it knows it can read again.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import os
import signal
import socket
import stat
import time
from collections.abc import Mapping
from pathlib import Path

from jupyter_gpu.backends.local.processes.identity import namespace
from jupyter_gpu.backends.local.records import notify
from jupyter_gpu.backends.local.records.other_pods import OtherPod
from jupyter_gpu.backends.local.records.record import without_use
from jupyter_gpu_node.devices import cgroup
from jupyter_gpu_node.processes import proc
from jupyter_gpu_node.shares.enforced_shares import EnforcedShares
from jupyter_gpu_node.shares.enforcement.enforcer import PenaltyCallbacks
from jupyter_gpu_node.shares.rules.divided_memory import MemoryUse
from jupyter_gpu_node.shares.scans.node_processes import NodeProcesses
from jupyter_gpu_node.shares.scans.share_processes import connected_for
from jupyter_gpu_node.shares.scans.usage_by_process import MemoryByPid, NvmlUsageReader, TimeByPid
from jupyter_gpu_node.shares.server.arbiter_server import PlacedShare
from jupyter_gpu_node.shares.server.store import ShareStore

from . import ending, files, records, stopped_elsewhere
from .clients import Clients
from .gpu_memory import GpuMemory
from .machine_rules import MachineRules
from .removal import Removal
from .revoker import RevocationRequest, Revoker
from .room_files import RoomFiles
from .rules import memory_room
from .rules.claims import Shares, claims, parted, served
from .trust import ServingLock

POLL = 1.0
"""Seconds between two reads of the records without a notification."""
FIRST_LOOK = 0.1
"""Seconds after which memory that some share waits for is looked for again; each time more, up to `POLL`."""
LEAST = 0.02
"""Seconds between two reads, however many notifications come."""
LINGER = 2.0
"""Seconds without a server that has a GPU, after which there is nothing to do any more."""
DRIVER = Path("/dev/nvidiactl")
_log = logging.getLogger(__name__)


class GpuUsers:
    """The use of GPUs by process, as the driver told it when it was asked last."""

    def __init__(self, reader: NvmlUsageReader) -> None:
        self._reader = reader
        self.latest: dict[str, TimeByPid] = {}
        self.memory_uses: dict[str, MemoryByPid] = {}

    @property
    def note(self) -> str:
        """See `UsageReader`."""
        return self._reader.note

    async def memory(self, gpu: str) -> MemoryByPid | None:
        """See `UsageReader`."""
        found = await self._reader.memory(gpu)
        self.memory_uses[gpu] = found or {}
        return found

    def pids(self, gpu: str) -> frozenset[int]:
        """Return the processes that used the GPU, or had memory there."""
        used = (pid for pid, time_used in self.latest.get(gpu, {}).items() if time_used)
        return frozenset((*used, *self.memory_uses.get(gpu, ())))

    async def read(self, gpu: str, begin: int, end: int) -> TimeByPid | None:
        """See `UsageReader`."""
        found = await self._reader.read(gpu, begin, end)
        self.latest[gpu] = found or {}
        return found

    async def close(self) -> None:
        """Ask nothing more."""
        await self._reader.close()


class ArbiterProcess:
    """The arbiter of one state directory, for as long as the same rules hold; with others another one begins (`run`).

    ``folder``: the folder of this user's arbiters, as a path that leads there whatever becomes of its name.
    ``linger``: see `LINGER`.
    """

    def __init__(
        self, state: Path, lock: int, folder: Path, rules: MachineRules, serving: ServingLock, *, linger: float = LINGER
    ) -> None:
        self._state = state
        self._lock = lock
        self._serving = serving
        self._linger = linger
        self._folder = folder
        self._own = folder / files.OWN
        self._rules = rules
        self._parted = rules.settings.part_memory
        self._outdated = False
        self._told: str | None = None
        self._pods: dict[str, OtherPod] = {}
        self._clients = Clients()
        self._awake = asyncio.Event()
        self._revoker = Revoker(state, folder, self._clients, self._awake.set)
        self._shares: Shares = {}
        self._gpu_memory = GpuMemory(DRIVER.exists())
        self._room = RoomFiles(state, folder)
        self._waiting = frozenset[str]()
        self._pause = POLL
        self._untidy = True
        self._users = GpuUsers(NvmlUsageReader()) if DRIVER.exists() else None
        self._enforced = EnforcedShares(
            ShareStore(self._own),
            self._own / stopped_elsewhere.VIOLATIONS,
            NodeProcesses(
                self._clients.check,
                functools.partial(self._clients.enforced_pod_of, since=rules.since if rules.settings.enforce else None),
                self._clients.servers,
            ),
            PenaltyCallbacks(self._take_away),
            rules.of,
            self._users,
        )
        self.over = False
        """Whether it has been asked to end."""

    async def run(self) -> bool:
        """Serve until nothing is left to do, or other rules hold; return whether another one is to begin with those."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.stop)
        await self._enforced.start()
        try:
            found = await self._find_pods()
            if found is not None:
                await asyncio.to_thread(self._begin, found)
                await self._serve(found)
                await self._follow()
        finally:
            await self._enforced.close()  # stopped processes run again
            self._clients.close()
        return self._outdated and not self.over

    def stop(self) -> None:
        """End soon."""
        self.over = True
        self._awake.set()

    def _begin(self, found: dict[str, OtherPod]) -> None:
        """Put right what an earlier arbiter left. To be called in a thread."""
        self._learn(found)
        claimed = {(claim.pod, claim.gpu) for pod in found.values() for claim in claims(pod.record)}
        records.sweep(self._folder, claimed - self._revoker.taken)
        self._room.begin(found)
        # The enforcer has continued those of this user. Any user may write any pid there: only programs of pods count.
        places_of = [pod.processes for pod in found.values()]
        for process in stopped_elsewhere.stopped(self._state):
            if any(process.pid in place.among((process.pid,)) for place in places_of):
                ending.resume([process])
        (self._own / files.NAMESPACE).write_text(str(namespace()))

    def _notified(self, listener: socket.socket) -> None:
        notify.drain(listener)
        self._awake.set()

    async def _follow(self) -> None:
        """Listen for notifications, now that every share is served: servers link programs to one that listens."""
        loop = asyncio.get_running_loop()
        with notify.listen(self._own, files.NOTIFY_SOCKET) as notified, Removal(self._state) as removal:
            files.beat(self._own)
            loop.add_reader(notified, self._notified, notified)
            loop.add_reader(removal, removal.heard, self._awake)
            try:
                notify.send(self._state / "pods", (f"{pod}.sock" for pod in self._pods))
                await self._follow_records()
            finally:
                loop.remove_reader(notified)
                loop.remove_reader(removal)

    async def _follow_records(self) -> None:
        busy = time.monotonic()
        while not self.over:
            self._awake.clear()
            found = await self._find_pods()
            if found is None or self._outdated:
                return
            files.beat(self._own)
            await self._serve(found)
            if self._enforced.server.connected() or any(pod.held for pod in found.values() if not pod.dead):
                busy = time.monotonic()
            elif time.monotonic() > busy + self._linger:
                _log.info("No server has a GPU any more.")
                return
            await asyncio.sleep(LEAST)  # constant notifications get no more than that
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause):
                    await self._awake.wait()

    async def _find_pods(self) -> dict[str, OtherPod] | None:
        """Return all pods; None if the state directory is not what it was."""
        found = await asyncio.to_thread(self._read_records)
        if found is None:
            _log.info("The state directory is gone or another one now.")
        return found

    def _read_records(self) -> dict[str, OtherPod] | None:
        """Read the records, and earlier revocations by this user's arbiters. To be called in a thread."""
        if not files.is_current(self._state, self._lock):
            return None
        self._serving.keep()
        traces = records.traces(self._state, self._folder) if self._untidy else records.Traces()
        found = records.read_pods(self._state / "pods", self._pods)
        if found is None:
            return None
        for pod in found.keys() - self._pods.keys():
            if claims(found[pod].record):
                self._revoker.recall(pod)
        records.tidy(self._state, self._folder, traces, found)
        _shorten_log()
        self._untidy = bool(self._pods.keys() - found.keys())
        self._read_rules()
        if self._shares:
            self._learn(found)
        return found

    def _learn(self, found: Mapping[str, OtherPod]) -> None:
        """Learn the memory of their GPUs, if it is parted by the rules or by shares. To be called in a thread."""
        gpus = set(memory_room.named(pod.record for pod in found.values()))
        if self._parted:
            gpus |= {claim.gpu for pod in found.values() for claim in claims(pod.record)}
        self._gpu_memory.learn(gpus)

    def _read_rules(self) -> None:
        """Check whether other rules hold than at the start, and report what is wrong. To be called in a thread."""
        if self._rules.reload():
            _log.info("The rules of time shares have changed: everybody is served anew.")
            self._outdated = True
        if self._told == self._rules.problem:
            return
        self._told = self._rules.problem
        if self._told:
            _log.warning("%s", self._told)
        try:
            files.report_problem(self._own, self._told)
        except OSError as error:
            _log.warning("Servers cannot be told of the rules: %s", error)
        notify.send(self._state / "pods", (f"{pod}.sock" for pod in self._pods))

    async def _serve(self, found: dict[str, OtherPod]) -> None:
        """Serve and enforce the shares that the records tell."""
        self._pods = self._clients.pods = found
        taken = await self._revoker.carry_out()
        wanted = [claim for pod in found.values() for claim in claims(pod.record)]
        self._shares = served((one for one in wanted if (one.pod, one.gpu) not in taken), self._shares)
        recorded = {(one.pod, one.gpu) for one in wanted if one.recorded}
        shares: Shares = parted(self._shares, self._gpu_memory.known, recorded) if self._parted else self._shares
        by_uid = {uid: pod.record for uid, pod in found.items()}
        divided = memory_room.divided(by_uid.values(), self._gpu_memory.known)
        shares = memory_room.lowered(shares, by_uid, divided)
        limited = True
        try:
            if self._room.written:
                await asyncio.to_thread(self._room.keep, divided)
            await self._enforced.serve(
                {
                    gpu: {pod: PlacedShare(terms, self._folder / pod) for pod, terms in pods.items()}
                    for gpu, pods in shares.items()
                }
            )
        except (OSError, ValueError) as error:
            limited = False
            _log.warning("Not every share can be served; it is tried again: %s", error)
        await self._enforced.enforce({gpu: tuple(pods) for gpu, pods in self._shares.items()})
        if limited:
            await self._look_for_room(found, divided)

    async def _look_for_room(self, found: dict[str, OtherPod], divided: Mapping[str, int]) -> None:
        """Tell servers for which of their decisions there is memory, now that all limits are in force.

        The records are read again after that: who had not seen yet that a GPU is divided may have attached something.
        """
        by_uid = {uid: pod.record for uid, pod in found.items()}
        waiting, before = memory_room.waiting(by_uid.values(), divided), self._waiting
        self._pause = min(self._pause * 1.5, POLL) if waiting and waiting == before else FIRST_LOOK if waiting else POLL
        self._waiting = waiting
        rooms: memory_room.Rooms = {}
        if waiting:
            uses = {gpu: MemoryUse(divided[gpu], await self._enforced.memory_used(gpu)) for gpu in waiting}
            again = await self._find_pods()
            if again is None or _states(again) != _states(found):
                self._awake.set()
                return
            limited = {
                uid: memory_room.LimitedPod(pod.record, pod.dead) for uid, pod in found.items() if _is_limited(pod)
            }
            rooms = memory_room.find_room(by_uid, limited, uses)
        if rooms or self._room.written:
            try:
                await asyncio.to_thread(self._room.write, rooms)
            except OSError as error:
                _log.warning("A server cannot be told that there is memory; it is tried again: %s", error)

    def _take_away(self, gpu: str, pod: str, reason: str) -> None:
        """Request a revocation, with the processes that used the GPU for the share: they cannot be found later."""
        processes = connected_for(self._enforced.server, gpu, pod)
        pids = self._users.pids(gpu) if self._users else frozenset[int]()
        self._revoker.request(RevocationRequest(gpu, pod, reason, processes, pids))


def _states(pods: Mapping[str, OtherPod]) -> Mapping[str, object]:
    return {uid: (without_use(pod.record), pod.dead) for uid, pod in pods.items()}


def _is_limited(pod: OtherPod) -> bool:
    """Tell whether its programs take memory through the gate alone; of root's records only, as no other is enforced."""
    return pod.owner == 0 and pod.record.place is not None and pod.record.gate


# --- the process ------------------------------------------------------------------------------------------------------


def _shorten_log() -> None:
    """Cut a long log: any user can make a running arbiter write a line a second, in a directory that may be small."""
    about = os.fstat(2)
    if stat.S_ISREG(about.st_mode) and about.st_size > files.MAX_LOG:
        os.ftruncate(2, 0)


def leave_pods() -> None:
    """Move this process out of the pod that it was started in: it serves all of them, and outlives that one."""
    mounted = cgroup.mounts()
    for hierarchy, controller in ((mounted.unified, ""), (mounted.devices, "devices")):
        group = Path(cgroup.membership().get(controller, "/"))
        inner = [part for part in (group, *group.parents) if part.name.startswith(cgroup.PREFIX)]
        if hierarchy is None or not inner:
            continue
        try:
            cgroup.enter(hierarchy.directory(str(inner[-1].parent)), os.getpid())
        except (OSError, ValueError) as error:
            _log.warning("The control group %s cannot be left: %s", group, error)


def begin() -> None:
    """Prepare a process to become one."""
    os.umask(0o022)  # programs of other users must reach their sockets, and read their files
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    leave_pods()


def serve(state: Path, lock: int, *, stays: bool = False) -> bool:
    """Serve until nothing is left to do, or a signal says so, which is the answer; ``stays``: until a signal."""
    try:
        folder = files.open_home(state)
    except FileNotFoundError:
        return False
    _log.info("Process %s hands out GPU time (started at tick %s).", os.getpid(), proc.process_start_time(os.getpid()))
    home = Path(f"/proc/self/fd/{folder}")
    rules, serving = MachineRules(state, keeps=home / files.OWN), ServingLock(state)
    rules.reload()

    async def whole() -> tuple[bool, bool]:
        one = ArbiterProcess(state, lock, home, rules, serving, linger=math.inf if stays else LINGER)
        return await one.run(), one.over

    try:
        while True:
            again, over = asyncio.run(whole())
            if not again:
                return over
    finally:
        serving.close()
        os.close(folder)


def main(arguments: list[str]) -> int:
    """Run with ``STATE LOCK``: the state directory, and the number of the locked descriptor that was inherited."""
    begin()
    serve(Path(arguments[0]), int(arguments[1]))
    return 0
