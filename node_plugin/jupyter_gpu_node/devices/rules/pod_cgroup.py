"""Names of pods' control groups as the kubelet makes them, read and written. Pure.

| driver   | pod                                                                       | its containers                        |
|----------|---------------------------------------------------------------------------|---------------------------------------|
| cgroupfs | ``kubepods/burstable/pod<uid>``                                           | ``<id>``, with CRI-O ``crio-<id>``    |
| systemd  | ``kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice`` | ``cri-containerd-<id>.scope``, ``crio-<id>.scope`` |

``besteffort`` instead of ``burstable``, and for guaranteed pods neither. systemd's names have ``_`` where the uid has
``-``. A ``--cgroup-root`` comes before all of it, with systemd in each name as well: ``root.slice/root-kubepods.slice``.
"""  # fmt: skip  # noqa: E501

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,99}")
_TOP = re.compile(r"kubepods|(?:[^/]+-)?kubepods\.slice")
_SLICE = re.compile(r"(?:.+-)?kubepods(?:-burstable|-besteffort)?-pod(?P<uid>[A-Za-z0-9][A-Za-z0-9_]{0,99})\.slice")
_PLAIN = re.compile(r"pod(?P<uid>[A-Za-z0-9][A-Za-z0-9-]{0,99})")
_PARENTS = ("kubepods", "burstable", "besteffort", "..")  # "..": seen from inside a control group namespace
_CLASSES = ("", "burstable", "besteffort")


def valid(uid: str) -> bool:
    """Tell whether ``uid`` can be that of a pod, and so part of a path."""
    return _UID.fullmatch(uid) is not None


def is_top(name: str) -> bool:
    """Tell whether a directory of this name can be the one below which the kubelet keeps all pods."""
    return _TOP.fullmatch(name) is not None


def candidates(top: str, uid: str) -> tuple[PurePosixPath, ...]:
    """Return the pod's possible paths below ``top``, for each class of service; ValueError if ``uid`` is no pod's."""
    if not valid(uid):
        raise ValueError(f"{uid[:120]!r} is not the uid of a pod.")
    if not top.endswith(".slice"):
        return tuple(PurePosixPath(name, f"pod{uid}") for name in _CLASSES)
    base = top.removesuffix(".slice")
    found = []
    for name in _CLASSES:
        inner = f"{base}-{name}" if name else base
        directory = PurePosixPath(f"{inner}.slice") if name else PurePosixPath()
        found.append(directory / f"{inner}-pod{uid.replace('-', '_')}.slice")
    return tuple(found)


def uid_of(path: str) -> str | None:
    """Return the uid of the pod that a group in ``/proc/<pid>/cgroup`` belongs to; None outside every pod.

    The outermost name counts: inside its own group a pod may name groups as it likes.
    """
    parts = PurePosixPath(path).parts
    for parent, part in zip(("", *parts), parts, strict=False):
        if match := _SLICE.fullmatch(part):
            return match["uid"].replace("_", "-")
        if parent in _PARENTS and (match := _PLAIN.fullmatch(part)):
            return match["uid"]
    return None


def astray(groups: Mapping[str, str]) -> str | None:
    """Return the pod of a process with these groups by controller (v2: ``""``) if its v2 group is not of that pod.

    None: it is where it should be, or in no pod.
    """
    inside = uid_of(groups.get("", ""))
    pods = (uid_of(path) for controller, path in sorted(groups.items()) if controller)
    return next((uid for uid in pods if uid and uid != inside), None)
