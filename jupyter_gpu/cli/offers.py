"""Completions that only the server knows; none if it does not answer soon."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jupyter_gpu.model.view import View

_PATIENCE = 1.0
"""Seconds that completion waits for the server."""


def amounts(**_: Any) -> list[str]:
    """Return the steps of the slider."""
    from jupyter_gpu.model.quantity import format_gpus

    view = _view()
    return [format_gpus(step) for step in view.steps] if view else []


def models(**_: Any) -> list[str]:
    """Return the models of the GPUs that the server can have."""
    view = _view()
    return sorted({kind.model for kind in view.all_kinds}) if view else []


def vendors(**_: Any) -> list[str]:
    """Return the vendors of these GPUs."""
    view = _view()
    return sorted({kind.vendor for kind in view.all_kinds}) if view else []


def _view() -> View | None:
    from jupyter_gpu.kernel import discovery
    from jupyter_gpu.kernel.client import Client, get_status
    from jupyter_gpu.model.errors import GpuError, OutsideServer

    try:
        try:
            client = Client(discovery.find())
        except OutsideServer:  # to look at the one that runs here changes nothing
            client = Client(discovery.wanted())
        return client.send(get_status(patience=_PATIENCE))
    except GpuError:
        return None
