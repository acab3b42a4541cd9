"""The front end, read from its source: rooms, modules, the comments at their beginnings, imports."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from scripts.lib.tree import ROOT, Module, first_sentence

NAME = "labextension"
FOLDER = ROOT / NAME
IMPORT = re.compile(r"(?:\bfrom|\bimport|\bimport\((?:/\*.*?\*/)?)\s*'(\.[^']+)'")
BAR = r"\|"
"""A vertical bar in a table's cell."""
COMMENT = re.compile(r"/\*\*(.*?)\*/", re.DOTALL)


def rooms(folder: Path = FOLDER) -> dict[str, str]:
    """Return the folders of `src/` from the top down, each with its purpose."""
    listed = json.loads((folder / "rooms.json").read_text(encoding="utf-8"))
    return {name: room["purpose"] for name, room in reversed(listed.items())}


def read(folder: Path = FOLDER) -> dict[str, Module]:
    """Return all modules by name, such as `labextension.api.view`."""
    source = folder / "src"
    paths = sorted([*source.rglob("*.ts"), *source.rglob("*.tsx")])
    known = {path.with_suffix("") for path in paths}
    modules = {}
    for path in paths:
        text = path.read_text(encoding="utf-8")
        named = {Path(os.path.normpath(path.parent / name)) for name in IMPORT.findall(text)}
        imports = frozenset(_name(other, source) for other in named & known)
        name = _name(path.with_suffix(""), source)
        modules[name] = Module(name, path, summary(text), imports)
    return modules


def summary(text: str) -> str:
    """Return the first sentence of the comment with which a file begins; empty if it begins with something else."""
    comment = COMMENT.match(text)
    return first_sentence(re.sub(r"^ *\* ?", "", comment[1], flags=re.MULTILINE).strip()) if comment else ""


def tables(purposes: Mapping[str, str], modules: Mapping[str, Module]) -> str:
    """Return a section for each room: what it is for, and a table of its files."""
    return "\n".join(
        f"#### `{NAME}/src/{room}/`\n\n{purpose}\n\n| file | what it is |\n|---|---|\n"
        + "".join(
            f"| `{module.path.name}` | {module.summary.replace('|', BAR)} |\n"
            for name, module in modules.items()
            if name.startswith(f"{NAME}.{room}.")
        )
        for room, purpose in purposes.items()
    )


def _name(path: Path, source: Path) -> str:
    return ".".join([NAME, *path.relative_to(source).parts])
