"""Control groups of the pods on this machine, whichever way its kubelet names them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from jupyter_gpu_node.devices.rules import pod_cgroup

from . import cgroup

MAX_DEPTH = 3
"""Depth below the root to which the kubelet's top directory is sought: ``--cgroup-root`` has few parts."""


class NoCgroupTree(OSError):
    """The machine has no cgroup v2 tree, or it is not mounted here."""


class PodCgroups:
    """The groups in the v2 tree at ``root``. Nodes that share a machine each have their own top directory there."""

    def __init__(self, root: Path | None, mount: Path | None = None) -> None:
        self._root = root
        self._mount = mount
        self._tops: list[Path] = []

    @classmethod
    def of_this_machine(cls, mount: Path | None = None) -> PodCgroups:
        """Return the groups in the tree as it is mounted here, which is found when first needed.

        ``mount``: where the host's ``/sys/fs/cgroup`` is, if not where the kernel says.
        """
        return cls(None, mount)

    @property
    def root(self) -> Path:
        """Top of the tree; raises `NoCgroupTree`."""
        if self._root is None:
            self._root = _mounted(self._mount)
        return self._root

    def find(self, uid: str) -> Path | None:
        """Return the pod's group; None if there is none now. Of several the one with processes, else the newest.

        A kubelet whose cgroup driver was changed leaves empty groups at the old place. Raises `ValueError` for
        what is no uid of a pod, `NoCgroupTree`, and `OSError` where the pod runs in two of them.
        """
        found = self._among(self._tops, uid)
        if len(found) != 1 or not cgroup.populated(found[0]):
            self._tops = list(self._search(self.root, MAX_DEPTH))
            found = self._among(self._tops, uid)
        running = [group for group in found if cgroup.populated(group)] if len(found) > 1 else found
        if len(running) > 1:
            raise OSError(
                errno.ENOTUNIQ,
                f"Pod {uid} has processes in two control groups ({', '.join(map(str, running))}), "
                "as the kubelet's cgroup driver was changed while it ran: delete it",
            )
        return running[0] if running else max(found, key=_number, default=None)

    def newest(self, uid: str) -> Path | None:
        """Return the group of the pod that was made last: where the next container goes. Raises as `find`."""
        self._tops = list(self._search(self.root, MAX_DEPTH))
        return max(self._among(self._tops, uid), key=_number, default=None)

    def _among(self, tops: list[Path], uid: str) -> list[Path]:
        groups = (top / relative for top in tops for relative in pod_cgroup.candidates(top.name, uid))
        return [group for group in groups if (group / "cgroup.procs").exists() and not group.is_symlink()]

    def _search(self, directory: Path, depth: int) -> Iterator[Path]:
        try:
            names = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir(follow_symlinks=False))
        except OSError:  # removed meanwhile
            return
        for name in names:
            if pod_cgroup.is_top(name):
                yield directory / name
            elif depth > 1:
                yield from self._search(directory / name, depth - 1)


def _number(group: Path) -> int:
    """Return a group's number, which the kernel gives in order of creation; its times say nothing. 0 if it is gone."""
    try:
        return group.stat().st_ino
    except OSError:
        return 0


def _mounted(mount: Path | None) -> Path:
    for root in (mount / "unified", mount) if mount else ():
        if (root / "cgroup.controllers").exists():
            return root
    unified = cgroup.mounts().unified
    if unified is None:
        raise NoCgroupTree(
            "This machine has no cgroup v2 hierarchy, or it is not mounted here. A node needs one, hybrid or pure, "
            "and the host's /sys/fs/cgroup mounted at the same path in the node plugin."
        )
    return Path(unified.mount)


def pod_of(pid: int) -> str | None:
    """Return the uid of the pod in whose group ``pid`` is; None outside every pod, and for a process that is gone."""
    try:
        return pod_cgroup.uid_of(cgroup.membership(pid).get("", ""))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
