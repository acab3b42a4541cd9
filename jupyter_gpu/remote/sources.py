"""Modules below the notebook's folder: a worker loads those again that were loaded again, from the same source.

Functions and classes of modules are pickled as names. So after a change of such a module and ``importlib.reload``, or
IPython's ``%autoreload``, a worker that has loaded it before would go on with the old code, and nobody would notice.
A worker on another node cannot read the folder, so all of them are sent to it before they are needed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
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
    """The modules below a folder, as a worker has them that begins now. ``known``: it can read the same files."""

    def __init__(self, folder: Path, *, known: bool = True) -> None:
        self._begin = f"{folder}/"
        self._reads = known
        self._known = dict(self._loaded()) if known else {}

    def changed(self) -> list[Source]:
        """Return the modules that were loaded again since the last call, in the order of their first import.

        Those that are new are among them for a worker that cannot read them.
        """
        now = dict(self._loaded())
        others = [name for name, spec in now.items() if self._known.get(name) is not spec]
        again = [name for name in others if name in self._known or not self._reads]
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


class Sent(MetaPathFinder, InspectLoader):
    """The sources that were sent here, as what Python imports them from."""

    def __init__(self) -> None:
        self._sources: dict[str, Source] = {}

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - as it is called
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Return where a module is from; None: not from here."""
        source = self._sources.get(fullname)
        if source is None:
            inside = any(name.startswith(f"{fullname}.") for name in self._sources)
            return ModuleSpec(fullname, None, is_package=True) if inside else None  # a package without a file
        spec = ModuleSpec(fullname, self, origin=source.file, is_package=self.is_package(fullname))
        spec.has_location = True  # so that it has __file__
        return spec

    def is_package(self, fullname: str) -> bool:
        """Tell whether a module is a package."""
        return Path(self._sources[fullname].file).name == "__init__.py"

    def get_source(self, fullname: str) -> str:
        """Return the text, which tracebacks show, too."""
        return self._sources[fullname].text

    def get_code(self, fullname: str) -> Any:
        """Return what is run."""
        source = self._sources[fullname]
        return compile(source.text, source.file, "exec")

    def take(self, sources: Iterable[Source], modules: Mapping[str, ModuleType]) -> None:
        """Run the sources of modules that are loaded here, in the modules that there are, and keep all for imports.

        Raises what they raise.
        """
        new = tuple(sources)
        self._sources.update({source.module: source for source in new})
        if self not in sys.meta_path and self._sources:
            sys.meta_path.insert(0, self)  # a folder of the notebook comes before what is installed, as there
        for source in new:
            module = modules.get(source.module)
            if module is not None:
                exec(self.get_code(source.module), module.__dict__)  # noqa: S102 - both ends are one user's
