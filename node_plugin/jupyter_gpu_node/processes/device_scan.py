"""Processes that have a GPU open, read from ``/proc``: the proof of a release.

A process holds a device through an open file descriptor or through a memory mapping, which outlives the descriptor.
Both are found for every process of the machine that may be inspected, also outside the pod: a descriptor can be
passed over a socket. Threads that stopped sharing their descriptors are scanned one by one. A process can also put a
descriptor where ``/proc`` shows no file: into a socket that no process reads, or into io_uring. A pod that was granted
a GPU is searched for these too, by the names of such places.

A scan takes time. Processes born meanwhile are scanned as well; a descriptor that is passed on between two running
processes at the right microsecond is missed, unless the pod is frozen.

Devices are recognised by their numbers, so the node may have any path in any container. Plain files, which stand for
simulated GPUs where there is no root, are recognised by file system and inode.
"""
# ruff: noqa: PTH115, PTH116, PTH123 - Path objects would cost more than the system calls

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

from jupyter_gpu.model.gpu import Device, Gpu
from jupyter_gpu_node.processes.rules.scan_budget import EACH, MAPPING, PROCESS, THREAD, OverBudget, ScanBudget

from . import syscalls
from .proc import GONE, ProcessInfo, all_pids, describe, names, possible_holder

K = TypeVar("K")
Identity = tuple[int, int]
"""Identity of a plain file: ``st_dev`` and ``st_ino``."""

ROUNDS = 100
"""Rounds in which a scan turns to processes that were born during it."""
_IN_FLIGHT = re.compile(rb"^scm_fds:\s*[1-9]", re.MULTILINE)
_REGISTERED = re.compile(rb"^ *\d+: (.*)$", re.MULTILINE)
_MAPPING = re.compile(rb"^(\S+) \S+ \S+ (\S+) ([1-9]\d*) *(.*)$", re.MULTILINE)  # proc_pid_maps(5)


class Target(NamedTuple):
    """The object of a search: a character device, or a plain file."""

    device: Device | None = None
    file: Identity | None = None


class Scan(NamedTuple, Generic[K]):
    """The result of one scan."""

    holders: Mapping[K, tuple[ProcessInfo, ...]]
    """Holders of each target, by pid."""
    uninspectable: tuple[ProcessInfo, ...]
    """Processes that we may not inspect: each could hold anything. None for a root with all capabilities."""
    over: tuple[ProcessInfo, ...] = ()
    """Processes at which a budget ended: these, and later ones with the same budget, were not scanned wholly."""
    evidence: Mapping[tuple[K, int], str] = MappingProxyType({})
    """Descriptor or mapping by target and pid, as a path below ``/proc``; see `still_shows`."""


def target(gpu: Gpu) -> Target | None:
    """Return what identifies ``gpu``; None if it has no device and its file is gone, so that no process can hold it."""
    if gpu.device is not None:
        return Target(device=gpu.device)
    try:
        found = os.lstat(gpu.path)
    except (OSError, ValueError):
        return None
    return Target(file=(found.st_dev, found.st_ino)) if stat.S_ISREG(found.st_mode) else None


def targets(gpus: Iterable[Gpu]) -> dict[str, Target]:
    """Return the targets by uuid of those of ``gpus`` that a process could hold."""
    return {gpu.uuid: found for gpu in gpus if (found := target(gpu)) is not None}


def scan(
    wanted: Mapping[K, Target],
    pids: Iterable[int] | None = None,
    *,
    mappings: bool = True,
    pod: Collection[int] = (),
    budgets: Callable[[int], ScanBudget | None] = lambda _: None,
) -> Scan[K]:
    """Scan all processes, or only ``pids``.

    ``mappings=False`` leaves out memory mappings: enough to show the users of a GPU, never enough to release one.
    ``pod``: pids that are searched for hidden descriptors as well; what may be any file counts as every target.
    ``budgets``: what may be read of a process and all others with the same budget; None: everything. A process that
    ends during the scan holds nothing.
    """
    scanned = _ScanPass(wanted)
    for pid, budget in _processes(pids, budgets):
        scanned.budget = budget or ScanBudget(float("inf"))
        if wanted:
            scanned.add(pid, mappings=mappings, hidden=pid in pod)
    return scanned.result()


def open_descriptors(gpus: Iterable[Gpu], pids: Iterable[int]) -> Mapping[str, tuple[ProcessInfo, ...]]:
    """Return, by uuid, which of a pod's processes have a GPU open, by descriptors alone: to show, never to prove.

    No more is read than a pod's budget for a scan.
    """
    budget = ScanBudget(EACH)
    return scan(targets(gpus), pids, mappings=False, budgets=lambda _: budget).holders


def has_open(pid: int, devices: Iterable[Device]) -> bool:
    """Tell whether ``pid`` has any of ``devices`` open, or can't be inspected, or not within a budget."""
    budget = ScanBudget(EACH)
    seen = scan({device: Target(device=device) for device in devices}, (pid,), budgets=lambda _: budget)
    return any(seen.holders.values()) or bool(seen.uninspectable or seen.over)


def still_shows(path: str, wanted: Target) -> bool:
    """Tell whether ``path`` of `Scan.evidence` still leads to that file; False also if it may not be followed."""
    try:
        found = syscalls.status_at(syscalls.AT_FDCWD, path.encode())
    except PermissionError:
        return False
    return bool(found and _ScanPass({0: wanted}).match(found))


def _processes(
    pids: Iterable[int] | None, budgets: Callable[[int], ScanBudget | None]
) -> Iterator[tuple[int, ScanBudget | None]]:
    """Yield the processes to scan, each with its budget; none whose budget is spent."""
    if pids is not None:
        for pid in sorted(set(pids)):
            budget = budgets(pid)
            if not budget or not budget.over:
                yield pid, budget
        return
    every = every_pid()
    scanned_it: bool | None = None
    with suppress(StopIteration):
        while True:
            pid = every.send(scanned_it) if scanned_it is not None else next(every)
            budget = budgets(pid)
            scanned_it = _exists(pid) and not (budget and budget.over)
            if scanned_it:
                yield pid, budget


def every_pid() -> Generator[int, bool | None, None]:
    """Yield all processes, and those born during the scan: one may have inherited what its parent closed.

    Ends when there are no new ones. The caller sends whether it scanned each process: a pod that forks without end is
    over its budget at last, and processes that have ended already could go on for ever, so neither is waited for.
    """
    seen: set[int] = set()
    for _ in range(ROUNDS):
        fresh = False
        for pid in sorted(set(all_pids()) - seen):
            seen.add(pid)
            fresh = (yield pid) is not False or fresh
        if not fresh:
            return


def _exists(pid: int) -> bool:
    try:
        os.stat(f"/proc/{pid}")
    except OSError:
        return False
    return True


class _ScanPass(Generic[K]):
    """One pass over the processes; remembers the identity of each mapped file."""

    def __init__(self, wanted: Mapping[K, Target]) -> None:
        self.devices: dict[Device, list[K]] = {}
        self.files: dict[Identity, list[K]] = {}
        for key, what in wanted.items():
            if what.device is not None:
                self.devices.setdefault(what.device, []).append(key)
            if what.file is not None:
                self.files.setdefault(what.file, []).append(key)
        self.mapped: dict[tuple[bytes, bytes], tuple[K, ...]] = {}
        self.evidence: dict[tuple[K, int], str] = {}
        self.budget = ScanBudget(float("inf"))
        """Budget of the process that is scanned now."""
        self._holders: dict[K, list[ProcessInfo]] = {key: [] for key in wanted}
        self._uninspectable: list[ProcessInfo] = []
        self._over: list[ProcessInfo] = []

    def add(self, pid: int, *, mappings: bool, hidden: bool) -> None:
        """Scan one process, and add it where it belongs; nothing if it has ended."""
        try:
            held = self.process(pid, mappings=mappings, hidden=hidden)
        except OverBudget:
            if process := describe(pid):
                self._over.append(process)
            return
        except GONE:
            return
        except PermissionError:
            if process := possible_holder(pid):
                self._uninspectable.append(process)
            return
        if held and (process := describe(pid)):
            for key in held:
                self._holders[key].append(process)

    def result(self) -> Scan[K]:
        """Return what was found."""
        return Scan(
            {key: tuple(sorted(found)) for key, found in self._holders.items()},
            tuple(sorted(self._uninspectable)),
            tuple(self._over),
            self.evidence,
        )

    def process(self, pid: int, *, mappings: bool, hidden: bool) -> set[K]:
        """Return what the process has open; raises if it may not be inspected or is gone, and `OverBudget`."""
        self.budget.spend(PROCESS)
        held = self.task(pid, f"/proc/{pid}", mappings=mappings, hidden=hidden)
        for thread in self.separate_threads(pid):
            try:
                held |= self.task(pid, f"/proc/{pid}/task/{thread}", mappings=mappings, hidden=hidden)
            except GONE:
                continue
        return held

    def task(self, pid: int, directory: str, *, mappings: bool, hidden: bool) -> set[K]:
        held = self.descriptors(pid, f"{directory}/fd")
        if mappings:
            held |= self.mappings(pid, f"{directory}/maps")
        if hidden:
            held |= self.stashed(directory)
        return held

    def descriptors(self, pid: int, directory: str) -> set[K]:
        held: set[K] = set()
        opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # since Linux 6.2 this is their number, so that of far too many none is read
            known = os.fstat(opened).st_size
            self.budget.spend(known)
            for number, name in enumerate(names(opened), start=1):
                if number > known:
                    self.budget.spend(1)
                if (found := syscalls.status_at(opened, name.encode())) and (keys := self.match(found)):
                    held.update(keys)
                    self.evidence.update({(key, pid): f"{directory}/{name}" for key in keys})
        finally:
            os.close(opened)
        return held

    def separate_threads(self, pid: int) -> Iterator[int]:
        """Yield threads whose descriptors are not those of the process; all others too where the kernel cannot tell."""
        for name in names(f"/proc/{pid}/task"):
            self.budget.spend(THREAD)
            thread = int(name)
            if thread != pid and not syscalls.same_files(pid, thread):
                yield thread

    def stashed(self, directory: str) -> set[K]:
        """Return targets that may be in flight in a socket, which may be any, or among io_uring files, which are named.

        In another mount namespace a name says nothing here: there any file of io_uring may be anything.
        """
        held: set[K] = set()
        elsewhere = os.stat(f"{directory}/ns/mnt").st_ino != os.stat("/proc/self/ns/mnt").st_ino
        for name in names(f"{directory}/fd"):
            self.budget.spend(1)
            try:
                kind = os.readlink(f"{directory}/fd/{name}")
                if not kind.startswith(("socket:", "anon_inode:[io_uring]")):
                    continue
                with open(f"{directory}/fdinfo/{name}", "rb") as file:
                    text = file.read()
            except GONE:
                continue
            if _IN_FLIGHT.search(text):
                held.update(*self.devices.values(), *self.files.values())
            for path in _REGISTERED.findall(text):
                held.update(self.registered(path, elsewhere=elsewhere))
        return held

    def registered(self, path: bytes, *, elsewhere: bool) -> Iterable[K]:
        """Return the targets of an io_uring file, by its name; one whose name leads nowhere here may be any of them."""
        if not path.startswith(b"/"):  # a socket or pipe
            return ()
        found = None if elsewhere else syscalls.status_at(syscalls.AT_FDCWD, path)
        return self.match(found) if found else (*chain(*self.devices.values(), *self.files.values()),)

    def mappings(self, pid: int, path: str) -> set[K]:
        parts = []
        with open(path, "rb") as file:
            while more := file.read(2**16):
                self.budget.spend(MAPPING * more.count(b"\n"))
                parts.append(more)
        held: set[K] = set()
        lines = _MAPPING.findall(b"".join(parts))
        found = {(device, inode): (where, name) for where, device, inode, name in lines}
        for identity, line in found.items():
            if identity not in self.mapped:
                self.mapped[identity] = self.mapping(pid, *identity, *line)
            held.update(self.mapped[identity])
            for key in self.mapped[identity]:
                self.evidence.setdefault((key, pid), f"/proc/{pid}/map_files/{line[0].decode()}")
        return held

    def mapping(self, pid: int, device: bytes, inode: bytes, where: bytes, path: bytes) -> tuple[K, ...]:
        """Return the targets that a mapped file matches.

        ``maps`` has the node's inode, not its numbers: these are read from the file.
        """
        found = None
        with suppress(PermissionError):  # that link is for root, and only while the first thread lives
            found = syscalls.status_at(syscalls.AT_FDCWD, b"/proc/%d/map_files/%b" % (pid, where))
        if found is None:  # take the path's word
            with suppress(PermissionError):
                found = syscalls.status_at(syscalls.AT_FDCWD, path)
        if found and (keys := self.match(found)):
            return keys
        major, _, minor = device.partition(b":")
        return tuple(self.files.get((os.makedev(int(major, 16), int(minor, 16)), int(inode)), ()))

    def match(self, found: syscalls.FileStatus) -> tuple[K, ...]:
        if stat.S_ISCHR(found.mode):
            return tuple(self.devices.get(Device(*found.rdev), ()))
        if stat.S_ISREG(found.mode):
            return tuple(self.files.get((os.makedev(*found.dev), found.inode), ()))
        return ()
