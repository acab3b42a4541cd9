"""How a gate introduces itself on a new connection: who it is, its GPUs, and its state. Pure."""

from __future__ import annotations

from jupyter_gpu_node.shares.rules.framing import Malformed

from .messages import FromGate, Gpu, Hello, ProcessState, Use

MOST_BYTES = 1 << 50
"""More than any machine has: a gate that says more is not believed anything."""


class Introduction:
    """The words of a gate about itself so far. Nothing else is heard before all are said, none of them afterwards."""

    def __init__(self) -> None:
        self.hello: Hello | None = None
        self.gpus: tuple[str, ...] = ()
        """The uuids of the GPUs that the process saw when CUDA started, in its order."""
        self.state: ProcessState | None = None
        """The state that it began with."""
        self.use = Use(True, False, 0, 0)
        """Its latest use; until then it counts as busy."""

    @property
    def complete(self) -> bool:
        """Whether all of it is there."""
        return self.state is not None

    def hear(self, message: FromGate) -> bool:
        """Take the next message, and tell whether it is for others; raises `Malformed` if it is out of order."""
        match message:
            case Hello() if self.hello is None:
                self.hello = message
            case Gpu(uuid, number) if self._lacks_gpus and number == len(self.gpus) and uuid not in self.gpus:
                self.gpus = (*self.gpus, uuid)
            case ProcessState(_, _, size) if self.hello and not self._lacks_gpus and not self.complete:
                self._check(size)
                self.state = message
                return True
            case Hello() | Gpu() | ProcessState():
                raise Malformed("its introduction is out of order")
            case _ if not self.complete:
                raise Malformed("it comes before the introduction")
            case _:
                self._check(getattr(message, "size", 0))
                if isinstance(message, Use):
                    self.use = message
                return True
        return False

    @property
    def _lacks_gpus(self) -> bool:
        return self.hello is not None and not self.complete and len(self.gpus) < self.hello.gpus

    @staticmethod
    def _check(size: int) -> None:
        if size > MOST_BYTES:
            raise Malformed(f"it names {size} bytes")
