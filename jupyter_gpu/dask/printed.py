"""Output of tasks: lines in the log of their Dask worker, where ``client.get_worker_logs()`` finds them."""

from __future__ import annotations

import io
import logging
import threading

LONGEST = 1000
"""Characters of a line that are kept: a log has thousands of them, in memory."""
_log = logging.getLogger("distributed.worker")


class Printed(io.TextIOBase):
    """A stream of text, in the place of standard output."""

    encoding = "utf-8"

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._begun = ""

    def writable(self) -> bool:
        """Tell that it can be written."""
        return True

    def write(self, text: str) -> int:
        """Log the lines that end in a text, and keep what begins another one."""
        with self._lock:
            *lines, begun = (self._begun + text).split("\n")
            self._begun = begun[: LONGEST + 1]
        for line in lines:
            _log.info("%s", line if len(line) <= LONGEST else f"{line[:LONGEST]}…")
        return len(text)
