"""The packages of this repository, read from their source without importing them: modules, docstrings, imports."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "jupyter_gpu": ROOT / "jupyter_gpu",
    "jupyter_gpu_scheduler": ROOT / "scheduler" / "jupyter_gpu_scheduler",
    "jupyter_gpu_node": ROOT / "node_plugin" / "jupyter_gpu_node",
    "jupyter_gpu_hub": ROOT / "hub" / "jupyter_gpu_hub",
}
GENERATED = re.compile(r"_version\.py$|_pb2\.py$")


@dataclass(frozen=True)
class Module:
    """One module, or one package by its `__init__`."""

    name: str
    path: Path
    docstring: str
    imports: frozenset[str]
    """Names of other modules of these packages."""

    @property
    def is_package(self) -> bool:
        """Whether other modules lie in it."""
        return self.path.name == "__init__.py"

    @property
    def summary(self) -> str:
        """The first sentence of the docstring, without what the folder says already."""
        return re.sub(r"[;,] pure\.$", ".", first_sentence(self.docstring))


def first_sentence(text: str) -> str:
    """Return the first sentence of a text, on one line."""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return re.split(r"(?<=[.!?])\s+(?=[A-Z`])", paragraph)[0]


def first_comment(path: Path) -> str:
    """Return the first sentence of the comment with which a C file begins; empty if it begins with something else."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    comment = re.match(r"/\*(.*?)\*/", text, re.DOTALL)
    return first_sentence(re.sub(r"^ \* ?", "", comment[1].strip(), flags=re.MULTILINE)) if comment else ""


def read() -> dict[str, Module]:
    """Return all modules by name."""
    sources = dict(_sources())
    return {
        name: Module(name, path, ast.get_docstring(code) or "", frozenset(_imports(name, path, code, sources)))
        for name, (path, code) in sources.items()
    }


def _sources() -> Iterator[tuple[str, tuple[Path, ast.Module]]]:
    for folder in PACKAGES.values():
        for path in sorted(folder.rglob("*.py")):
            if not GENERATED.search(path.name):
                parts = path.relative_to(folder.parent).with_suffix("").parts
                name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
                yield name, (path, ast.parse(path.read_text(encoding="utf-8"), str(path)))


def _imports(name: str, path: Path, code: ast.Module, known: Mapping[str, object]) -> Iterator[str]:
    """Yield what a module imports, wherever in its text, and also for types only."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(code):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                imported = f"{origin}.{alias.name}"
                if imported in known or origin in known:
                    yield imported if imported in known else origin


def is_pure(name: str) -> bool:
    """Return whether a module lies in a folder that is pure as a whole: the model, or one named ``rules``."""
    return "rules" in name.split(".") or name.split(".")[:2] == ["jupyter_gpu", "model"]


def pure_folders(modules: Mapping[str, Module]) -> list[str]:
    """Return the outermost packages that are pure as a whole."""
    return [
        name
        for name, module in modules.items()
        if module.is_package and is_pure(name) and not is_pure(name.rpartition(".")[0])
    ]
