"""The variables of programs that the server starts by itself, by which they know its GPUs: terminals above all.

A terminal has a variable of its own, ``CUDA_VISIBLE_DEVICES``, made when it is opened; everything else lies in the
environment of the server, which all that it starts inherits. The variable does not: the server itself is no program
whose GPUs these are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jupyter_gpu.common import attached
from jupyter_gpu.common.attached import Hint
from jupyter_gpu.common.rules import visible


class Variables(Mapping[str, str | None]):
    """Variables for `terminado` to set in each new terminal, None: to remove; computed when it asks.

    ``before``: what it had; that wins.
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


def of(environ: Mapping[str, str], hint: Hint, named_by: str) -> dict[str, str | None]:
    """Return the variables of a terminal of a server with the environment ``environ``."""
    order = {} if visible.ORDER in environ or hint.simulated else {visible.ORDER: visible.BUS_ORDER}
    by = {visible.NAMED_BY: environ.get(visible.NAMED_BY, named_by)}
    return {**order, **by, **visible.start({**environ, **order, **by}, environ, hint)}


def prepare(server: Any, path: str, hint: Callable[[], Hint], named_by: str) -> None:
    """Have the terminals of ``server``, and all that it starts, know what is attached; ``path``: the file that tells.

    When all extensions are loaded: the one that makes terminals may be later than ours.
    """
    os.environ[attached.VARIABLE] = path
    manager = server.web_app.settings.get("terminal_manager")
    if manager is not None and not isinstance(manager.extra_env, Variables):
        manager.extra_env = Variables(manager.extra_env, lambda: of(os.environ, hint(), named_by))


def forget(path: str) -> None:
    """Undo `prepare` when the server ends, perhaps in a process that goes on."""
    if os.environ.get(attached.VARIABLE) == path:
        del os.environ[attached.VARIABLE]
