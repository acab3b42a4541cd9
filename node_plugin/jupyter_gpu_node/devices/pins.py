"""Device programs on pods' control groups, pinned in a bpffs so that a later process can open them again.

A program stays on its group whatever happens to its pin, so a removed pin opens no device. A pin gives a later process
a descriptor without CAP_SYS_ADMIN. A change has three steps, after each of which the process may die: pin the new one
under the next generation, replace it on the group, remove the old pin. The group itself shows which pin is in force.
Names are ``<uid>_<generation>``: the kernel allows no dot there. Without a bpffs a program is found by its name, which
needs CAP_SYS_ADMIN.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from pathlib import Path

from jupyter_gpu.common import faults
from jupyter_gpu_node.devices.rules.device_program import Instruction

from . import bpf, pin_evidence
from .enforcement import PROGRAM

_NAME = re.compile(r"(?P<uid>[A-Za-z0-9][A-Za-z0-9-]{0,99})_(?P<generation>\d{1,12})")


class PinnedProgram:
    """The program in force on one pod's group, and the means to replace it."""

    def __init__(self, pins: Pins, uid: str, group: Path, program: bpf.Program, generation: int) -> None:
        self.group = group
        self._pins = pins
        self._uid = uid
        self._program = program
        self._generation = generation

    def replace(self, code: Iterable[Instruction]) -> None:
        """Put ``code`` in force instead, in one step. Raises `OSError`; then the old one still is."""
        program = bpf.load(code, PROGRAM)
        new = self._generation + 1
        try:
            self._pins.put(self._uid, new, program)
            faults.point("agent:pinned")
            bpf.attach(self.group, program, replaces=self._program)
        except OSError:
            program.close()
            self._pins.drop(self._uid, new)
            raise
        faults.point("agent:replaced")
        self._pins.drop(self._uid, self._generation)
        self._program.close()
        self._program, self._generation = program, new

    def code(self) -> bytes:
        """Return the code that the kernel runs for it; empty if it does not tell. Raises `OSError`."""
        return bpf.code(self._program)

    def in_force(self) -> bool:
        """Tell whether it is still on the group: a group that was removed and made again has no program."""
        try:
            return bpf.identifier(self._program) in bpf.attached(self.group)
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Close the descriptor; pin and program stay."""
        self._program.close()


class Pins:
    """All pins below one directory of a bpffs. ``None``: there is no bpffs, and programs are found by name.

    ``whole``: all pins that were made since the machine started are there (`pin_evidence`).
    """

    def __init__(self, directory: Path | None, *, whole: bool = True) -> None:
        self.directory = directory
        self._whole = whole
        self._identity = pin_evidence.identity(directory)

    @classmethod
    def at(cls, directory: Path, note: Path | None = None) -> Pins:
        """Return pins below ``directory``, which is created when needed; without a bpffs there, no pins are made.

        ``note``: a file that does not outlive the machine, and names the directory for the next process. Without it
        it is not known whether some were lost.
        """
        found = directory if _in_bpffs(directory) else None
        return cls(found, whole=pin_evidence.all_there(found, note) if note else False)

    def uids(self) -> frozenset[str]:
        """Return the uids of the pods that have pins."""
        return frozenset(uid for uid, _ in self._all())

    def may_have_had(self, uid: str) -> bool:
        """Tell whether the pod may have run since the machine started.

        A pin is made before the first process of its pod, and stays until the pod is forgotten; no bpffs outlives the
        machine. So a pod without a pin has not run, unless pins were lost, before this process began or since. Without
        pins the answer is unknown, so yes.
        """
        if self.directory is None or not self._whole:
            return True
        return uid in self.uids() or pin_evidence.identity(self.directory) != self._identity

    def adopt(self, uid: str, group: Path) -> PinnedProgram | None:
        """Return the program of an earlier process that is in force on ``group``; None if it left nothing there."""
        there = set(bpf.attached(group))
        if self.directory is None:
            program = bpf.find(group, PROGRAM) if there else None
            return PinnedProgram(self, uid, group, program, 0) if program else None
        found: PinnedProgram | None = None
        for generation in sorted((number for owner, number in self._all() if owner == uid), reverse=True):
            program = bpf.pinned(self._path(uid, generation))
            if found is None and bpf.identifier(program) in there:
                found = PinnedProgram(self, uid, group, program, generation)
            else:  # pinned and not yet attached, or replaced and not yet removed
                program.close()
                self.drop(uid, generation)
        return found

    def create(self, uid: str, group: Path, code: Iterable[Instruction]) -> PinnedProgram:
        """Put ``code`` on a group that has no program of ours yet. Raises `OSError`."""
        self._make_directory()
        self.discard(uid)
        program = bpf.load(code, PROGRAM)
        try:
            self.put(uid, 1, program)
            bpf.attach(group, program)
        except OSError:
            program.close()
            self.drop(uid, 1)
            raise
        return PinnedProgram(self, uid, group, program, 1)

    def discard(self, uid: str) -> None:
        """Remove all pins of the pod. What is attached stays attached."""
        for owner, generation in self._all():
            if owner == uid:
                self.drop(uid, generation)

    def put(self, uid: str, generation: int, program: bpf.Program) -> None:
        """Pin a program."""
        if self.directory is not None:
            bpf.pin(program, self._path(uid, generation))

    def test(self, program: bpf.Program) -> None:
        """Pin a program, and remove that pin at once. Raises `OSError` where nothing can be pinned."""
        if self.directory is not None:
            self._make_directory()
            path = self.directory / "selftest"  # no name of a pod's pin
            path.unlink(missing_ok=True)
            bpf.pin(program, path)
            path.unlink()

    def drop(self, uid: str, generation: int) -> None:
        """Remove one pin; it may be gone."""
        if self.directory is not None:
            with contextlib.suppress(FileNotFoundError):
                self._path(uid, generation).unlink()

    def _make_directory(self) -> None:
        if self.directory is not None:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _path(self, uid: str, generation: int) -> Path:
        assert self.directory is not None
        return self.directory / f"{uid}_{generation}"

    def _all(self) -> list[tuple[str, int]]:
        if self.directory is None or not self.directory.is_dir():
            return []
        matches = (_NAME.fullmatch(path.name) for path in self.directory.iterdir())
        return [(match["uid"], int(match["generation"])) for match in matches if match]


def _in_bpffs(path: Path) -> bool:
    """Tell whether ``path`` lies, or would lie, in a bpffs."""
    mounted: dict[Path, str] = {}
    for line in Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.partition(" ")[0]
        if len(fields) > 4:
            mounted[Path(fields[4])] = kind
    for parent in (path, *path.parents):
        if parent in mounted:
            return mounted[parent] == "bpf"
    return False
