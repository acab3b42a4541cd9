"""Values of a worker's kernel that another kernel needs: they are brought through the notebook, as bytes."""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import NamedTuple

from jupyter_gpu.model.errors import GpuError
from jupyter_gpu.model.message import gettext
from jupyter_gpu.remote.codec import Chunk
from jupyter_gpu.remote.errors import WorkerLost, WorkerRefused
from jupyter_gpu.remote.newest import Newest
from jupyter_gpu.remote.own_worker import OwnWorker, Seat


class Moved(NamedTuple):
    """Values as one kernel had them."""

    kernel: Seat
    names: tuple[str, ...]
    chunks: list[Chunk]


class NotBroughtError(Exception):
    """The error of a value that cannot be brought: its name, where it is, and the reason."""

    def __init__(self, name: str, where: str, reason: str) -> None:
        super().__init__(name, where, reason)
        self.name, self.where, self.reason = name, where, reason


def bring(worker: OwnWorker, newest: Newest[Seat], names: Collection[str], *, alone: bool) -> list[Moved]:
    """Return values from the kernels that have the newest ones, once these rest. Raises `NotBroughtError`.

    ``alone``: the caller is the only one of its thread that shows output.
    """
    by_kernel: dict[Seat, list[str]] = {}
    for name in sorted(names):
        by_kernel.setdefault(newest.holders(name)[0], []).append(name)
    return [_from(worker, kernel, group, alone) for kernel, group in by_kernel.items()]


def _from(worker: OwnWorker, kernel: Seat, names: list[str], alone: bool) -> Moved:
    where, chunks = kernel.where, list[Chunk]()
    for name in names:
        print(gettext("%1 comes from the worker on %2, which has the newest value.", name, where), file=sys.stderr)
    try:
        with worker.lent(kernel) as connection:
            listener = kernel.shown.listener(alone=alone) if kernel.shown is not None else None
            chunks, failed, _ = connection.pull(names, listener, host_copies=True)
    except (WorkerLost, WorkerRefused, GpuError) as error:
        failed = dict.fromkeys(names, str(error))
    for name in names:
        if name in failed:
            raise NotBroughtError(name, where, failed[name])
        if not any(name in chunk.names for chunk in chunks):
            raise NotBroughtError(name, where, gettext("it is no longer there"))
    return Moved(kernel, tuple(names), chunks)
