"""The latest view of a backend, and the listeners for the next one; used on the event loop only."""

from __future__ import annotations

import logging
from collections.abc import Callable

from jupyter_gpu.backends.base import Listener
from jupyter_gpu.model.view import View

_log = logging.getLogger(__name__)


class ViewFeed:
    """The views of one backend, one after the other."""

    def __init__(self, view: View) -> None:
        self.latest = view
        self._listeners: dict[int, Listener] = {}
        self._subscriptions = 0

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` with each new view; the returned function ends that."""
        self._subscriptions += 1
        key = self._subscriptions
        self._listeners[key] = listener
        return lambda: self._listeners.pop(key, None) and None

    def publish(self, view: View) -> None:
        """Make ``view`` the latest and pass it to the listeners; one that fails keeps it from no other."""
        self.latest = view
        for listener in tuple(self._listeners.values()):
            try:
                listener(view)
            except Exception:
                _log.exception("A listener for GPU changes failed.")
