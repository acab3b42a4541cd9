"""Conditions that a user in a pod should know, beside the GPUs themselves, in plain words; pure."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_gpu.model import strict
from jupyter_gpu.model.view import Condition

MAX_MESSAGE = 1024


def simulated(count: int) -> Condition:
    """Say that the GPUs are not real."""
    one = "The GPU of this node is simulated: it can be opened and shows load, but computes nothing."
    all_of = f"All {count} GPUs of this node are simulated: they can be opened and show load, but compute nothing."
    return _condition("Simulated", one if count == 1 else all_of)


def not_answered() -> Condition:
    """Say that the node has not answered yet."""
    return _condition("LookingForGpus", "Looking for the GPUs of this pod's node.")


def no_gpu() -> Condition:
    """Say that the node has no GPU."""
    return _condition("NoGpu", "The node of this pod has no GPU that can be used. Start on another node.")


def share_not_enforced(why: str) -> Condition:
    """Say that the pod has a time share that is not enforced."""
    return _condition(
        "ShareNotEnforced",
        "This server has a share of a GPU. Shares are counted, so that a GPU is never promised to more users than it "
        f"can serve, but running time is not limited here, as {why}: another user of the same GPU can slow you down.",
    )


def share_taken(why: str) -> Condition:
    """Say that a share was taken away by the node."""
    return _condition("ShareTaken", f"A share of a GPU is not yours any more. {why}")


def node_unreachable(why: str) -> Condition:
    """Say that the node plugin does not answer."""
    return _condition(
        "NodePluginUnreachable",
        f"The GPU program of this node does not answer ({why}), so what you see may be old. You keep the GPUs you "
        "have; a request is recorded, and waits until it is back. It is tried again by itself.",
    )


def cluster_unreachable(why: str) -> Condition:
    """Say that the API server cannot be reached."""
    return _condition(
        "ClusterUnreachable",
        f"The cluster can't be heard now, so what you see may be old and requests can't be recorded ({why}). You keep "
        "the GPUs you have. It is tried again by itself.",
    )


def request_unreadable(why: str) -> Condition:
    """Say that the request is not valid."""
    return _condition("InvalidRequest", f"The request that is recorded in this pod is not understood. Ask anew. {why}")


def state_unreadable(why: str) -> Condition:
    """Say that the cluster's own records are damaged."""
    return _condition("StateDamaged", f"What the cluster recorded of your GPUs is not understood: {why}")


def ending() -> Condition:
    """Say that the pod is being deleted."""
    return _condition("PodEnding", "This pod is being deleted. Its GPUs are given back when its programs have ended.")


def gone() -> Condition:
    """Say that the pod was deleted."""
    return _condition("PodGone", "The cluster does not know this pod any more: nothing can be changed.")


def workers_unreadable(why: str) -> Condition:
    """Say that the cluster's records of the pod's workers are damaged."""
    return _condition(
        "WorkersDamaged", f"What the cluster recorded of your GPUs on other nodes is not understood: {why}"
    )


def worker_image(node: str, said: str) -> Condition:
    """Say that the image of a worker cannot be used on its node."""
    return _worker(
        "WorkerImage",
        f"The worker on {node} does not start: the image of this server can't be pulled there. Ask your administrator "
        f"to let {node} pull it.",
        said,
    )


def worker_quota(node: str, said: str) -> Condition:
    """Say that the namespace's quota leaves no room for a worker."""
    return _worker(
        "WorkerQuota",
        f"The worker on {node} does not start: the quota of this server's namespace leaves no room for it. End what "
        "you no longer need, or ask your administrator for more.",
        said,
    )


def worker_security(node: str, said: str) -> Condition:
    """Say that Pod Security refuses a worker."""
    return _worker(
        "WorkerSecurity",
        f"The worker on {node} does not start: Pod Security refuses it. A server that runs as root can't have workers. "
        "Ask your administrator to run it as another user, or to allow workers in its namespace.",
        said,
    )


def worker_refused(node: str, said: str) -> Condition:
    """Say that Kubernetes refuses a worker."""
    return _worker(
        "WorkerRefused", f"The worker on {node} does not start: Kubernetes refuses it. Ask your administrator.", said
    )


def worker_failed(node: str, said: str) -> Condition:
    """Say that a worker does not run."""
    return _worker(
        "WorkerFailed",
        f"The worker on {node} ended. What its programs had in memory is lost. If it happens again and again, ask "
        "your administrator.",
        said,
    )


def worker_silent(node: str) -> Condition:
    """Say that a worker runs and has no key."""
    return _condition(
        "WorkerSilent",
        f"The worker on {node} runs, and its GPUs can't be used yet: its key has not come for more than 10 seconds. If "
        f"it stays so, ask your administrator whether the node plugin of {node} runs. GPUs of your own node are not "
        "affected.",
    )


def controller_silent(node: str) -> Condition:
    """Say that nobody creates a worker."""
    return _condition(
        "WorkerControllerSilent",
        f"The worker on {node} has not been started for more than 10 seconds: the cluster's worker controller says "
        "nothing. If it stays so, ask your administrator whether it runs. Workers that are there go on, and so do GPUs "
        "of your own node.",
    )


def worker_holds(node: str, gpus: int, programs: Sequence[str]) -> Condition:
    """Say that programs of a worker have GPUs open that were given back."""
    what = "A GPU" if gpus == 1 else f"{gpus} GPUs"
    return _condition(
        "WorkerHolds",
        f"{what} of {node}, given back, {'is' if gpus == 1 else 'are'} still open in a program of the worker there: "
        f"{', '.join(programs)}. Nobody has {'it' if gpus == 1 else 'them'} until that ends.",
    )


def worker_waits(node: str, said: str) -> Condition:
    """Say that Kubernetes has no place for a worker yet."""
    return _condition(
        "WorkerWaits",
        f"The worker on {node} waits until Kubernetes has room for it, without you doing anything. Kubernetes says: "
        f"{said}",
    )


def _worker(kind: str, words: str, said: str) -> Condition:
    original = f" Kubernetes says: {said}" if said else ""
    return _condition(kind, f"{words} It is tried again by itself; GPUs of your own node are not affected.{original}")


def _condition(kind: str, message: str) -> Condition:
    return Condition(kind, strict.printable(message.strip(), MAX_MESSAGE))
