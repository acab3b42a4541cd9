"""The files by which the arbiter tells servers for which decisions there is memory: one beside the sockets of a pod."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from pathlib import Path

from jupyter_gpu.backends.local.records import notify
from jupyter_gpu.common import faults
from jupyter_gpu_node.shares.server import paths as share_paths

from .rules import memory_room
from .rules.memory_room import FoundRoom, Rooms

POINTS = (
    "room:found",  # all limits are in force and there is room, no server is told
    "room:written",  # a server's file says it, the server is not notified
)
"""Points at which a test can kill an arbiter (`faults`)."""
_log = logging.getLogger(__name__)


class RoomFiles:
    """The files of one arbiter, below its ``folder``; everything is to be called in a thread."""

    def __init__(self, state: Path, folder: Path) -> None:
        self._state = state
        self._folder = folder
        self.written: Rooms = {}
        """The text of the files, as it was read."""

    def begin(self, pods: Iterable[str]) -> None:
        """Remove what an earlier arbiter wrote for these pods."""
        for pod in pods:
            if (self._folder / pod / share_paths.FOLDER / memory_room.NAME).exists():
                self._write(pod, ())

    def keep(self, gpus: Collection[str]) -> None:
        """Withdraw what was said of all GPUs but these: limits there are about to rise. Raises `OSError`."""
        self.write({
            pod: tuple(one for one in some if one.share.uuid in gpus) for pod, some in self.written.items()
        })  # fmt: skip

    def write(self, rooms: Rooms) -> None:
        """Say this from now on, and notify the servers of which it is new. Raises `OSError`."""
        for pod in self.written.keys() | rooms.keys():
            found, before = rooms.get(pod, ()), self.written.get(pod, ())
            if found == before:
                continue
            more = not set(found) <= set(before)
            if more:
                faults.point(POINTS[0])
            self._write(pod, found)
            self.written = {**self.written, pod: found}
            if more:
                _log.info("There is memory for pod %s.", pod)
                faults.point(POINTS[1])
                notify.send(self._state / "pods", [f"{pod}.sock"])
        self.written = {pod: found for pod, found in self.written.items() if found}

    def _write(self, pod: str, found: tuple[FoundRoom, ...]) -> None:
        with share_paths.opened(self._folder / pod) as folder:
            if found:
                share_paths.replace(folder, memory_room.NAME, memory_room.encode(found))
            else:
                share_paths.discard(folder, memory_room.NAME)
