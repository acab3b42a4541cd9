"""Simulated GPUs that pass for real ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path

from jupyter_gpu.backends.local import pod_start as module
from jupyter_gpu.backends.local.records.store import StateStore
from jupyter_gpu.backends.local.settings import Settings
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu_node.gpus.simulated import SimulatedGpus


class LooksReal(SimulatedGpus):
    """They do not say what they are; and a driver that can stop answering."""

    simulated = False
    answers = True
    using: Callable[[], Collection[int]] = tuple
    """Pids that the driver says use each of them."""

    def inventory(self) -> tuple[Gpu, ...]:
        self.note = "" if self.answers else "The driver is being updated."
        return tuple(replace(gpu, simulated=False) for gpu in super().inventory()) if self.answers else ()

    def users(self, uuids: Collection[str]) -> Mapping[str, frozenset[int]]:
        return dict.fromkeys(uuids, frozenset(self.using()))


def pretend(count: int, using: Path | None = None) -> None:
    """Have servers of this process find this many; ``using``: a file with pids."""

    def source(_: Settings, store: StateStore, *__: object) -> LooksReal:
        made = LooksReal(store.path / "simulated", count)
        if using:
            made.using = lambda: [int(word) for word in using.read_text().split()]
        return made

    vars(module)["open_source"] = source


def tell(using: Path, *pids: int) -> None:
    """Set what the driver says from now on."""
    draft = using.with_suffix(f".{os.getpid()}")
    draft.write_text(" ".join(map(str, pids)))
    draft.replace(using)
