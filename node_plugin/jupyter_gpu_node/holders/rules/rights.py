"""Rights to have a GPU open, and which processes count as holders of one that was taken away. Pure.

Four kinds of processes use a GPU: those of a pod, our own helpers, those that the administrator listed, and the rest of
the machine. A process of the rest that shares a namespace with a container of a managed pod has escaped from it; any
other is a program of the machine's administrator, which is reported, not ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Verdict(StrEnum):
    """The verdict on a process that has a GPU open."""

    FINE = "fine"
    STRANGE = "strange"
    """A program of the machine that is not listed: reported, not touched."""
    INTRUDER = "intruder"
    """Ended."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """One process that has a GPU open."""

    pid: int
    start: int
    command: str
    pod: str | None = None
    """Uid of the pod in whose group it is; None outside every pod."""
    own_helper: bool = False
    """A helper of this node plugin."""
    escaped: bool = False
    """Outside every pod, but with a namespace of a container of a managed pod."""


@dataclass(frozen=True, slots=True)
class Rights:
    """The rights of pods and programs to have GPUs open."""

    pods: Mapping[str, Collection[str] | None] = field(default_factory=dict)
    """By uid of a managed pod the uuids that it has or is giving back; None: not known now, so nothing is wrong."""
    trusted_pods: Collection[str] = ()
    """Uids of pods of the system's namespaces."""
    trusted_names: Collection[str] = ()
    """Programs outside every pod."""


def judge(suspect: Suspect, uuid: str, rights: Rights) -> Verdict:
    """Return the verdict on ``suspect``, which has ``uuid`` open."""
    if suspect.own_helper:
        return Verdict.FINE
    if suspect.pod is not None:
        if suspect.pod in rights.trusted_pods:
            return Verdict.FINE
        allowed = rights.pods.get(suspect.pod, ())
        return Verdict.FINE if allowed is None or uuid in allowed else Verdict.INTRUDER
    if suspect.escaped:
        return Verdict.INTRUDER
    return Verdict.FINE if suspect.command in rights.trusted_names else Verdict.STRANGE


def holders(
    suspects: Iterable[Suspect], uuid: str, pod: str, began: int, rights: Rights
) -> tuple[tuple[Suspect, bool], ...]:
    """Return the processes that keep ``pod`` from releasing ``uuid``, each with whether it is foreign to the pod.

    Programs of the machine that started before the pod (``began``, clock ticks after boot) had the GPU by themselves.
    """
    found = []
    for suspect in suspects:
        if suspect.pod == pod:
            found.append((suspect, False))
            continue
        rightful = suspect.pod is not None and judge(suspect, uuid, rights) is Verdict.FINE
        older = suspect.pod is None and not suspect.escaped and suspect.start < began
        listed = suspect.pod is None and judge(suspect, uuid, rights) is Verdict.FINE
        if not (rightful or older or listed):
            found.append((suspect, True))
    return tuple(found)
