"""The terms of one share. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu_node.shares.rules.protocol import NO_LIMIT


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of one share."""

    milli: int
    """0: a guest, which runs only while no other share has work."""
    limit: int | None = None
    """Bytes of memory; None: as much as there is."""

    def __post_init__(self) -> None:
        if not 0 <= self.milli <= MILLI_PER_GPU:
            raise ValueError(f"A share of one GPU is 0 to {MILLI_PER_GPU} thousandths of it, not {self.milli}.")
        if not self.milli and self.limit is None:
            raise ValueError("A share of 0 thousandths, that of a guest, needs a limit: no memory goes with its time.")
        if self.limit is not None and not 0 <= self.limit < NO_LIMIT:
            raise ValueError(f"The memory limit of a share is a number of bytes, not {self.limit}.")
