"""The check of processes that want a pod's share, by what the kernel says about them and by the pod's record."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path

from jupyter_gpu.backends.local.processes.identity import identify
from jupyter_gpu.backends.local.records.other_pods import OtherPod
from jupyter_gpu_node.devices.enforcement import MARK
from jupyter_gpu_node.processes.rules.process_id import ProcessId
from jupyter_gpu_node.shares.server.peer import Peer

from .process_checks import ProcessChecks


class Clients:
    """The pods that are served, and which processes are theirs."""

    def __init__(self) -> None:
        self._pods: Mapping[str, OtherPod] = {}
        self.checks: dict[int, ProcessChecks] = {}
        """Checks by user."""

    @property
    def pods(self) -> Mapping[str, OtherPod]:
        """Pods by uid."""
        return self._pods

    @pods.setter
    def pods(self, pods: Mapping[str, OtherPod]) -> None:
        self._pods = pods
        for user in self.checks.keys() - {pod.owner for pod in pods.values()}:
            self.checks.pop(user).close()

    def servers(self) -> Iterable[ProcessId]:
        """Return the Jupyter servers."""
        return tuple(pod.record.server for pod in self._pods.values())

    def check(self, peer: Peer, pod: str) -> str:
        """Return the reason that process may not have the share of ``pod``; empty if it may.

        The event loop calls it. Reading from the process is done in a thread for the pod's user, for which the loop
        waits at most 5 ms, and at most once a second if that is not enough (`process_checks`).
        """
        known = self._pods.get(pod)
        if known is None:
            return f"pod {pod} has nothing here"
        if refusal := _of_another_user(peer, known):
            return refusal
        if known.owner not in self.checks:
            self.checks[known.owner] = ProcessChecks()
        refusal = self.checks[known.owner].ask((peer, pod), functools.partial(_check, peer, known))
        return refusal and f"process {peer.pid} {refusal}"

    def pod_of(self, pid: int) -> str | None:
        """Return the pod of that process, as far as that can be found out. To be called in a thread."""
        return next((uid for uid, pod in self._pods.items() if pid in pod.processes.among((pid,))), None)

    def enforced_pod_of(self, pid: int, since: int | None) -> str | None:
        """Return the pod of a process whose turns are enforced, although it never connected. To be called in a thread.

        None for a process that may rightfully lack the gate: one from before ``since`` (clock ticks after boot), or any
        if ``since`` is None.
        """
        found = identify(pid)
        return self.pod_of(pid) if since is not None and found and found.start >= since else None

    def close(self) -> None:
        """Ask nothing more."""
        self.pods = {}


def _of_another_user(peer: Peer, pod: OtherPod) -> str:
    """Refuse a process of another user where there is no control group: any program can set a variable."""
    if pod.processes.group or peer.user in (pod.owner, 0):
        return ""
    return f"process {peer.pid} is of user {peer.user}, and pod {pod.uid} is of user {pod.owner}"


def _check(peer: Peer, pod: OtherPod) -> str:
    """Return the reason to refuse that process; empty if there is none. To be called in a thread."""
    try:
        refusal = _in_its_group(peer, pod) if pod.processes.group else _with_its_mark(peer, pod)
    except OSError as error:
        return f"cannot be checked ({error})"
    return refusal or ("" if peer.alive else "has ended")


def _in_its_group(peer: Peer, pod: OtherPod) -> str:
    return "" if peer.pid in pod.processes.among((peer.pid,)) else f"is not in the control group of pod {pod.uid}"


def _with_its_mark(peer: Peer, pod: OtherPod) -> str:
    """Refuse a process without the pod's mark; if its environment cannot be read, its user alone counts."""
    server = ProcessId(peer.pid, peer.start) == pod.record.server
    if server or peer.pid in pod.processes.among((peer.pid,)) or _hidden(peer.pid):
        return ""
    return f"was not started by pod {pod.uid}: {MARK} is not in its environment"


def _hidden(pid: int) -> bool:
    try:
        with Path(f"/proc/{pid}/environ").open("rb"):
            return False
    except PermissionError:
        return True
    except OSError:
        return False
