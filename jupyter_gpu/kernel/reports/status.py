"""The values that `gpu.status()`, `gpu.resize()` and `gpu.devices` return, with their display in a cell."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING

from jupyter_gpu.model.quantity import MILLI_PER_GPU, format_bytes, format_gpus
from jupyter_gpu.model.sentence import sentence
from jupyter_gpu.model.status import Phase
from jupyter_gpu.model.view import GpuState, Mode, PodGpu, View

if TYPE_CHECKING:  # loaded with the first worker, not when a kernel starts
    from jupyter_gpu.model.pod_worker import PodWorker


_COLUMNS = ("GPU", "Model", "Memory", "Yours", "UUID")


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """One attached GPU. One on another node has no path here, and its worker tells model and memory a little later."""

    uuid: str
    index: int
    """Its number as programs on its node see it."""
    model: str
    memory: int
    """Bytes."""
    milli: int
    """Thousandths of it that are yours."""
    exclusive: bool
    """Whether no other program uses it: no time share, no guest while it rests, none that did not get it from us."""
    path: str
    """Device node as programs open it."""
    simulated: bool = False
    node: str = ""
    """Name of the other node that it is on; empty: this one."""

    @property
    def remote(self) -> bool:
        """Whether it is on another node: cells with ``%%gpu`` and calls of `gpu.run` use it, this process cannot."""
        return bool(self.node)

    @property
    def name(self) -> str:
        """Name to use in a sentence: ``GPU 0``, ``GPU 0 on node2``."""
        return f"GPU {self.index} on {self.node}" if self.node else f"GPU {self.index}"


@dataclass(frozen=True, slots=True, repr=False)
class GpuStatus:
    """Your GPUs at one moment. Amounts are in GPUs, as `gpu.resize` takes them; `view` has them in milli."""

    view: View
    notices: tuple[str, ...] = ()
    """Notes for this kernel: GPUs that it cannot use, for example."""
    at: float = field(default_factory=time.time, compare=False)
    """The moment, in seconds since 1970."""

    @property
    def sentence(self) -> str:
        """The current state as one line of plain words."""
        return sentence(self.view)

    @property
    def phase(self) -> Phase:
        """The state in one word."""
        return self.view.status.phase

    @property
    def settled(self) -> bool:
        """Whether nothing more happens by itself."""
        return self.view.status.settled

    @property
    def requested(self) -> int | float:
        """Amount that was asked for."""
        return gpus(self.view.status.requested)

    @property
    def attached(self) -> int | float:
        """Amount that can be used now."""
        return gpus(self.view.status.attached)

    @property
    def limit(self) -> int | float:
        """The most that you may ask for."""
        return gpus(self.view.limit)

    @property
    def maximum(self) -> int | float | None:
        """The most that all servers of this user may have together; None if no limit of the user is in force."""
        limit = self.view.user_limit
        return None if limit is None or limit.max is None else gpus(limit.max)

    @property
    def limit_source(self) -> str:
        """The origin of `maximum`, such as ``set for group ml by root on 3 May``; empty if there is none."""
        limit = self.view.user_limit
        return "" if limit is None or limit.max is None else limit.source.sentence()

    @property
    def give_back_at(self) -> datetime | None:
        """The time (UTC) at which GPUs above the limit are taken back; None if there are none above it."""
        limit = self.view.user_limit
        if limit is None or limit.give_back_at is None:
            return None
        return datetime.fromtimestamp(limit.give_back_at, UTC)

    @property
    def devices(self) -> tuple[GpuDevice, ...]:
        """The GPUs that can be used now: those of this node by index, then those of others."""
        return devices(self.view)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Further remarks: the user's limit, simulated GPUs, soft mode, and `notices`."""
        kinds = []
        if self.view.simulated:
            kinds.append("These GPUs are simulated.")
        if self.view.mode is Mode.SOFT and self.view.total:
            kinds.append("Soft mode: nothing keeps programs from opening GPUs that are not attached.")
        said = [condition.message for condition in self.view.conditions]
        return tuple(dict.fromkeys([*_limit(self.view), *(said or kinds), *self.notices]))

    def __repr__(self) -> str:
        rows = [f"  {' · '.join(filter(None, row))}" for row in _rows(self.view, self.at)]
        return "\n".join([self.sentence, *rows, *(f"  {remark}" for remark in self.remarks)])

    def _repr_html_(self) -> str:
        table = _table(_rows(self.view, self.at))
        remarks = "".join(f"<p>{escape(remark)}</p>" for remark in self.remarks)
        return f"<p><strong>{escape(self.sentence)}</strong></p>{table}{remarks}"


def gpus(milli: int) -> int | float:
    """Write an amount as people and `gpu.resize` do: ``2000`` → ``2``, ``500`` → ``0.5``."""
    return milli // MILLI_PER_GPU if milli % MILLI_PER_GPU == 0 else milli / MILLI_PER_GPU


def devices(view: View) -> tuple[GpuDevice, ...]:
    """List the GPUs of ``view`` that can be used: those of this node by index, then those of others."""
    usable = sorted((item for item in view.gpus if item.state is GpuState.ATTACHED), key=lambda item: item.gpu.index)
    remote = (one for worker in view.workers if worker.usable for one, health in _remote(worker) if not health)
    return (*(_device(item) for item in usable), *remote)


def _remote(worker: PodWorker) -> Iterator[tuple[GpuDevice, str]]:
    """Yield each GPU of a worker, with the reason for which it does not work."""
    for index, (gpu, health) in enumerate(worker.reasons):
        whole = gpu.milli == MILLI_PER_GPU
        model, memory = (worker.kinds[index].model, worker.kinds[index].memory) if worker.kinds else ("", 0)
        yield GpuDevice(gpu.uuid, index, model, memory, gpu.milli, exclusive=whole, path="", node=worker.node), health


def _device(item: PodGpu) -> GpuDevice:
    gpu = item.gpu
    return GpuDevice(gpu.uuid, gpu.index, gpu.model, gpu.memory, item.milli, item.exclusive, gpu.path, gpu.simulated)


def _rows(view: View, now: float) -> list[tuple[str, ...]]:
    ordered = sorted(view.gpus, key=lambda item: item.gpu.index)
    own = [
        (f"GPU {item.gpu.index}", item.gpu.model, format_bytes(item.gpu.memory), _yours(item, now), item.gpu.uuid)
        for item in ordered
    ]
    return [*own, *(row for worker in view.workers for row in _remote_rows(worker))]


def _remote_rows(worker: PodWorker) -> Iterator[tuple[str, ...]]:
    from jupyter_gpu.model.worker_words import state  # most servers have no workers

    for gpu, health in _remote(worker):
        part = "exclusive" if gpu.exclusive else f"{format_gpus(gpu.milli)} of it"
        now = GpuState.UNHEALTHY if health else "" if worker.usable else state(worker).lower()
        memory = format_bytes(gpu.memory) if gpu.memory else ""
        yield gpu.name, gpu.model, memory, f"{part}, {now}" if now else part, gpu.uuid


def _table(rows: list[tuple[str, ...]]) -> str:
    """Return HTML without the columns in which nothing is known yet, such as the models of a new worker's GPUs."""
    known = [index for index in range(len(_COLUMNS)) if any(row[index] for row in rows)]
    head = "".join(f"<th>{escape(_COLUMNS[index])}</th>" for index in known)
    body = "".join(f"<tr>{''.join(f'<td>{escape(row[index])}</td>' for index in known)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if body else ""


def _limit(view: View) -> list[str]:
    if view.user_limit is None:
        return []
    from jupyter_gpu.model.limit_words import remark

    return [text] if (text := remark(view)) else []


def _yours(item: PodGpu, now: float) -> str:
    part = f"{format_gpus(item.milli)} of it" if item.milli < MILLI_PER_GPU else "exclusive"
    if not item.milli:
        part = "lent while others rest, may pause at any moment"
    if item.keeps:
        part = f"all of it, lent while it rests, keeps {format_bytes(item.keeps)}"
    if item.strangers:
        part = f"{'all of it' if part == 'exclusive' else part}, others use it too"
    if item.idle_since is not None:
        from jupyter_gpu.model.use_class import idle_for  # most GPUs are in use

        return f"{part}, {idle_for(item.idle_since, now)}"
    return part if item.state is GpuState.ATTACHED else f"{part}, {item.state}"
