"""Conditions that a user in a pod should know, beside the GPUs themselves, in plain words; pure."""

from __future__ import annotations

from jupyter_gpu.model import strict
from jupyter_gpu.model.view import Condition

MAX_MESSAGE = 1024


def simulated(count: int) -> Condition:
    """Say that the GPUs are not real."""
    what = "The GPU of this node is" if count == 1 else f"All {count} GPUs of this node are"
    return _condition("Simulated", f"{what} simulated: they can be opened and show load, but compute nothing.")


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


def _condition(kind: str, message: str) -> Condition:
    return Condition(kind, strict.printable(message.strip(), MAX_MESSAGE))
