"""Programs that belong together and are started and ended one by one."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.testbed.commands import ClusterError
from tests.cluster.testbed.processes import GRACE_SECONDS, Process, spawn


class Daemons(ABC):
    """Some parts of the cluster whose files are below `state`; each is one process with a record and a log there."""

    def __init__(self, state: Path, parts: Sequence[str], suffix: str = "") -> None:
        self._state = state
        self._parts = tuple(parts)
        self._suffix = suffix

    @abstractmethod
    def start(self, part: str) -> None:
        """Start the part unless it runs; it answers when this returns. Raises ClusterError."""

    def stop(self, part: str, grace: float = GRACE_SECONDS) -> None:
        """End the part in order, or kill it when the grace is over; nothing where it does not run."""
        if process := Process.read(self.record(part)):
            process.end(grace)
        self.record(part).unlink(missing_ok=True)

    def kill(self, part: str) -> None:
        """End the part as a crash would."""
        self.stop(part, grace=0)

    @contextmanager
    def without(self, *parts: str) -> Iterator[None]:
        """Kill these parts in order, and start the last one first at the end of the block, however that ends."""
        for part in parts:
            self.kill(part)
        try:
            yield
        finally:
            for part in reversed(parts):
                self.start(part)

    def running(self, part: str) -> bool:
        """Whether the process of the part is alive."""
        process = Process.read(self.record(part))
        return process is not None and process.alive

    def log(self, part: str) -> Path:
        """Return the log of a part."""
        return self._state / "log" / f"{self._known(part)}{self._suffix}.log"

    def record(self, part: str) -> Path:
        """Return the file with its process."""
        return self._state / "processes" / f"{self._known(part)}{self._suffix}.json"

    def _spawn(self, part: str, words: Sequence[str | Path]) -> Process:
        process = spawn(words, self.log(part))
        process.write(self.record(part))
        return process

    def _known(self, part: str) -> str:
        if part not in self._parts:
            raise ClusterError(f"There is no part {part!r}. Parts are: {', '.join(self._parts)}.")
        return part
