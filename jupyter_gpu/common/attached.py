"""A small file that tells kernels which GPUs are attached, so that they need not ask the server before each cell.

The server writes it when that changes; a kernel checks its modification time, which costs two microseconds and never
waits for a busy server. The gate reads it, too, when a program looks for GPUs. It is a hint for `CUDA_VISIBLE_DEVICES`
(see `visible`) and grants nothing. Every kernel loads this module at its start, so it imports as little as possible.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

TYPE_CHECKING = False  # as in typing
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from jupyter_gpu.model.view import View

VARIABLE = "JUPYTER_GPU_ATTACHED"
"""Environment variable of kernels with the path of the file."""
_MAX_BYTES = 64 * 1024
_END = "end"
"""The last line; a file without it is incomplete."""
NVIDIA = "nvidia"
"""The vendor of a GPU that names none, and of simulated ones."""
_OTHER = "gpu-"
"""Beginning of the name of a line about a GPU of another vendor, whose name follows: the gate reads only ``gpu``."""
_VENDOR = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_UUID = re.compile(r"[A-Za-z0-9-]{1,96}")


class AttachedGpu:
    """The facts about one GPU that a kernel needs."""

    __slots__ = ("index", "path", "uuid", "vendor")

    def __init__(self, uuid: str, index: int, path: str, vendor: str = NVIDIA) -> None:
        if not (isinstance(uuid, str) and _UUID.fullmatch(uuid)):
            raise ValueError("not a uuid")
        if not isinstance(index, int) or not isinstance(path, str):
            raise TypeError("'index' is a number, 'path' a text")
        if not path.isprintable():
            raise ValueError("not a path of a device")
        if not (isinstance(vendor, str) and _VENDOR.fullmatch(vendor)):
            raise ValueError("not a vendor")
        self.uuid, self.index, self.path, self.vendor = uuid, index, path, vendor

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AttachedGpu) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.uuid)

    def to_json(self) -> dict[str, Any]:
        """JSON object."""
        vendor = {} if self.vendor == NVIDIA else {"vendor": self.vendor}
        return {"uuid": self.uuid, "index": self.index, "path": self.path, **vendor}


class Hint:
    """The facts in a view that a kernel needs; ``gpus`` are the attached ones, by index.

    ``enforced``: no other GPU can be opened, so that CUDA counts these alone. ``notice``: what the users of all kernels
    should read, as their limit was lowered. ``vendors``: those of all GPUs that the server can have, as far as it
    knows; each vendor's libraries read a variable of their own (`visible`).
    """

    __slots__ = ("enforced", "gpus", "instance", "notice", "simulated", "vendors", "version")

    def __init__(
        self,
        instance: str,
        version: int,
        simulated: bool,
        gpus: tuple[AttachedGpu, ...] = (),
        enforced: bool = False,
        notice: str = "",
        vendors: Iterable[str] = (),
    ) -> None:
        if not isinstance(instance, str) or not isinstance(version, int):
            raise TypeError("'instance' is a text, 'version' a number")
        if not isinstance(simulated, bool) or not isinstance(enforced, bool):
            raise TypeError("'simulated' and 'enforced' are true or false")
        if len(notice.splitlines()) > 1:
            raise ValueError("'notice' is one line of text")
        self.instance, self.version, self.simulated, self.gpus = instance, version, simulated, gpus
        self.enforced, self.notice = enforced, notice
        self.vendors = frozenset(vendors) | {gpu.vendor for gpu in gpus} or frozenset((NVIDIA,))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hint) and self.version == other.version and self.same_facts(other)

    def __hash__(self) -> int:
        return hash((self.instance, self.version))

    @classmethod
    def of(cls, view: View) -> Hint:
        """Return the hint for ``view``."""
        from jupyter_gpu.model import strict
        from jupyter_gpu.model.view import LIMIT_LOWERED, GpuState, Mode

        usable = [item.gpu for item in view.gpus if item.state is GpuState.ATTACHED]
        usable.sort(key=lambda gpu: gpu.index)
        gpus = tuple(AttachedGpu(gpu.uuid, gpu.index, gpu.path, gpu.vendor) for gpu in usable)
        vendors = {kind.vendor for kind in view.kinds}
        enforced = view.mode is not Mode.SOFT
        message = next((one.message for one in view.conditions if one.type == LIMIT_LOWERED), "")
        notice = strict.printable(message, 1024) if message else ""
        return cls(view.instance, view.version, view.simulated or view.total == 0, gpus, enforced, notice, vendors)

    def of_vendor(self, vendor: str) -> Hint:
        """Return the same with the GPUs of one vendor alone."""
        part = self.with_gpus(gpu for gpu in self.gpus if gpu.vendor == vendor)
        part.vendors = frozenset((vendor,))
        return part

    def with_gpus(self, gpus: Iterable[AttachedGpu]) -> Hint:
        """Return the same with these GPUs."""
        about = (self.enforced, self.notice, self.vendors)
        return Hint(self.instance, self.version, self.simulated, tuple(gpus), *about)

    def same_facts(self, other: Hint | None) -> bool:
        """Tell whether only the version differs."""
        return other is not None and _facts(self) == _facts(other)

    def newer_than(self, other: Hint | None) -> bool:
        """Tell whether this hint replaces ``other``; one of another instance of the server always does."""
        return other is None or other.instance != self.instance or self.version > other.version

    def to_text(self) -> str:
        """Return the content: a line for each fact. The gate reads it, too (node_plugin/gate/driver/visible.c)."""
        facts = [
            f"instance {self.instance}",
            f"version {self.version}",
            f"simulated {self.simulated:d}",
            f"enforced {self.enforced:d}",
            *([] if self.vendors == {NVIDIA} else [f"vendors {' '.join(sorted(self.vendors))}"]),
            *(f"{_key(gpu)} {gpu.uuid} {gpu.index} {gpu.path}" for gpu in self.gpus),
            *([f"notice {self.notice}"] if self.notice else []),
            _END,
        ]
        return "".join(f"{fact}\n" for fact in facts)

    @classmethod
    def from_text(cls, text: bytes) -> Hint:
        """Checked; raises ValueError, TypeError or KeyError."""
        lines = text.decode().split("\n")
        if len(lines) < 2 or lines[-2:] != [_END, ""]:
            raise ValueError("not the whole content of this file")
        facts = [line.partition(" ")[::2] for line in lines[:-2]]
        once = dict(facts)
        gpus = [
            (*value.split(" ", 2), key.removeprefix(_OTHER) if key.startswith(_OTHER) else NVIDIA)
            for key, value in facts
            if key == "gpu" or key.startswith(_OTHER)
        ]
        return cls(
            once["instance"],
            int(once["version"]),
            bool(int(once["simulated"])),
            tuple(AttachedGpu(uuid, int(index), path, vendor) for uuid, index, path, vendor in gpus),
            bool(int(once["enforced"])),
            once.get("notice", ""),
            once.get("vendors", "").split(),
        )


def _facts(hint: Hint) -> tuple[object, ...]:
    return hint.instance, hint.simulated, hint.enforced, hint.gpus, hint.notice, hint.vendors


def _key(gpu: AttachedGpu) -> str:
    return "gpu" if gpu.vendor == NVIDIA else f"{_OTHER}{gpu.vendor}"


class AttachedWriter:
    """The writer of the file; made for `Backend.subscribe`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._written: Hint | None = None

    def __call__(self, view: View) -> None:
        """Write the file if a fact changed: 200 bytes, replaced in one step; not synced, as it is worthless after a
        crash.
        """
        hint = Hint.of(view)
        if hint.same_facts(self._written):
            return
        new = self.path.with_name(f".{self.path.name}.new")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 - already open
            file.write(hint.to_text())
        new.replace(self.path)
        self._written = hint

    def remove(self) -> None:
        """Remove the file, when the server ends."""
        with contextlib.suppress(OSError):
            self.path.unlink()


class AttachedReader:
    """The reader of the file, which checks whether it changed."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._stamp: tuple[int, int, int] | None = None

    def read(self) -> Hint | None:
        """Return the hint if the file changed since the last call; None if not, and for a missing or broken file."""
        if not self._path:
            return None
        try:
            about = os.stat(self._path)  # noqa: PTH116 - half the time of Path.stat, at each cell
            stamp = (about.st_mtime_ns, about.st_ino, about.st_size)
            if stamp == self._stamp:
                return None
            self._stamp = stamp
            return Hint.from_text(Path(self._path).read_bytes()) if about.st_size <= _MAX_BYTES else None
        except (OSError, ValueError, TypeError, KeyError):
            return None
