"""A note for Jupyter servers whose kernels run on another server: the GPUs are this server's."""

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
    """Return the conditions to add to the view of ``server``, a Jupyter server."""
    return (ELSEWHERE,) if getattr(getattr(server, "gateway_config", None), "gateway_enabled", False) else ()


def noted(view: View, notes: tuple[Condition, ...]) -> View:
    """Add ``notes`` to ``view``, before the backend's conditions."""
    return replace(view, conditions=(*notes, *view.conditions)) if notes else view
