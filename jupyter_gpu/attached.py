"""A small file that tells kernels which GPUs are attached, so that none has to ask the server before each cell.

The server writes it when that changes; a kernel looks at its modification time, which costs two microseconds and never
waits for a busy server. It is a hint for `CUDA_VISIBLE_DEVICES` and grants nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .model import strict
from .model.view import GpuState, View

VARIABLE = "JUPYTER_GPU_ATTACHED"
"""Environment variable of kernels with the path of the file."""
_MAX_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class AttachedGpu:
    """What a kernel needs to know of one GPU."""

    uuid: str
    index: int
    path: str

    @classmethod
    def from_json(cls, value: object, key: str) -> AttachedGpu:
        """Checked; raises :class:`~.model.strict.FieldError`."""
        body = strict.an_object(value, key)
        uuid = strict.required(body, "uuid", strict.text(96))
        if "," in uuid or "=" in uuid:
            raise strict.FieldError("a uuid has no comma and no equals sign.", key)
        index = strict.required(body, "index", strict.integer(0, 4095))
        return cls(uuid, index, strict.optional(body, "path", strict.text(512)) or "")


@dataclass(frozen=True, slots=True)
class Hint:
    """What a kernel needs to know of a view."""

    instance: str
    version: int
    simulated: bool
    gpus: tuple[AttachedGpu, ...] = ()
    """Attached ones, by index."""

    @classmethod
    def of(cls, view: View) -> Hint:
        """The part of ``view`` that matters."""
        usable = [item.gpu for item in view.gpus if item.state is GpuState.ATTACHED]
        gpus = tuple(AttachedGpu(gpu.uuid, gpu.index, gpu.path) for gpu in sorted(usable, key=lambda gpu: gpu.index))
        return cls(view.instance, view.version, view.simulated or view.total == 0, gpus)

    def same_gpus(self, other: Hint | None) -> bool:
        """Whether nothing differs but the version."""
        return other is not None and (self.instance, self.simulated, self.gpus) == (
            other.instance,
            other.simulated,
            other.gpus,
        )

    def newer_than(self, other: Hint | None) -> bool:
        """Whether it replaces ``other``; another instance of the server always does."""
        return other is None or other.instance != self.instance or self.version > other.version

    def to_text(self) -> str:
        """Content of the file."""
        gpus = [{"uuid": gpu.uuid, "index": gpu.index, **({"path": gpu.path} if gpu.path else {})} for gpu in self.gpus]
        body = {"instance": self.instance, "version": self.version, "simulated": self.simulated, "gpus": gpus}
        return strict.dumps(body)

    @classmethod
    def from_text(cls, text: bytes) -> Hint:
        """Checked; raises :class:`~.model.strict.FieldError`."""
        body: Mapping[str, object] = strict.an_object(strict.loads(text, _MAX_BYTES), "attached")
        return cls(
            instance=strict.required(body, "instance", strict.text(64)),
            version=strict.required(body, "version", strict.integer(0, strict.MAX_GENERATION)),
            simulated=strict.required(body, "simulated", strict.boolean),
            gpus=strict.required(body, "gpus", strict.list_of(AttachedGpu.from_json, 1024)),
        )


class Writer:
    """Keeps the file; made for `Backend.subscribe`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._written: Hint | None = None

    def __call__(self, view: View) -> None:
        """Write what changed: 200 bytes, replaced in one step, not synced because worth nothing after a crash."""
        hint = Hint.of(view)
        if hint.same_gpus(self._written):
            return
        new = self.path.with_name(f".{self.path.name}.new")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 - already open
            file.write(hint.to_text())
        new.replace(self.path)
        self._written = hint

    def remove(self) -> None:
        """When the server ends."""
        with contextlib.suppress(OSError):
            self.path.unlink()


class Reader:
    """Looks whether the file changed."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._stamp: tuple[int, int, int] | None = None

    def read(self) -> Hint | None:
        """The content if it changed since the last call; None if not, and for a file that is missing or broken."""
        if not self._path:
            return None
        try:
            about = os.stat(self._path)  # noqa: PTH116 - half the time of Path.stat, at each cell
            stamp = (about.st_mtime_ns, about.st_ino, about.st_size)
            if stamp == self._stamp:
                return None
            self._stamp = stamp
            return Hint.from_text(Path(self._path).read_bytes()) if about.st_size <= _MAX_BYTES else None
        except (OSError, strict.FieldError):
            return None
