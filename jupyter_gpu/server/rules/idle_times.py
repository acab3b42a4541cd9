"""Times since which GPUs rest, from the sequence of views. Pure: time is an argument.

A node tells which GPUs rest, not since when. So the time is the one at which this server was first told, which is up to
some seconds and the minute after which a GPU rests too late, and begins anew when the server starts again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from jupyter_gpu.model.use_class import resting_since
from jupyter_gpu.model.view import GpuState, View


class IdleTimes:
    """The times since which the GPUs of one server rest."""

    def __init__(self) -> None:
        self._since: Mapping[str, int] = MappingProxyType({})

    def see(self, view: View, now: float) -> None:
        """Note which GPUs of ``view`` rest; ``now`` is in seconds since 1970."""
        self._since = resting_since(self._since, view.attached, int(now))

    def added(self, view: View) -> View:
        """Return ``view`` with the time since which each attached GPU rests."""
        if not self._since:
            return view
        cards = (
            card._replace(idle_since=self._since.get(card.gpu.uuid)) if card.state is GpuState.ATTACHED else card
            for card in view.gpus
        )
        return replace(view, gpus=tuple(cards))
