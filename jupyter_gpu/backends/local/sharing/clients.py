"""Whose process is it that wants a pod's share: by what the kernel says of it, and the record of the pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jupyter_gpu_node.enforcement import MARK
from jupyter_gpu_node.shares.identity import Peer

from ..neighbours import Neighbour
from ..processes import Process


@dataclass(slots=True)
class Clients:
    """The pods that are served, and which processes are theirs."""

    pods: Mapping[str, Neighbour] = field(default_factory=dict)

    def servers(self) -> Iterable[Process]:
        """The Jupyter servers."""
        return tuple(pod.record.server for pod in self.pods.values())

    def check(self, peer: Peer, pod: str) -> str:
        """Why that process may not have the share of ``pod``; empty if it may."""
        known = self.pods.get(pod)
        if known is None:
            return f"pod {pod} has nothing here"
        refusal = _in_its_group(peer, known) if known.place.group else _with_its_mark(peer, known)
        return refusal or ("" if peer.alive else f"process {peer.pid} has ended")

    def pod_of(self, pid: int) -> str | None:
        """Whose that process is, as far as it can be told."""
        return next((uid for uid, pod in self.pods.items() if pid in pod.place.among((pid,))), None)


def _in_its_group(peer: Peer, pod: Neighbour) -> str:
    if peer.pid in pod.place.among((peer.pid,)):
        return ""
    return f"process {peer.pid} is not in the control group of pod {pod.uid}"


def _with_its_mark(peer: Peer, pod: Neighbour) -> str:
    """Anybody can set a variable, so the user counts as well; a process that cannot be read is told by it alone."""
    if peer.user not in (pod.owner, 0):
        return f"process {peer.pid} is of user {peer.user}, and pod {pod.uid} is of user {pod.owner}"
    server = Process(peer.pid, peer.start) == pod.record.server
    if server or peer.pid in pod.place.among((peer.pid,)) or _hidden(peer.pid):
        return ""
    return f"process {peer.pid} was not started by pod {pod.uid}: {MARK} is not in its environment"


def _hidden(pid: int) -> bool:
    try:
        with Path(f"/proc/{pid}/environ").open("rb"):
            return False
    except PermissionError:
        return True
    except OSError:
        return False
