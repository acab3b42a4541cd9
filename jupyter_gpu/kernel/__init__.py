"""Code that runs in a kernel, a script or a terminal: `gpu` and all that it needs."""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, whose import costs more than the facade in `api`
if TYPE_CHECKING:
    from typing import Any


class _Keep:
    def __repr__(self) -> str:
        return "<as it is>"


KEEP: Any = _Keep()
"""Default of the options of `resize`: an option stays as it was requested last."""
