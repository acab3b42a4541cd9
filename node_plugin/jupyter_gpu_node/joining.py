"""Whether the container runtime puts the processes of pods into the cgroup v2 tree, where device rules hold.

On a node with v1 beside v2 a runtime may know v1 alone (runc before 1.1, crun). The kubelet then makes the pod's group
in both trees, and that in v2 stays empty: rules on it guard nothing.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterable, Mapping
from pathlib import Path

from . import cgroup, pod_cgroup
from .places import Places


def astray(groups: Mapping[str, str]) -> str | None:
    """The pod of a process with these groups by controller (v2 under ``""``) if its v2 group is not of that pod. Pure.

    None: it is where it should be, or in no pod.
    """
    inside = pod_cgroup.uid_of(groups.get("", ""))
    pods = (pod_cgroup.uid_of(path) for controller, path in sorted(groups.items()) if controller)
    return next((uid for uid in pods if uid and uid != inside), None)


class Joining:
    """``legacy``: top of the v1 tree of the ``devices`` controller; None: there is none, so nothing can be astray."""

    def __init__(self, legacy: Path | None) -> None:
        self._legacy = Places(legacy) if legacy else None

    @classmethod
    def of_this_machine(cls, mount: Path | None = None) -> Joining:
        """``mount``: where the host's ``/sys/fs/cgroup`` is, if not where the kernel says."""
        if mount and (mount / "devices" / "cgroup.procs").exists():
            return cls(mount / "devices")
        devices = cgroup.mounts().devices
        return cls(Path(devices.mount) if devices else None)

    def check(self, uids: Iterable[str]) -> None:
        """Of this process, and of all of these pods. Raises :class:`OSError` in words."""
        if astray(cgroup.membership()):
            raise _apart("the node plugin's own pod")
        for uid in uids:
            self.check_pod(uid)

    def check_pod(self, uid: str) -> None:
        """Raises :class:`OSError` if a process of that pod is not where rules hold for it."""
        group = self._legacy.find(uid) if self._legacy else None
        for pid in cgroup.processes(group) if group else ():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                if pid and astray(cgroup.membership(pid)) == uid:
                    raise _apart(f"pod {uid}")


def _apart(what: str) -> OSError:
    return OSError(
        errno.ENOTSUP,
        f"The container runtime keeps the processes of {what} out of the cgroup v2 tree, where device rules hold: "
        "it must be runc 1.1 or newer, or the node must have cgroup v2 alone",
    )
