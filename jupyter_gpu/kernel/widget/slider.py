"""The kernel's side of the slider in a cell.

The page talks to the server directly if it can, otherwise through the kernel (`messages`). Traits contain amounts, and
the instance by which a page recognizes this server: they are saved with the notebook. Names of notebooks and processes,
addresses and sentences are sent in messages only.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from jupyter_gpu.kernel.client import Client, put_request
from jupyter_gpu.kernel.reports.status import gpus
from jupyter_gpu.kernel.widget.rules.messages import (
    VisibleMessage,
    answer_message,
    lost_message,
    read_message,
    sample_message,
    saved_line,
    view_message,
)
from jupyter_gpu.model.errors import GpuError
from jupyter_gpu.model.quantity import format_milli, parse_milli
from jupyter_gpu.model.sentence import sentence
from jupyter_gpu.model.view import Sample, View

from .attention import Attention
from .follower import WidgetFollower
from .request_queue import RequestQueue
from .words import catalog

_FROM_PAGES = ("value",)
"""Traits that a page may set."""


class GpuWidget(anywidget.AnyWidget):
    """A slider for the GPUs of this server, as `gpu.widget()` returns it; composes with other widgets.

    Callbacks of `observe` run in a thread of their own, also while a cell runs.
    """

    _esm = Path(__file__).with_name("page.js")
    _css = Path(__file__).with_name("page.css")

    value = traitlets.Float(
        0.0, help="GPUs asked for. Set it to ask for more or fewer; it follows other requests."
    ).tag(sync=True)
    attached = traitlets.Float(0.0, read_only=True, help="GPUs that can be used now.").tag(sync=True)
    limit = traitlets.Float(0.0, read_only=True, help="The most that may be asked for.").tag(sync=True)
    phase = traitlets.Unicode("", read_only=True, help="The state in one word; empty while there is no server.")
    sentence = traitlets.Unicode("", read_only=True, help="The line of the panel.")
    error = traitlets.Unicode("", read_only=True, help="Why `value` was not accepted, or why there is no server.")

    _instance = traitlets.Unicode("", read_only=True, help="The instance of the server.").tag(sync=True)
    _words = traitlets.Dict(help="The page's words in the kernel's language.").tag(sync=True)

    def __init__(self, client: Callable[[], Client], view: View | None = None, **kwargs: Any) -> None:
        self._client = client
        self._own = threading.local()
        self._newest = threading.Lock()
        self._view: View | None = None
        self._attention = Attention()
        self._requests = RequestQueue(self._request)
        super().__init__(_words=catalog(os.environ), **kwargs)
        self.on_msg(self.receive)
        self._attention.watch()
        if view is not None:
            self.show(view)
        self._follower = WidgetFollower(client, self)
        self._follower.start()

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """Show the slider, with a line of text for front ends without widgets."""
        self._attention.seen()
        self._follower.wake()
        data, metadata = super()._repr_mimebundle_(**kwargs) or ({}, {})
        return {**data, "text/plain": saved_line(self._view)}, metadata

    def close(self) -> None:
        """Remove it from all pages, and stop following the server."""
        self._attention.stop()
        self._follower.stop()
        super().close()

    def set_state(self, sync_data: Mapping[str, Any]) -> None:
        """Accept traits that a page may set; the server sets the others."""
        super().set_state({name: value for name, value in sync_data.items() if name in _FROM_PAGES})

    @property
    def watched(self) -> bool:
        """See `Listener`."""
        return self._attention.held

    def show(self, view: View) -> None:
        """Bring traits and pages up to date."""
        with self._newest:
            now = self._view
            if now is not None and now.instance == view.instance and view.version < now.version:
                return
            self._view = view
        if not self._requests.pending:
            self._tell(value=gpus(view.status.requested), error="")
        self._tell(
            attached=gpus(view.status.attached),
            limit=gpus(view.limit),
            phase=view.status.phase,
            sentence=sentence(view),
            _instance=view.instance,
        )
        if self.watched:
            self.send(view_message(view))

    def show_sample(self, sample: Sample) -> None:
        """See `Listener`."""
        self.send(sample_message(sample))

    def lost(self, error: GpuError) -> None:
        """See `Listener`."""
        self._view = None
        self._tell(phase="", sentence="", _instance="", error=str(error))
        if self.watched:
            self.send(lost_message(str(error)))

    @traitlets.validate("value")
    def _check(self, proposal: Any) -> float:
        try:
            return float(gpus(parse_milli(proposal["value"])))
        except ValueError as error:
            raise traitlets.TraitError(str(error)) from None

    @traitlets.observe("value")
    def _moved(self, change: Any) -> None:
        if not getattr(self._own, "telling", False):
            self._requests.put(parse_milli(change["new"]), self._answered)

    def receive(self, _: object, content: Any, __: object) -> None:
        """Handle a message of a page."""
        message = read_message(content)
        if isinstance(message, VisibleMessage):
            self._attention.seen()
            self._follower.wake()
            if self._view is not None:
                self.send(view_message(self._view))
            elif self.error:
                self.send(lost_message(self.error))
        elif message is not None:
            key = message.key

            def answer(error: str) -> None:
                self._answered(error)
                self.send(answer_message(key, error))

            self._requests.put(message.milli, answer)

    def _request(self, milli: int) -> str:
        try:
            self.show(self._client().send(put_request({"milli": milli, "overrule": True})))
        except GpuError as error:
            return str(error)
        except Exception as error:  # the thread must answer whatever happens
            return f"Asking for {format_milli(milli)} failed in the kernel: {error}"
        return ""

    def _answered(self, error: str) -> None:
        """Show the current request, which is the previous one if this was refused."""
        view = self._view
        if view is not None and not self._requests.pending:
            self._tell(value=gpus(view.status.requested))
        self._tell(error=error)

    def _tell(self, **values: Any) -> None:
        """Set traits without requesting GPUs."""
        self._own.telling = True
        try:
            for name, value in values.items():
                self.set_trait(name, value)
        finally:
            self._own.telling = False
