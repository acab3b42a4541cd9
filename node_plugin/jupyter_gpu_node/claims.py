"""Whose slot is it? Asked before each start of a container, and now and then for all slots."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from .settings import Settings
from .slots import Claim, PodRef

Pods = Callable[[], Mapping[str, Mapping[str, Any]]]
"""Pods of this node by uid as the API server told them last: ``lambda: reflector.objects``."""
Fetch = Callable[[str, str], Awaitable[Mapping[str, Any] | None]]
"""The pod of that namespace and name, asked from the API server now; None if there is none. May raise."""


class Claims:
    """The slots of this node and who has them."""

    def __init__(self, settings: Settings, pods: Pods, fetch: Fetch) -> None:
        self._settings = settings
        self._pods = pods
        self._fetch = fetch

    async def resolve(self, slot: str) -> tuple[PodRef, str]:
        """The pod and the container that have ``slot`` now; raises :class:`.slots.Unresolved`."""
        raise NotImplementedError

    @property
    def known(self) -> Mapping[str, Claim]:
        """By slot, whom it was given to as far as this node plugin knows; kept over restarts."""
        raise NotImplementedError

    def directory(self, slot: str) -> Path:
        """On the host, what the container of that slot sees as ``/run/jupyter-gpu``; it is there when this returns."""
        raise NotImplementedError
