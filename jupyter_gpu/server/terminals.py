"""The variables that show programs of a server its GPUs, in terminals above all.

A terminal gets ``CUDA_VISIBLE_DEVICES`` when it is opened; everything else is in the environment of the server, which
all its programs inherit. The server itself does not get that variable, as the GPUs are not its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jupyter_gpu.common import attached
from jupyter_gpu.common.attached import Hint
from jupyter_gpu.common.rules import visible


class Variables(Mapping[str, str | None]):
    """Variables that `terminado` sets in each new terminal (None: removes), computed when it reads them.

    ``before``: variables that were there; they win.
    """

    def __init__(self, before: Mapping[str, str | None] | None, now: Callable[[], Mapping[str, str | None]]) -> None:
        self._before, self._now = dict(before or {}), now

    def __getitem__(self, name: str) -> str | None:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> dict[str, str | None]:
        return {**self._now(), **self._before}


def variables_of(environ: Mapping[str, str], hint: Hint, named_by: str) -> dict[str, str | None]:
    """Return the variables of a terminal of a server with the environment ``environ``."""
    order = {} if visible.ORDER in environ or hint.simulated else {visible.ORDER: visible.BUS_ORDER}
    by = {visible.NAMED_BY: environ.get(visible.NAMED_BY, named_by)}
    return {**order, **by, **visible.start({**environ, **order, **by}, environ, hint)}


def prepare(server: Any, path: str, hint: Callable[[], Hint], named_by: str) -> None:
    """Give terminals of ``server``, and its other programs, what is attached; ``path``: the file of `attached`.

    Call it when all extensions are loaded: the one that makes terminals may come later than ours.
    """
    os.environ[attached.VARIABLE] = path
    manager = server.web_app.settings.get("terminal_manager")
    if manager is not None and not isinstance(manager.extra_env, Variables):
        manager.extra_env = Variables(manager.extra_env, lambda: variables_of(os.environ, hint(), named_by))


def forget(path: str) -> None:
    """Undo `prepare` when the server ends, perhaps in a process that goes on."""
    if os.environ.get(attached.VARIABLE) == path:
        del os.environ[attached.VARIABLE]
