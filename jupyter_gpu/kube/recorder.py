"""Tell people what happened by Kubernetes Events; never in anybody's way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from .client import Kube


class Recorder:
    """Writes Events in the background: the same one again is counted, too many are dropped, failures are logged."""

    def __init__(self, kube: Kube, component: str, *, host: str = "") -> None:
        self._kube = kube
        self._component = component
        self._host = host

    def event(self, about: Mapping[str, Any], kind: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """Note that something happened to ``about`` (a Pod's or Node's JSON); returns at once."""

    async def close(self) -> None:
        """Write what is left, for at most some seconds."""
