"""Where the control group of a pod is on this machine, whichever way its kubelet names it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from . import cgroup, pod_cgroup

MAX_DEPTH = 3
"""How far down from the root the kubelet's top directory is looked for: ``--cgroup-root`` has few parts."""


class NoHierarchy(OSError):
    """The machine has no cgroup v2 tree, or it is not mounted here."""


class Places:
    """Finds groups in the v2 tree at ``root``. Nodes that share a machine each have their own top directory there."""

    def __init__(self, root: Path | None, mount: Path | None = None) -> None:
        self._root = root
        self._mount = mount
        self._tops: list[Path] = []

    @classmethod
    def of_this_machine(cls, mount: Path | None = None) -> Places:
        """In the tree as it is mounted here, which is looked for when it is needed.

        ``mount``: where the host's ``/sys/fs/cgroup`` is, if not where the kernel says.
        """
        return cls(None, mount)

    @property
    def root(self) -> Path:
        """Top of the tree; raises :class:`NoHierarchy`."""
        if self._root is None:
            self._root = _mounted(self._mount)
        return self._root

    def find(self, uid: str) -> Path | None:
        """The pod's group; None if there is none now.

        Raises :class:`ValueError` for what is no uid of a pod, and :class:`NoHierarchy`.
        """
        found = self._among(self._tops, uid)
        if found is None:
            tops = list(self._search(self.root, MAX_DEPTH))
            if tops != self._tops:
                self._tops = tops
                found = self._among(tops, uid)
        return found

    def _among(self, tops: list[Path], uid: str) -> Path | None:
        for top in tops:
            for relative in pod_cgroup.candidates(top.name, uid):
                group = top / relative
                if (group / "cgroup.procs").exists() and not group.is_symlink():
                    return group
        return None

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


def _mounted(mount: Path | None) -> Path:
    for root in (mount / "unified", mount) if mount else ():
        if (root / "cgroup.controllers").exists():
            return root
    unified = cgroup.mounts().unified
    if unified is None:
        raise NoHierarchy(
            "This machine has no cgroup v2 hierarchy, or it is not mounted here. A node needs one, hybrid or pure, "
            "and the host's /sys/fs/cgroup mounted at the same path in the node plugin."
        )
    return Path(unified.mount)


def pod_of(pid: int) -> str | None:
    """Uid of the pod in whose group ``pid`` is; None outside every pod, and for a process that is gone."""
    try:
        return pod_cgroup.uid_of(cgroup.membership(pid).get("", ""))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
