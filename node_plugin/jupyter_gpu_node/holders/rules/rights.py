"""Rights to have a GPU open, and which processes count as holders of one that was taken away. Pure.

Four kinds of processes use a GPU: those of a pod, our own helpers, those that the administrator listed, and the rest of
the machine. A process of the rest that shares a namespace with a container of a managed pod has escaped from it; any
other is a program of the machine's administrator, which is reported, not ended.

The same rules hold in a cluster and on one machine. The two differ in how they find out which pod a process belongs to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from jupyter_gpu_node.processes.rules.process_id import ProcessId


class HolderKind(StrEnum):
    """The kinds of processes that have a GPU open."""

    RIGHTFUL = "rightful"
    STRANGER = "stranger"
    """A program of the machine that is not listed: it is reported, not ended."""
    INTRUDER = "intruder"
    """A process without a right: it is ended."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """One process that has a GPU open."""

    pid: int
    start: int
    command: str
    pod: str | None = None
    """UID of the pod whose control group it is in; None outside every pod."""
    exempt: bool = False
    """A helper of ours, which only asks the driver, or a program that may have any GPU open wherever it runs."""
    escaped: bool = False
    """Outside every pod, but with a namespace of a container of a managed pod."""

    @property
    def process(self) -> ProcessId:
        """Its identity."""
        return ProcessId(self.pid, self.start)


@dataclass(frozen=True, slots=True)
class Rights:
    """The rights of pods and programs to have GPUs open."""

    pods: Mapping[str, Collection[str] | None] = field(default_factory=dict)
    """UUIDs that each managed pod has or is giving back, by the pod's uid; None: not known now, so nothing is wrong."""
    trusted_pods: Collection[str] = ()
    """Uids of pods of the system's namespaces."""
    trusted_names: Collection[str] = ()
    """Programs outside every pod."""


@dataclass(frozen=True, slots=True)
class ReleasingPod:
    """A pod that gives GPUs back, and the programs that used them before it had them."""

    uid: str
    began: int = 0
    """Start of the pod, in clock ticks after boot: older programs of the machine do not have a GPU from it."""
    outside: Collection[ProcessId] = ()
    """Processes that had the GPUs open when the pod was granted them."""

    def found_in_use(self, suspect: Suspect) -> bool:
        """Tell whether the process used the GPU before the pod had it."""
        older = suspect.pod is None and not suspect.escaped and suspect.start < self.began
        return older or suspect.process in self.outside


def classify(suspect: Suspect, uuid: str, rights: Rights) -> HolderKind:
    """Return the kind of ``suspect``, which has ``uuid`` open."""
    if suspect.exempt:
        return HolderKind.RIGHTFUL
    if suspect.pod is not None:
        if suspect.pod in rights.trusted_pods:
            return HolderKind.RIGHTFUL
        allowed = rights.pods.get(suspect.pod, ())
        return HolderKind.RIGHTFUL if allowed is None or uuid in allowed else HolderKind.INTRUDER
    if suspect.escaped:
        return HolderKind.INTRUDER
    return HolderKind.RIGHTFUL if suspect.command in rights.trusted_names else HolderKind.STRANGER


def holders(
    suspects: Iterable[Suspect], uuid: str, pod: ReleasingPod, rights: Rights
) -> tuple[tuple[Suspect, bool], ...]:
    """Return the processes that keep ``pod`` from releasing ``uuid``, each with whether it is foreign to the pod."""
    own_or_wrong = (
        one
        for one in suspects
        if one.pod == pod.uid or not (pod.found_in_use(one) or classify(one, uuid, rights) is HolderKind.RIGHTFUL)
    )
    return tuple((suspect, suspect.pod != pod.uid) for suspect in own_or_wrong)
