"""Enforcement of a pod's device rules: by the kernel where we have the rights, else not at all (soft).

Enforcement fails closed: a pod's group has rules that allow nothing before the first process enters it, and keeps its
rules for as long as any process is left in it, whichever process died meanwhile.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Literal, Protocol

from jupyter_gpu.model.errors import BackendUnavailable
from jupyter_gpu.model.gpu import Device
from jupyter_gpu.model.view import Mode
from jupyter_gpu_node.devices.rules.device_program import compile as compile_rules
from jupyter_gpu_node.devices.rules.device_rules import DeviceRules
from jupyter_gpu_node.processes import proc

from . import bpf, cgroup

PROGRAM = "jupyter_gpu"
"""Name of our programs in the kernel."""
MARK = "JUPYTER_GPU_POD"
"""Environment variable with the pod's uid that every kernel of the pod is started with."""
Preference = Literal["auto", "soft", "required"]


class Enforcement(Protocol):
    """One pod's device rules. All methods can be repeated; none may be called after `close`."""

    mode: Mode
    why: str
    """Explanation of the mode for users, in plain words; empty if there is nothing to say."""
    place: str
    """Place of the pod's group, for `reopen`; empty in soft mode."""

    def apply(self, rules: DeviceRules) -> None:
        """Have these rules in force when it returns. What is open stays open. Raises `OSError`."""

    def processes(self) -> tuple[int, ...]:
        """Return the known pids of the pod's processes, ascending."""

    def leave(self, pid: int) -> None:
        """Move process ``pid`` out of the pod: a helper that must see all GPUs. Raises `OSError`."""

    def close(self) -> bool:
        """Leave; True if nothing of the pod is left. Else its processes stay under the last rules."""


class BpfEnforcement:
    """A program on a v2 control group; on hybrid hosts too."""

    mode = Mode.ENFORCED

    def __init__(self, group: Path, program: bpf.Program, why: str = "") -> None:
        self.group = group
        self.why = why
        self.place = f"bpf:{group}"
        self._program = program

    @classmethod
    def create(cls, managed: Collection[Device], uid: str, parent: Path) -> BpfEnforcement:
        """Create an empty group below ``parent`` that can open none of ``managed``."""
        group = cgroup.create(parent, uid)
        try:
            program = bpf.load(compile_rules(DeviceRules.closed(managed)), PROGRAM)
            try:
                old = bpf.find(group, PROGRAM)
                bpf.attach(group, program, replaces=old)
                if old:
                    old.close()
            except OSError:
                program.close()
                raise
        except OSError:
            _discard(group)
            raise
        return cls(group, program)

    @classmethod
    def reopen(cls, group: Path) -> BpfEnforcement | None:
        """Return the group as an earlier process left it; None if it is gone or has none of our rules."""
        if not group.is_dir():
            return None
        program = bpf.find(group, PROGRAM)
        return cls(group, program) if program else None

    def apply(self, rules: DeviceRules) -> None:
        """Replace the program in one step."""
        program = bpf.load(compile_rules(rules), PROGRAM)
        try:
            bpf.attach(self.group, program, replaces=self._program)
        except OSError:
            program.close()
            raise
        self._program.close()
        self._program = program

    def processes(self) -> tuple[int, ...]:
        """Return the pids in the group and below."""
        return cgroup.processes(self.group)

    def leave(self, pid: int) -> None:
        """Move a process to the group that the pod's lies in."""
        cgroup.enter(self.group.parent, pid)

    def close(self) -> bool:
        """Leave the group with our own process; the program goes with the group, when its last process does."""
        self._program.close()
        return _leave(self.group)


class DevicesV1Enforcement:
    """The ``devices`` controller of pure v1 hosts: a few writes instead of one step, denials first."""

    mode = Mode.ENFORCED

    def __init__(self, group: Path, why: str = "") -> None:
        self.group = group
        self.why = why
        self.place = f"v1:{group}"

    @classmethod
    def create(cls, managed: Collection[Device], uid: str, parent: Path) -> DevicesV1Enforcement:
        """Create an empty group below ``parent`` that can open none of ``managed``."""
        made = cls(cgroup.create(parent, uid))
        try:
            made.apply(DeviceRules.closed(managed))
        except OSError:
            _discard(made.group)
            raise
        return made

    @classmethod
    def reopen(cls, group: Path) -> DevicesV1Enforcement | None:
        """Return the group as an earlier process left it; None if it is gone."""
        return cls(group) if group.is_dir() else None

    def apply(self, rules: DeviceRules) -> None:
        """Deny, then allow; a group below does not follow its parent's grants, so each is written to."""
        for device in rules.denied:
            cgroup.write(self.group, "devices.deny", f"c {device} rw")
        for device in sorted(rules.managed & rules.allowed):
            cgroup.write(self.group, "devices.allow", f"c {device} rw")

    def processes(self) -> tuple[int, ...]:
        """Return the pids in the group and below."""
        return cgroup.processes(self.group)

    def leave(self, pid: int) -> None:
        """Move a process to the group that the pod's lies in."""
        cgroup.enter(self.group.parent, pid)

    def close(self) -> bool:
        """Leave the group with our own process; the rules go with the group, when its last process does."""
        return _leave(self.group)


class SoftEnforcement:
    """The soft mode, without rights: the rules are a promise between honest programs."""

    mode = Mode.SOFT
    place = ""

    def __init__(self, uid: str, pid: int, why: str) -> None:
        self.why = why
        self._uid = uid
        self._server = pid
        self._start = proc.process_start_time(pid) or 0

    def apply(self, rules: DeviceRules) -> None:
        """Do nothing: there are no rights to set rules."""

    def processes(self) -> tuple[int, ...]:
        """Return the server, and the processes that were started with the pod's mark."""
        server = {self._server} if proc.alive(self._server, self._start) else set()
        return tuple(sorted(server | {process.pid for process in proc.with_environment(MARK, self._uid)}))

    def leave(self, pid: int) -> None:
        """Do nothing: there is no group to leave."""

    def close(self) -> bool:
        """Tell whether only this process is left; there are no rules to remove."""
        return not set(self.processes()) - {os.getpid()}


def choose(
    managed: Collection[Device], uid: str, pid: int | None = None, preference: Preference = "auto"
) -> Enforcement:
    """Put process ``pid`` (this one) under the strongest rules there are; from then on it can open none of ``managed``.

    Call it before the process starts others: those stay outside. ``required`` raises
    `BackendUnavailable` where only soft mode is possible.
    """
    cgroup.group_name(uid)  # before anything is made
    pid = pid or os.getpid()
    if preference == "soft":
        return SoftEnforcement(uid, pid, _why_soft("soft mode was asked for"))
    problems: list[str] = []
    for attempt in (with_bpf, with_devices_v1):
        try:
            return attempt(managed, uid, pid)
        except (OSError, ValueError) as error:
            problems.append(_text(error))
    why = _why_soft("; ".join(problems) if os.geteuid() == 0 else "the server does not run as root")
    if preference == "required":
        raise BackendUnavailable(f"The operating system cannot guard the GPUs. {why}")
    return SoftEnforcement(uid, pid, why)


def _why_soft(cause: str) -> str:
    return f"Nothing keeps a program from opening a GPU that it was not given: {cause}."


def _text(error: OSError | ValueError) -> str:
    if not isinstance(error, OSError):
        return str(error).rstrip(".")
    return f"{error.strerror}: {error.filename}" if error.filename else str(error.strerror)


def with_bpf(managed: Collection[Device], uid: str, pid: int) -> Enforcement:
    """Put process ``pid`` under a program on a v2 group. Raises `OSError` or `ValueError`."""
    hierarchy = cgroup.mounts().unified
    if hierarchy is None:
        raise ValueError("there is no cgroup v2 hierarchy")
    group = cgroup.membership(pid)[""]
    return _entered(BpfEnforcement.create(managed, uid, hierarchy.directory(group)), group, pid)


def with_devices_v1(managed: Collection[Device], uid: str, pid: int) -> Enforcement:
    """Put process ``pid`` under the v1 devices controller. Raises `OSError` or `ValueError`."""
    hierarchy = cgroup.mounts().devices
    if hierarchy is None:
        raise ValueError("there is no devices controller of cgroup v1")
    group = cgroup.membership(pid)["devices"]
    return _entered(DevicesV1Enforcement.create(managed, uid, hierarchy.directory(group)), group, pid)


def _entered(made: BpfEnforcement | DevicesV1Enforcement, outer: str, pid: int) -> Enforcement:
    try:
        cgroup.enter(made.group, pid)
        if pid not in made.processes():
            raise ValueError(f"process {pid} did not enter its control group")
    except (OSError, ValueError):
        made.close()
        raise
    if f"/{cgroup.PREFIX}" in outer:
        made.why = "This server was started inside another one's pod: it can open only GPUs that both have."
    return made


def reopen(place: str, uid: str) -> Enforcement | None:
    """Return the enforcement that pod ``uid`` left at ``place``, to be watched and removed; None if nothing is there.

    ``place`` may come from a record that another program wrote: only a group of that very pod is touched.
    """
    kinds: dict[str, Callable[[Path], Enforcement | None]] = {
        "bpf": BpfEnforcement.reopen,
        "v1": DevicesV1Enforcement.reopen,
    }
    kind, _, path = place.partition(":")
    mounted = cgroup.mounts()
    hierarchy = {"bpf": mounted.unified, "v1": mounted.devices}.get(kind)
    group = Path(path)
    inside = hierarchy is not None and group.is_absolute() and group.is_relative_to(hierarchy.mount)
    if not inside or ".." in group.parts or group.name != cgroup.group_name(uid):
        raise ValueError(f"{place[:200]!r} is not where the group of pod {uid} can be.")
    return kinds[kind](group)


def _leave(group: Path) -> bool:
    """Move this process to the parent if it is in ``group``, and tell whether the group is gone after that."""
    if os.getpid() in cgroup.processes(group):
        cgroup.enter(group.parent, os.getpid())
    return cgroup.remove(group)


def _discard(group: Path) -> None:
    with contextlib.suppress(OSError):
        cgroup.remove(group)
