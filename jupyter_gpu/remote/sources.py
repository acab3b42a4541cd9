"""Modules below the notebook's folder that were loaded again: the worker loads them again, too, from the same source.

Functions and classes of modules are pickled as names. So after a change of such a module and ``importlib.reload``, or
IPython's ``%autoreload``, a worker that has loaded it before would go on with the old code, and nobody would notice.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

_INSTALLED = frozenset(["site-packages", "dist-packages"])
"""Folders of packages, which do not change while they are used."""


@dataclass(frozen=True)
class Source:
    """The source of one module, as the notebook has loaded it."""

    module: str
    file: str
    text: str


class Sources:
    """The modules below a folder, as a worker has them that begins now and can read the same files."""

    def __init__(self, folder: Path) -> None:
        self._begin = f"{folder}/"
        self._known = dict(self._loaded())

    def changed(self) -> list[Source]:
        """Return the modules that were loaded again since the last call, in the order of their first import."""
        now = dict(self._loaded())
        again = [name for name, spec in now.items() if name in self._known and self._known[name] is not spec]
        self._known = now
        found = []
        for name in again:
            path = Path(now[name].origin)
            try:
                found.append(Source(name, str(path), path.read_text(encoding="utf-8")))
            except (OSError, ValueError):  # it was removed meanwhile
                continue
        return found

    def _loaded(self) -> Iterable[tuple[str, Any]]:
        """Yield the names of modules with what says where they are from: another object each time one is loaded."""
        for name, module in list(sys.modules.items()):
            spec = getattr(module, "__spec__", None)
            origin = getattr(spec, "origin", None)
            if not isinstance(origin, str) or not (origin.startswith(self._begin) and origin.endswith(".py")):
                continue  # text is compared, as there are thousands of modules and this is before each cell
            if _INSTALLED.isdisjoint(Path(origin).parts):
                yield name, spec


def reload(sources: Iterable[Source], modules: Mapping[str, ModuleType]) -> None:
    """Run the sources of those modules that are loaded here, in the modules that there are; raises what they raise."""
    for source in sources:
        module = modules.get(source.module)
        if module is not None:
            exec(compile(source.text, source.file, "exec"), module.__dict__)  # noqa: S102 - both ends are one user's
