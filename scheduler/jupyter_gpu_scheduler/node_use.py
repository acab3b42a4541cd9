"""The sums of what pods take of each node, and the nodes that are withheld because a pod's record cannot be read."""

from __future__ import annotations

from collections.abc import Mapping

from jupyter_gpu_scheduler.rules.state.records import PodUsage


class NodeUse:
    """The sums of what pods request on each node, and the pods because of which its GPUs are withheld.

    Both change with a pod: `count` and `withhold` return the nodes for which something else holds now.
    """

    def __init__(self) -> None:
        self._usage: dict[str, PodUsage] = {}
        self._used: dict[str, dict[str, int]] = {}
        self._opaque: dict[str, set[str]] = {}  # node → pods whose `attached` can't be read

    def used(self, node: str) -> Mapping[str, int]:
        """Return what all pods of a node request, by resource."""
        return self._used.get(node, {})

    def is_withheld(self, node: str) -> bool:
        """Tell whether nothing is given on a node, as it is not known what a pod holds there."""
        return bool(self._opaque.get(node))

    def count(self, uid: str, new: PodUsage | None) -> tuple[str, ...]:
        """Count what a pod takes of its node; ``None``: it takes nothing any more."""
        old = self._usage.pop(uid, None)
        if new:
            self._usage[uid] = new
        if old == new:
            return ()
        for usage, sign in ((old, -1), (new, 1)):
            if usage:
                self._add(usage, sign)
        return tuple(dict.fromkeys(usage.node for usage in (old, new) if usage))

    def _add(self, usage: PodUsage, sign: int) -> None:
        used = self._used.pop(usage.node, {})
        for name, amount in usage.requests.items():
            used[name] = used.get(name, 0) + sign * amount
        if left := {name: amount for name, amount in used.items() if amount}:  # else the node may be gone
            self._used[usage.node] = left

    def withhold(self, uid: str, node: str) -> tuple[str, ...]:
        """Withhold the GPUs of ``node`` because of this pod, and no longer those of other nodes; empty: of none."""
        released = [name for name, pods in self._opaque.items() if uid in pods and name != node]
        for name in released:
            self._opaque[name].discard(uid)
            if not self._opaque[name]:
                del self._opaque[name]
        if not node or uid in self._opaque.get(node, ()):
            return tuple(released)
        self._opaque.setdefault(node, set()).add(uid)
        return (*released, node)
