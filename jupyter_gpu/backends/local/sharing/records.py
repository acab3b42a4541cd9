"""Reads the records for the arbiter, without their lock: each is replaced in one step, and it writes none."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from jupyter_gpu.backends.local.records.other_pods import OtherPod, read_others
from jupyter_gpu.backends.local.records.store import Session

from . import files

_POD = re.compile(r"[0-9a-f]{32}")
_LINK = re.compile(r"[0-9a-f]{16}")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def read_pods(pods: Path, before: Mapping[str, OtherPod]) -> dict[str, OtherPod] | None:
    """Return all pods of this boot by uid, as they are now; None if the folder of their records is gone.

    What was known ``before`` stands for a record that is damaged: its server writes it again, or its last process ends.
    """
    try:
        folder = os.open(pods, _FOLDER)
    except FileNotFoundError:
        return None
    try:
        contents = Session(folder).read()
    finally:
        os.close(folder)
    found = {pod.uid: pod for pod in read_others(contents.entries, "")}
    return {uid: before[uid] for uid in contents.damaged if uid in before and uid in contents.sockets} | found


@dataclass(frozen=True, slots=True)
class Traces:
    """The traces of pods: names of folders of ours, and of links to the folders of sockets."""

    folders: frozenset[str] = frozenset()
    links: frozenset[str] = frozenset()


def traces(state: Path, home: Path) -> Traces:
    """Find the traces as they are now; none of what cannot be read."""
    return Traces(names(home / files.OWN / "..", _POD), names(state / files.GATES, _LINK))


def tidy(state: Path, home: Path, found: Traces, known: Collection[str]) -> None:
    """Remove what is left of pods that are gone; ``known``: pods that had a record after ``found`` was read.

    The folder of the links belongs to the user that made it, who may put anything there: only links of ours are
    removed, and none is followed.
    """
    beginnings = {pod[: files.SHORT] for pod in known}
    for name in found.folders - set(known):
        shutil.rmtree(home / name, ignore_errors=True)
    with contextlib.suppress(OSError):
        gates = os.open(state / files.GATES, _FOLDER)
        try:
            for name in found.links - beginnings:
                with contextlib.suppress(OSError):
                    if files.is_our_link(os.stat(name, dir_fd=gates, follow_symlinks=False)):
                        os.unlink(name, dir_fd=gates)
        finally:
            os.close(gates)


def sweep(home: Path, served: Collection[tuple[str, str]]) -> None:
    """Remove the sockets that an earlier arbiter left, but for those of ``served`` pods and GPUs.

    A program that had a whole GPU goes on while nothing listens at that very socket: not beside the GPU's next owner.
    """
    keep = {(pod, f"{gpu}.sock") for pod, gpu in served}
    for pod in names(home / files.OWN / "..", _POD):
        with contextlib.suppress(OSError):
            folder = os.open(home / pod / "shares", _FOLDER)
            try:
                for name in os.listdir(folder):  # noqa: PTH208 - of a descriptor
                    if name.endswith(".sock") and (pod, name) not in keep:
                        with contextlib.suppress(OSError):
                            os.unlink(name, dir_fd=folder)
            finally:
                os.close(folder)


def names(folder: Path, form: re.Pattern[str]) -> frozenset[str]:
    """List the names of this form in a folder that is no link."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, _FOLDER)
        try:
            return frozenset(name for name in os.listdir(descriptor) if form.fullmatch(name))  # noqa: PTH208
        finally:
            os.close(descriptor)
    return frozenset()
