"""The kubelet's device plugin for slots: offers them, prepares containers that got one, refuses what is not safe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from jupyter_gpu.model.gpu import Gpu

from ..claims import Claims
from ..settings import Settings
from ..slots import PodRef


class PodGuard(Protocol):
    """Closes pods."""

    async def before_start(self, pod: PodRef, container: str, slot: str) -> None:
        """Have the pod's cgroup closed when this returns. If it raises, the container does not start.

        The text of the error is what the user reads in the events of the pod. It may be cancelled at any await.
        """


class DevicePlugin:
    """Serves the kubelet until cancelled; registers anew whenever the kubelet comes back."""

    def __init__(
        self, settings: Settings, gpus: Callable[[], tuple[Gpu, ...]], guard: PodGuard, claims: Claims
    ) -> None:
        self._settings = settings
        self._gpus = gpus
        self._guard = guard
        self._claims = claims

    async def run(self) -> None:
        """Until cancelled. Raises what must end the process."""
        raise NotImplementedError

    def not_ready(self) -> str:
        """Why the kubelet can't use this plugin now, in plain words; empty if it can (readiness)."""
        raise NotImplementedError
