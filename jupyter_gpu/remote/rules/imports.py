"""Pure: the modules that a source imports, at its start or when one of its functions is called."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_CALLS = frozenset(["import_module", "__import__"])


def imported(text: str, package: str = "") -> frozenset[str]:
    """Return the absolute names that a source of a package imports, with what it takes from them: that may be modules.

    Nothing of a text that is no Python. Names that are computed cannot be seen.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):  # it will say so where it runs
        return frozenset()
    return frozenset(name for node in ast.walk(tree) for name in _names(node, package))


def with_parents(name: str) -> list[str]:
    """Return the packages that hold a module, outermost first, and the module."""
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]


def _names(node: ast.AST, package: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = _base(node, package)
        if base:
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")
    elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        name = node.args[0].value
        if called in _CALLS and isinstance(name, str) and all(part.isidentifier() for part in name.split(".")):
            yield name


def _base(node: ast.ImportFrom, package: str) -> str:
    """Return the module from which names are imported; empty if it lies above the outermost package."""
    if not node.level:
        return node.module or ""
    parts = package.split(".")[: len(package.split(".")) - node.level + 1] if package else []
    return ".".join([*parts, *filter(None, [node.module])]) if parts else ""
