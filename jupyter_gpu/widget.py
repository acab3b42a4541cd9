"""The slider that `gpu` shows in a cell.

Its JavaScript talks to the server itself (see ``widget.js``). What is synchronised with the kernel is used only in
pages that do not know their server; it holds amounts and a sentence, never an address or a token, because notebooks
are saved with it.
"""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from .model.errors import GpuError
from .model.quantity import format_milli
from .model.sentence import sentence
from .model.view import View

if TYPE_CHECKING:
    from .kernel import Gpu
    from .report import GpuStatus

_SHOWN = ("instance", "version", "simulated", "limit", "steps", "amounts")


class GpuWidget(anywidget.AnyWidget):
    """A slider for the GPUs of this server; composes with other widgets, as in ``VBox([GpuWidget(gpu), …])``."""

    _esm = Path(__file__).with_name("widget.js")

    view = traitlets.Dict(help="What is so now; only for pages that cannot ask the server.").tag(sync=True)
    wish = traitlets.Dict(help="{sequence, milli}, set by such a page.").tag(sync=True)
    answer = traitlets.Dict(help="{sequence, error}, set by the kernel.").tag(sync=True)

    def __init__(self, gpu: Gpu, **kwargs: Any) -> None:
        super().__init__(view={}, wish={"sequence": 0, "milli": 0}, answer={"sequence": 0, "error": ""}, **kwargs)
        self._gpu = gpu.showing(_Mirror(self))
        self._one = threading.Lock()
        self.observe(self._wished, names="wish")

    def bundle(self, status: GpuStatus, plain: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """MIME bundle of a cell's output, with ``plain`` for where there are no widgets."""
        self.show(status.view)
        data, metadata = self._repr_mimebundle_() or ({}, {})
        return {**data, "text/plain": plain}, metadata

    def show(self, view: View) -> None:
        """Bring the page up to date. Names of notebooks and processes stay here: this may be saved."""
        body = view.to_json()
        self.view = {**{name: body[name] for name in _SHOWN}, "sentence": sentence(view)}

    def _wished(self, change: Any) -> None:
        wish = read_wish(change["new"])
        if wish is not None:
            # A wish may wait for minutes; the kernel's messages must not.
            threading.Thread(target=self._serve, args=wish, name="jupyter-gpu-widget", daemon=True).start()

    def _serve(self, sequence: int, milli: int) -> None:
        error = ""
        with self._one:
            try:
                self.show(self._gpu.overrule(format_milli(milli)).view)
            except GpuError as problem:
                error = str(problem)
            self.answer = {"sequence": sequence, "error": error}
        if not error:
            # What stands in the way is in the view's sentence.
            with contextlib.suppress(GpuError):
                self._gpu.wait()


class _Mirror:
    """Shows a wait in the widget."""

    visible = False

    def __init__(self, widget: GpuWidget) -> None:
        self._widget = widget

    def show(self, view: View) -> None:
        self._widget.show(view)

    def say(self, text: str) -> None:  # noqa: ARG002 - as in Progress
        return

    def close(self, view: View) -> None:
        self._widget.show(view)


def read_wish(wish: Any) -> tuple[int, int] | None:
    """Sequence and milli of what a page sent; None for anything else, for the page is outside."""
    if not isinstance(wish, dict):
        return None
    sequence, milli = wish.get("sequence"), wish.get("milli")
    if not all(
        isinstance(number, int) and not isinstance(number, bool) and number >= 0 for number in (sequence, milli)
    ):
        return None
    return sequence, milli  # type: ignore[return-value]
