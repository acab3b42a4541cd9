"""The compute of a GPU: what it can do at most, by its units and their clock. Pure."""

from __future__ import annotations

from jupyter_gpu.model.gpu import MAX_COMPUTE

FUSED = 2
"""Operations of one unit in one cycle: it multiplies and adds at once."""


def billions(units: int, megahertz: int) -> int | None:
    """Return the billions of operations a second with numbers of 32 bits; ``None``: that makes no sense."""
    found = FUSED * units * megahertz // 1000
    return found if units > 0 and 0 < found <= MAX_COMPUTE else None
