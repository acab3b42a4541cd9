"""Check that the container runtime puts pods' processes into the cgroup v2 tree, where device rules hold.

On a node with v1 beside v2 a runtime may know v1 alone (runc before 1.1, crun). The kubelet then makes the pod's group
in both trees, and that in v2 stays empty: rules on it guard nothing.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterable
from pathlib import Path

from jupyter_gpu_node.devices.rules import pod_cgroup

from . import cgroup
from .pod_cgroups import PodCgroups


class HierarchyCheck:
    """The check of one node that pods' processes join the v2 tree.

    ``legacy``: top of the v1 tree of the ``devices`` controller; None: there is none, so no process can be astray.
    """

    def __init__(self, legacy: Path | None) -> None:
        self._legacy = PodCgroups(legacy) if legacy else None

    @classmethod
    def of_this_machine(cls, mount: Path | None = None) -> HierarchyCheck:
        """Return the check for this machine. ``mount``: the host's ``/sys/fs/cgroup``, if not where the kernel says."""
        if mount and (mount / "devices" / "cgroup.procs").exists():
            return cls(mount / "devices")
        devices = cgroup.mounts().devices
        return cls(Path(devices.mount) if devices else None)

    def check(self, uids: Iterable[str]) -> None:
        """Check this process, and all of these pods. Raises `OSError` with a text for people."""
        if pod_cgroup.astray(cgroup.membership()):
            raise _apart("the node plugin's own pod")
        for uid in uids:
            self.check_pod(uid)

    def check_pod(self, uid: str) -> None:
        """Check a pod: raises `OSError` if a process of it is not where rules hold for it."""
        group = self._legacy.find(uid) if self._legacy else None
        for pid in cgroup.processes(group) if group else ():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                if pid and pod_cgroup.astray(cgroup.membership(pid)) == uid:
                    raise _apart(f"pod {uid}")


def _apart(what: str) -> OSError:
    return OSError(
        errno.ENOTSUP,
        f"The container runtime keeps the processes of {what} out of the cgroup v2 tree, where device rules hold: "
        "it must be runc 1.1 or newer, or the node must have cgroup v2 alone",
    )
