"""Samples GPUs whose driver tells only how busy they are now."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping

from .rules.busy import INTERVAL, BusySamples

FORGOTTEN = 60.0
"""Seconds without a question after which nobody samples any more."""


class BusySampler:
    """The sampler of the GPUs that were asked for lately: a thread of its own, which ends when nobody asks any more.

    ``read`` returns per cent by uuid, or None for a GPU that does not tell. It may hang as a dying GPU does: then no
    answer comes in time, and the use is not known.
    """

    def __init__(
        self, read: Callable[[Collection[str]], Mapping[str, int | None]], forgotten: float = FORGOTTEN
    ) -> None:
        self._read = read
        self._forgotten = forgotten
        self._samples = BusySamples()
        self._lock = threading.Lock()
        self._asked: dict[str, float] = {}
        """By uuid, when a GPU was asked for last."""
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def peaks(self, uuids: Collection[str], seconds: float) -> Mapping[str, int]:
        """Return the highest use in the last ``seconds``; GPUs that were not sampled all that time are missing."""
        now = time.monotonic()
        with self._lock:
            self._asked.update(dict.fromkeys(uuids, now))
            found = {uuid: self._samples.peak(uuid, now - seconds, now) for uuid in uuids}
            if self._thread is None and uuids and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, name="gpu-busy", daemon=True)
                self._thread.start()
        return {uuid: peak for uuid, peak in found.items() if peak is not None}

    def close(self) -> None:
        """Stop sampling."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(INTERVAL):
            with self._lock:
                since = time.monotonic() - self._forgotten
                self._asked = {uuid: at for uuid, at in self._asked.items() if at >= since}
                if not self._asked:
                    self._thread = None
                    return
                asked = tuple(self._asked)
            found = self._read(asked)
            with self._lock:
                self._samples.add(time.monotonic(), found)
