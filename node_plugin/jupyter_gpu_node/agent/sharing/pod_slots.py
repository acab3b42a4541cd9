"""The slots of this node's pods, and which shares each pod sees in its slots.

A pod sees its shares in every slot: the arbiter's server works in the directory of the first, and the others show the
same (`kubelet.slot_shares`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple


class SlotView(NamedTuple):
    """The view that a pod has of its shares: its slots, and the GPUs whose shares they show."""

    slots: tuple[str, ...]
    gpus: frozenset[str]


class PodSlots:
    """The slots of one node by pod. ``directory`` returns the directory of a slot."""

    def __init__(self, directory: Callable[[str], Path]) -> None:
        self._directory = directory
        self._slots: dict[str, tuple[str, ...]] = {}
        self._shown: dict[str, SlotView] = {}

    def assign(self, slot: str, uid: str) -> None:
        """Note that the slot is that pod's, and no other's any more."""
        for other, known in list(self._slots.items()):
            if slot in known and other != uid:
                self._slots[other] = tuple(one for one in known if one != slot)
        if slot not in self._slots.get(uid, ()):
            self._slots[uid] = (*self._slots.get(uid, ()), slot)

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone."""
        for known in (self._slots, self._shown):
            known.pop(uid, None)

    def slots(self, uid: str) -> tuple[str, ...]:
        """Return the slots of that pod, as far as they are known."""
        return self._slots.get(uid, ())

    def by_pod(self) -> dict[str, tuple[str, ...]]:
        """Return the slots of all pods as they are now."""
        return dict(self._slots)

    # -- directories ---------------------------------------------------------------------------------------------------

    def directories(self, slots: Iterable[str]) -> list[Path]:
        """Return the directories of these slots."""
        return [self._directory(slot) for slot in slots]

    def first(self, uid: str) -> Path:
        """Return the directory in which the server works; `IndexError` if the pod has no slot."""
        return self._directory(self.slots(uid)[0])

    def others(self, uid: str) -> list[Path]:
        """Return the directories that show what the first does."""
        return self.directories(self.slots(uid)[1:])

    # -- what they show ------------------------------------------------------------------------------------------------

    def outdated(self, pods: Mapping[str, Iterable[str]], slots: Mapping[str, tuple[str, ...]]) -> dict[str, SlotView]:
        """Return, by pod, the view that its ``slots`` are to give if they give another now. ``pods``: pods by GPU."""
        found = {
            uid: SlotView(names, frozenset(gpu for gpu, uids in pods.items() if uid in uids))
            for uid, names in slots.items()
            if names
        }
        return {uid: view for uid, view in found.items() if self._shown.get(uid) != view}

    def only_grows(self, uid: str, view: SlotView) -> bool:
        """Tell whether the same slots show all that they do now in ``view``, too."""
        before = self._shown.get(uid)
        return before is not None and before.slots == view.slots and before.gpus <= view.gpus

    def shows(self, uid: str, view: SlotView | None) -> None:
        """Note what the pod's slots show now; None: that is not known."""
        if view is None:
            self._shown.pop(uid, None)
        else:
            self._shown[uid] = view
