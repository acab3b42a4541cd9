"""A Jupyter server whose kernels run on another one: what must be said there of GPUs, which are this server's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jupyter_gpu.model.view import Condition, View

ELSEWHERE = Condition(
    "KernelsElsewhere",
    "The kernels of this server run on another one, behind a gateway: GPUs that are taken here do not reach them. In a "
    "notebook type gpu in a cell: it shows the GPUs of the kernel's own server.",
)


def notes(server: Any) -> tuple[Condition, ...]:
    """Return the conditions to show beside the view of ``server``, a Jupyter server."""
    return (ELSEWHERE,) if getattr(getattr(server, "gateway_config", None), "gateway_enabled", False) else ()


def noted(view: View, notes: tuple[Condition, ...]) -> View:
    """Put ``notes`` into ``view``, before what its backend says."""
    return replace(view, conditions=(*notes, *view.conditions)) if notes else view
