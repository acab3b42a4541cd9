"""Coordinates the GPUs of one node: finds the pods with a program on several of them, and applies the `gangs` rules.

A program is a process, or several (`programs`). It is on a GPU from its first launch or allocation there on, as
its gate connects then: before anything that it has on one can wait for another.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from jupyter_gpu_node.processes import proc
from jupyter_gpu_node.shares.rules.turns import programs
from jupyter_gpu_node.shares.rules.turns.gangs import Gangs
from jupyter_gpu_node.shares.rules.turns.lease_manager import LeaseManager
from jupyter_gpu_node.shares.rules.turns.rule import Rule

from .peer import Peer

MOST = 8
"""Passes at a time: more follow a moment later, so that other events are handled in between."""
NO_RULE = Rule()


class RuledGpu(Protocol):
    """One GPU, such as a `GpuServer`."""

    @property
    def manager(self) -> LeaseManager:
        """Its shares."""

    def apply_rule(self, rule: Rule) -> None:
        """Apply that rule from now on."""


class ServerProcess(Protocol):
    """A Jupyter server."""

    @property
    def pid(self) -> int:
        """PID as this process sees it."""

    @property
    def start(self) -> int:
        """Clock ticks after boot."""


class MultiGpuCoordinator:
    """Coordinates one node's GPUs, also later ones. While no pod is on several of them, it does nothing.

    ``servers``: those that start notebooks and terminals.
    """

    def __init__(
        self,
        gpu_servers: Mapping[str, RuledGpu],
        clock: Callable[[], int],
        servers: Callable[[], Iterable[ServerProcess]],
    ) -> None:
        self._gpu_servers = gpu_servers
        self._clock = clock
        self._servers = servers
        self._loop = asyncio.get_running_loop()
        self._gangs = Gangs()
        self._connected: dict[str, dict[Peer, Counter[str]]] = {}
        """Connections of each pod and process, by GPU."""
        self._wide: set[str] = set()
        """Pods with processes on several GPUs, whether or not one process is."""
        self._ancestry: dict[Peer, tuple[programs.PidAndStart, ...]] = {}
        """Ancestors of their processes, as first read: a process that loses them later still belongs to its program."""
        self._known: frozenset[programs.PidAndStart] = frozenset()
        """The servers at that moment."""
        self._several: tuple[str, ...] = ()
        """Pods of which one program is on several GPUs."""
        self._rules: Mapping[str, Rule] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._updating = False
        self._again = False

    def connected(self, gpu: str, pod: str, process: Peer) -> None:
        """Note that a process connected."""
        self._connected.setdefault(pod, {}).setdefault(process, Counter())[gpu] += 1
        self._count(pod)

    def disconnected(self, gpu: str, pod: str, process: Peer) -> None:
        """Note that one of a process's connections ended."""
        processes = self._connected[pod]
        there = processes[process]
        there[gpu] -= 1
        if not there[gpu]:
            del there[gpu]
        if not there:
            del processes[process]
            self._ancestry.pop(process, None)
        if not processes:
            del self._connected[pod]
        self._count(pod)

    def _count(self, pod: str) -> None:
        there = self._connected.get(pod, {})
        gpu = next((gpu for gpus in there.values() for gpu in gpus), None)
        if any(gpus.keys() != {gpu} for gpus in there.values()):
            self._wide.add(pod)
            self._find(self._now_known())
        elif pod in self._wide:
            self._wide.discard(pod)
            self._find(self._known)

    def _now_known(self) -> frozenset[programs.PidAndStart]:
        return frozenset((one.pid, one.start) for one in self._servers())

    def _find(self, servers: frozenset[programs.PidAndStart]) -> None:
        self._known = servers
        self._several = tuple(sorted(pod for pod in self._wide if self._is_on_several(self._connected[pod])))

    def _is_on_several(self, processes: Mapping[Peer, Counter[str]]) -> bool:
        if any(len(gpus) > 1 for gpus in processes.values()):
            return True
        ancestries = ((self._ancestry_of(process), gpus) for process, gpus in processes.items())
        return programs.is_on_several((programs.program(ancestry, self._known), gpus) for ancestry, gpus in ancestries)

    def _ancestry_of(self, process: Peer) -> tuple[programs.PidAndStart, ...]:
        if process not in self._ancestry:
            self._ancestry[process] = proc.ancestry(process.pid, process.start)
        return self._ancestry[process]

    def changed(self) -> None:
        """Note that something happened on one of the GPUs."""
        if self._updating:
            self._again = True
        elif self._rules or self._several:
            self._update_rules()

    def stop(self) -> None:
        """Stop: apply no more rules."""
        self._updating = True
        if self._timer:
            self._timer.cancel()

    def _update_rules(self) -> None:
        self._updating = True
        try:
            for _ in range(MOST):
                self._again = False
                self._apply_rule()
                if not self._again:
                    break
        finally:
            self._updating = False
            self._set_timer(self._gangs.wake)

    def _apply_rule(self) -> None:
        if self._wide and (servers := self._now_known()) != self._known:
            self._find(servers)
        managers = {gpu: gpu_server.manager for gpu, gpu_server in self._gpu_servers.items()}
        before, self._rules = self._rules, self._gangs.rules_for(managers, self._several, self._clock())
        for gpu in sorted({*before, *self._rules}):
            if before.get(gpu, NO_RULE) != self._rules.get(gpu, NO_RULE):
                self._gpu_servers[gpu].apply_rule(self._rules.get(gpu, NO_RULE))

    def _set_timer(self, wake: int | None) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._again or wake is not None:
            pause = 0 if self._again or wake is None else max(0, wake - self._clock())
            self._timer = self._loop.call_later(pause / 1e6, self._update_rules)
