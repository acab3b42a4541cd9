"""GPUs that count as slow. Pure.

A driver slows a GPU down for moments, too, and each change is written to the cluster: so a GPU counts as slow once
`BEGIN` inventories in a row found it so, and until `END` in a row did not.
"""

from __future__ import annotations

from collections.abc import Mapping

BEGIN = 3
END = 30


class Slowness:
    """The GPUs that count as slow, by what the inventories found."""

    def __init__(self) -> None:
        self._slow: set[str] = set()
        self._contrary: dict[str, int] = {}
        """By uuid, how many inventories in a row found the contrary of what counts."""

    def update(self, found: Mapping[str, bool]) -> None:
        """Record an inventory: by uuid of each GPU that answered, whether it is slow now."""
        for uuid, slow in found.items():
            if slow is self.is_slow(uuid):
                self._contrary.pop(uuid, None)
                continue
            count = self._contrary[uuid] = self._contrary.get(uuid, 0) + 1
            if count >= (BEGIN if slow else END):
                self._slow ^= {uuid}
                del self._contrary[uuid]

    def is_slow(self, uuid: str) -> bool:
        """Tell whether a GPU counts as slow."""
        return uuid in self._slow
