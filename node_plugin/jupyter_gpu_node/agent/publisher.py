"""Writes what the agent found to the API server: ``attached`` of its pods, and Events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from jupyter_gpu.kube import Conflict, Kube, NotFound, Recorder
from jupyter_gpu.kube.rules import paths
from jupyter_gpu.model.annotations import ATTACHED, Attached, encode
from jupyter_gpu_node.agent.inventory.inventory import Inventory
from jupyter_gpu_node.kubelet.rules.slots import PodRef

INTRUDER, TWO_OWNERS, ONE_OWNER = "GpuIntruder", "GpuHasTwoOwners", "GpuHasOneOwner"


class Publisher:
    """The writer of this node's records and Events. ``written`` is called after each write."""

    def __init__(
        self, kube: Kube, recorder: Recorder, inventory: Inventory, written: Callable[[], None] = lambda: None
    ) -> None:
        self._kube = kube
        self._recorder = recorder
        self._inventory = inventory
        self._written = written

    async def attached(self, pod: PodRef, attached: Attached) -> Mapping[str, Any] | None:
        """Write ``attached``; return the pod as it is now, None if it was not written. Raises `KubeError`.

        It is not written if the pod is gone, if another pod has its name, or if another client wrote the pod at the
        same moment: then the watch reports that write, and the next step writes this again.
        """
        body = {"metadata": {"uid": pod.uid, "annotations": {ATTACHED: encode(attached)}}}
        try:
            after = await self._kube.patch(paths.pod(pod.namespace, pod.name, "status"), body)
        except (NotFound, Conflict):
            return None
        self._written()
        return after

    async def fetch(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """Return the pod as it is now; None if there is none. Raises `KubeError`."""
        try:
            return await self._kube.get(paths.pod(namespace, name))
        except NotFound:
            return None

    def about_pod(self, pod: PodRef, reason: str, message: str, kind: Literal["Normal", "Warning"] = "Warning") -> None:
        """Publish an Event of that pod; returns at once."""
        about = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"uid": pod.uid, "namespace": pod.namespace, "name": pod.name},
        }
        self._recorder.event(about, kind, reason, message)

    def about_node(self, reason: str, message: str, kind: Literal["Normal", "Warning"] = "Warning") -> bool:
        """Publish an Event of this node; returns at once. False while the node is not known: none was published."""
        node = self._inventory.node
        if node is None:
            return False
        self._recorder.event({"apiVersion": "v1", "kind": "Node", **node}, kind, reason, message)
        return True
