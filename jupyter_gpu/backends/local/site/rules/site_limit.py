"""The GPUs that the site lets a server use, from the `CUDA_VISIBLE_DEVICES` that it was started with; pure.

CUDA's rules (CUDA guide, environment variables): a list of indices, or of uuids of which the first digits do. What
follows an entry that names no GPU is hidden, and all is hidden where a GPU is named twice. A number may be followed by
anything, as the driver reads it. Of a GPU in MIG mode a list names parts, which are not supported: such an entry names
no GPU. Indices count as in `nvidia-smi`, which is what SLURM and others mean.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from jupyter_gpu.model.gpu import Gpu

VARIABLE = "CUDA_VISIBLE_DEVICES"
_NUMBER = re.compile(r"\+?[0-9]{1,9}")
_UUID = "GPU-"


class Visible(NamedTuple):
    """The GPUs that a value makes visible on one machine."""

    uuids: tuple[str, ...]
    """In the order of the list."""
    stopped: str | None = None
    """The first entry that names no GPU; ``None`` if each names one."""
    twice: bool = False
    """Whether a GPU is named twice."""


def visible(value: str, gpus: Sequence[Gpu]) -> Visible:
    """Return those of ``gpus``, all that there are, that CUDA would show."""
    found: list[str] = []
    if not value.strip():
        return Visible(())
    entries = [entry.strip() for entry in value.split(",")]
    by_uuid = entries[0].startswith(_UUID)
    for entry in entries:
        uuid = _by_uuid(entry, gpus) if by_uuid else _by_index(entry, gpus)
        if uuid is None:
            return Visible(tuple(found), entry)
        if uuid in found:
            return Visible((), twice=True)
        found.append(uuid)
    return Visible(tuple(found))


def _by_index(entry: str, gpus: Sequence[Gpu]) -> str | None:
    number = _NUMBER.match(entry)
    return next((gpu.uuid for gpu in gpus if number and gpu.index == int(number[0])), None)


def _by_uuid(entry: str, gpus: Sequence[Gpu]) -> str | None:
    """Return the only uuid that begins so; more than the prefix that all share must be there."""
    if not entry.startswith(_UUID) or entry == _UUID:
        return None
    named = [gpu.uuid for gpu in gpus if gpu.uuid.startswith(entry)]
    return named[0] if len(named) == 1 else None


class SiteLimit:
    """The limit of one server: a GPU once visible stays so, whatever becomes of it or of those before it."""

    def __init__(self, value: str | None) -> None:
        self.value = value
        """``None``: there is no limit."""
        self._meant = Visible(())
        self._whole = False
        self._uuids: frozenset[str] = frozenset()

    def choose(self, gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
        """Return those of all ``gpus`` that may be used."""
        if self.value is None:
            return tuple(gpus)
        if gpus and not self._whole:  # a GPU that does not answer yet hides those after it, until it does
            self._meant = visible(self.value, gpus)
            self._whole = self._meant.stopped is None
            self._uuids |= set(self._meant.uuids)
        return tuple(gpu for gpu in gpus if gpu.uuid in self._uuids)

    def explain(self, gpus: Collection[Gpu]) -> str:
        """Describe the limit for the user, by all GPUs that there are; empty where nothing is hidden."""
        used = sorted(gpu.index for gpu in gpus if gpu.uuid in self._uuids)
        if self.value is None or (len(used) == len(gpus) and not self._meant.stopped):
            return ""
        return f"{_which(used, len(gpus))}{_why(self._meant)}"


def _which(used: Sequence[int], total: int) -> str:
    here = f"the {total} GPUs" if total > 1 else "the GPU"
    if not used:
        return f"it uses none of {here} here."
    names = ", ".join(map(str, used))
    return f"of {here} here it uses only GPU{'s' if len(used) > 1 else ''} {names}."


def _why(meant: Visible) -> str:
    if meant.twice:
        return " A GPU is named twice there, so CUDA shows none."
    if meant.stopped is None:
        return ""
    if meant.stopped.startswith("MIG-"):
        return f" {meant.stopped[:64]!r} is a part of a GPU (MIG), which is not supported."
    return f" {meant.stopped[:64]!r} names no GPU here: that, and what follows it, is hidden, as CUDA does it."
