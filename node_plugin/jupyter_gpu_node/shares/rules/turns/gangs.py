"""Programs that use several GPUs at once: which of them may have turns, so that none waits in a circle. Pure.

Kernels of one program can wait for each other across GPUs, as those of NCCL do: each ends only once its peers run on
the other GPUs. Two such programs that have one GPU each, and each wait for the GPU of the other, would wait for ever.
So programs that have a GPU in common, directly or through others, are a group, of which one at a time has turns:

- It begins when it could have every GPU that it wants: no share outside the group comes before it there. If it has
  waited for long, a claim to each GPU is enough.
- Of several that could begin, the one that had least for its milli does; after a lease it gives way to such a one.
- While none has turns, a share using a GPU that a member waits for pays, if that member has a right to all it awaits.
- From then on it comes first on all its GPUs: else its work on one GPU would wait for another GPU, at its cost.
- Where it has no work, shares outside the group have their turns.
- Asked for one of its GPUs, it gives all of them back. What it has on one may wait for a launch on another that it has
  given back already: it gets that for one launch at a time, until nothing waits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from .demand import Demand
from .rule import Rule

PATIENCE = 200_000
"""Microseconds for which one waits until it comes first on all its GPUs at the same moment."""
PAUSE = 2_000
"""Microseconds in which what was asked back is given back if it waits for nothing."""
SAVED = 200_000
"""Lead over the others of a pod that comes back from rest: microseconds of whole GPUs."""
RETRY = 1_000
"""Microseconds between two updates where time alone changes which pod may begin."""

Demands = Mapping[str, Mapping[str, Demand]]
"""Demands by pod and GPU."""


class GangGpu(Protocol):
    """One GPU, such as a `LeaseManager`."""

    @property
    def longest_turn(self) -> int:
        """Longest turn while others wait, in microseconds."""

    def demand(self, pod: str) -> Demand | None:
        """Return that pod's state on this GPU; None: it shares nothing here."""

    def fits(self, pod: str, members: Collection[str], now: int, *, strictly: bool) -> bool:
        """Tell whether it comes before all non-members: by right, or ``strictly`` in the present order."""


class Gangs:
    """The gangs of one node: programs that use several of its GPUs at once."""

    def __init__(self) -> None:
        self.wake: int | None = None
        """Time to update the rules if nothing else happens; None: never."""
        self._open: dict[str, int] = {}
        """Start times of the pods that have turns: one of each group."""
        self._since: dict[str, int] = {}
        """Times when pods that wait for all their turns began to wait."""
        self._seen: dict[str, tuple[Mapping[str, Demand], int]] = {}
        """Each pod's state, and since when it is so."""
        self._had: dict[str, int] = {}
        """GPU time of each pod in its turns, as if it had all milli: the one with least comes first."""
        self._now = 0
        self._active: set[str] = set()
        """Pods that had or wanted turns at the last update."""

    def rules_for(self, by_gpu: Mapping[str, GangGpu], pods: Iterable[str], now: int) -> Mapping[str, Rule]:
        """Return the rules from now on, by GPU; others have none. ``pods``: those with a program on several GPUs."""
        every_demand = {
            pod: {gpu: demand for gpu, one in by_gpu.items() if (demand := one.demand(pod))} for pod in pods
        }
        demands = {pod: found for pod, found in every_demand.items() if len(found) > 1 and steps(found)}
        self._open = {pod: when for pod, when in self._open.items() if pod in demands}
        self._charge(demands, now)
        self._seen = {pod: self._changed(pod, found, now) for pod, found in demands.items()}
        waiting = {pod for pod, found in demands.items() if pod not in self._open and wants(found)}
        self._since = {pod: self._since.get(pod, now) for pod in waiting}
        self.wake, self._now = None, now
        rules: dict[str, Rule] = {}
        for group in groups(demands):
            gpus = {gpu for found in group.values() for gpu in found}
            rules.update(dict.fromkeys(gpus, self._rule(group, by_gpu, now)))
            rules.update(self._steps(group, now))
        return rules

    def _rule(self, group: Demands, by_gpu: Mapping[str, GangGpu], now: int) -> Rule:
        """Return the rule for all GPUs of one group."""
        group_pods = frozenset(group)
        fit = [pod for pod in sorted(group.keys() & self._since) if self._comes_first(pod, group, by_gpu, now)]
        first = min(fit, key=lambda pod: self._had[pod], default=None)
        now_open = sorted(group_pods & self._open.keys())
        for pod in now_open:
            if len(now_open) > 1 or self._ends(pod, first, group, by_gpu, now):  # several: two groups became one
                del self._open[pod]
        free = not group_pods & self._open.keys() and not any(holds(found) for found in group.values())
        if first is not None and free:
            self._open[first] = now
            fit.remove(first)
        if any(wants(group[pod]) for pod in group_pods - self._open.keys()):
            self.wake = now + RETRY
        for pod in group_pods & self._open.keys():
            return Rule(pod, barred=group_pods - {pod}, contesting=frozenset(fit))
        entitled = [pod for pod in group if pod in self._since and self._fits(pod, group, by_gpu, now, strictly=False)]
        return Rule(barred=group_pods, contesting=frozenset(entitled))

    def _ends(self, pod: str, other: str | None, group: Demands, by_gpu: Mapping[str, GangGpu], now: int) -> bool:
        """Tell whether ``pod``, which has turns, gets no more: ``other`` is due, or a GPU was asked back from it."""
        if not goes_on(group[pod]):
            return True
        if other is None or now < self._open[pod] + max(by_gpu[gpu].longest_turn for gpu in group[pod]):
            return False
        return self._had[other] < self._had[pod]

    def _steps(self, group: Demands, now: int) -> Mapping[str, Rule]:
        """Return the rules of GPUs on which a pod that gives back has a launch to make, or is making it."""
        group_pods = frozenset(group)
        rules: dict[str, Rule] = {}
        for pod in sorted(group.keys() - self._open.keys()):
            found = group[pod]
            stuck = holds(found) and now >= self._seen[pod][1] + PAUSE
            for gpu, demand in found.items():
                if demand.wants and stuck and gpu not in rules:
                    rules[gpu] = Rule(pod, once=True, barred=group_pods - {pod})
                elif demand.once and sum(other.holds for other in found.values()) > 1:
                    rules[gpu] = Rule(once=True, barred=group_pods)
        return rules

    def _comes_first(self, pod: str, group: Demands, by_gpu: Mapping[str, GangGpu], now: int) -> bool:
        return self._fits(pod, group, by_gpu, now, strictly=now - self._since[pod] < PATIENCE)

    def _fits(self, pod: str, group: Demands, by_gpu: Mapping[str, GangGpu], now: int, *, strictly: bool) -> bool:
        there = [(gpu, strictly and demand.wants) for gpu, demand in group[pod].items() if not demand.holds]
        return all(by_gpu[gpu].fits(pod, group, now, strictly=order) for gpu, order in there)

    def _charge(self, demands: Demands, now: int) -> None:
        """Charge the time since the last update to the pods that had turns. A pod at rest saves at most ``SAVED``."""
        for group in groups(demands):
            for pod, found in group.items():
                if pod in self._active and (pod in self._open or holds(found)):
                    milli = max(1, min(demand.milli for demand in found.values()))
                    self._had[pod] = self._had.get(pod, 0) + (now - self._now) * 1000 // milli
            least = min((self._had[pod] for pod in group if pod in self._had and pod in self._active), default=0)
            for pod in group.keys() - self._active:
                self._had[pod] = max(self._had.get(pod, least), least - SAVED)
        self._had = {pod: self._had[pod] for pod in demands}
        self._active = {pod for pod, found in demands.items() if pod in self._open or holds(found) or wants(found)}

    def _changed(self, pod: str, found: Mapping[str, Demand], now: int) -> tuple[Mapping[str, Demand], int]:
        before = self._seen.get(pod)
        return before if before and before[0] == found else (found, now)


def groups(demands: Demands) -> list[Demands]:
    """Group the pods that have any GPU in common, directly or through others."""
    found: list[dict[str, Mapping[str, Demand]]] = []
    for pod, gpus in demands.items():
        joined = {pod: gpus}
        apart = []
        for group in found:
            if any(gpus.keys() & others.keys() for others in group.values()):
                joined |= group
            else:
                apart.append(group)
        found = [*apart, joined]
    return list(found)


def wants(found: Mapping[str, Demand]) -> bool:
    """Tell whether it waits for any GPU."""
    return any(demand.wants for demand in found.values())


def holds(found: Mapping[str, Demand]) -> bool:
    """Tell whether it has any GPU."""
    return any(demand.holds for demand in found.values())


def steps(found: Mapping[str, Demand]) -> bool:
    """Tell whether all its gates know a lease for one launch: without, what waits elsewhere could not be ended."""
    return all(demand.steps for demand in found.values())


def goes_on(found: Mapping[str, Demand]) -> bool:
    """Tell whether it has work, and no GPU was asked back from it."""
    return (holds(found) or wants(found)) and not any(demand.asked for demand in found.values())
