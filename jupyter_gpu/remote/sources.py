"""Modules below the notebook's folder: a worker loads those again that were loaded again, from the same source.

Functions and classes of modules are pickled as names. So after a change of such a module and ``importlib.reload``, or
IPython's ``%autoreload``, a worker that has loaded it before would go on with the old code, and nobody would notice.
A worker on another node cannot read the folder, so all of them are sent to it before they are needed, and those that
code imports when it is called, as far as they are named in it.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import decode_source
from pathlib import Path
from types import ModuleType
from typing import Any

from jupyter_gpu.remote.rules.imports import imported, with_parents

MOST_MODULES = 1_000
"""Modules that are sent to a worker although the notebook has not loaded them."""
MOST_BYTES = 8 * 1024**2
"""Bytes of their sources."""
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
        self._folder, self._begin = folder, f"{folder}/"
        self._reads = known
        self._known = dict(self._loaded()) if known else {}
        self._sent: dict[str, str] = {}
        self._named: set[str] = set()
        """Modules that what was sent imports."""
        self.left_out = False
        """Whether more are named than are sent."""

    def changed(self) -> list[Source]:
        """Return the modules that were loaded again since the last call, in the order of their first import.

        Those that are new are among them for a worker that cannot read them.
        """
        now = dict(self._loaded())
        before, self._known = self._known, now
        others = [name for name, spec in now.items() if before.get(name) is not spec]
        again = [name for name in others if name in before or not self._reads]
        found = [_read(name, Path(now[name].origin)) for name in again]
        return [
            self._noted(source)
            for source in found
            if source and (source.module in before or source.text != self._sent.get(source.module))
        ]

    def named(self, modules: Iterable[str]) -> list[Source]:
        """Return modules that the notebook has not loaded: of those that are given, and all that what is sent imports.

        Those that changed since they were sent are among them. Nothing for a worker that reads the same files.
        """
        self.left_out = False
        if self._reads:
            return []
        todo = deque(sorted({*modules, *self._named}))
        folders: dict[str, list[Path]] = {}
        seen: set[str] = set()
        found: list[Source] = []
        while todo:
            for name in with_parents(todo.popleft()):
                if name in seen:
                    continue
                seen.add(name)
                path = self._find(name, folders)
                source = _read(name, path) if path is not None else None
                if source is None or source.text == self._sent.get(name):
                    continue
                self.left_out = self._is_too_much(source)
                if self.left_out:
                    return found
                found.append(self._noted(source))
                todo.extend(sorted(self._named - seen))
        return found

    def _noted(self, source: Source) -> Source:
        """Note a source that is sent, and what it imports."""
        if not self._reads:
            self._sent[source.module] = source.text
            package = Path(source.file).name == "__init__.py"
            self._named |= imported(source.text, source.module if package else source.module.rpartition(".")[0])
        return source

    def _is_too_much(self, source: Source) -> bool:
        lazy = {name: text for name, text in self._sent.items() if name not in self._known}
        lazy[source.module] = source.text
        return len(lazy) > MOST_MODULES or sum(map(len, lazy.values())) > MOST_BYTES

    def _find(self, name: str, folders: dict[str, list[Path]]) -> Path | None:
        """Return the file of a module that is not loaded, if it lies below the folder. ``folders``: of its package."""
        parent, _, last = name.rpartition(".")
        if name in sys.modules:
            inside = (one for one in getattr(sys.modules[name], "__path__", ()) if one.startswith(self._begin))
            folders[name] = [Path(one) for one in inside]
            return None
        if parent:
            bases = folders.get(parent, [])
        else:
            bases = [Path(one or os.curdir) for one in sys.path] if self._is_first(name) else []
        bases = [base for base in bases if self._has(base)]
        for base in bases:
            if self._has(path := base / last / "__init__.py"):
                folders[name] = [path.parent]
                return path
            if self._has(path := base / f"{last}.py"):
                return path
        folders[name] = [base / last for base in bases]  # a package without a file, if it is one
        return None

    def _is_first(self, name: str) -> bool:
        """Tell whether Python would take a module from the folder, and not from elsewhere."""
        spec = None if name in sys.builtin_module_names else PathFinder.find_spec(name)
        if spec is None:
            return False
        return any(self._has(Path(one)) for one in [spec.origin, *(spec.submodule_search_locations or ())] if one)

    def _has(self, path: Path) -> bool:
        """Tell whether something is there, below the folder or the folder itself, and no package that is installed."""
        whole = path.resolve()
        return whole.exists() and whole.is_relative_to(self._folder.resolve()) and _INSTALLED.isdisjoint(whole.parts)

    def _loaded(self) -> Iterable[tuple[str, Any]]:
        """Yield the names of modules with what says where they are from: another object each time one is loaded."""
        for name, module in list(sys.modules.items()):
            spec = getattr(module, "__spec__", None)
            origin = getattr(spec, "origin", None)
            if not isinstance(origin, str) or not (origin.startswith(self._begin) and origin.endswith(".py")):
                continue  # text is compared, as there are thousands of modules and this is before each cell
            if _INSTALLED.isdisjoint(Path(origin).parts):
                yield name, spec


def _read(name: str, path: Path) -> Source | None:
    """Return a source; None if there is none any more."""
    try:
        return Source(name, str(path.absolute()), decode_source(path.read_bytes()))
    except (OSError, ValueError, SyntaxError):  # removed meanwhile, or of no encoding
        return None


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
