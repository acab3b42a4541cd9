"""Parameters of the driver's functions, read from the header of an installed CUDA toolkit."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FUNCTIONS = ROOT / "node_plugin/gate/driver/functions.def"
"""Every function of the driver by the gate's list: name, suffix of its symbol, first version."""
_DECLARED = re.compile(r"CUresult\s+CUDAAPI\s+(\w+)\s*\(([^;]*)\)\s*;")
_LISTED = re.compile(r"F\((\w+), (\w*), (\d+), \w+\)")


class Parameter(NamedTuple):
    """A parameter: type without `const`, depth of pointers, name, and whether what it points to is constant."""

    kind: str
    depth: int
    name: str
    constant: bool


def _headers() -> Iterator[Path]:
    for folder in (os.environ.get("CUDA_PATH", ""), "/usr/local/cuda"):
        if folder:
            yield Path(folder) / "include/cuda.h"
    yield from sorted(Path("/usr/local").glob("cuda-*/include/cuda.h"))
    for package, below in (("nvidia", "*/include/cuda.h"), ("triton", "backends/nvidia/include/cuda.h")):
        found = importlib.util.find_spec(package)
        for place in (found.submodule_search_locations or ()) if found else ():
            yield from sorted(Path(place).glob(below))


def header() -> Path:
    """Return the first cuda.h that there is. Raises FileNotFoundError."""
    for path in _headers():
        if path.is_file():
            return path
    raise FileNotFoundError("no cuda.h: name its toolkit in CUDA_PATH")


def _parameter(text: str) -> Parameter:
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL).strip()
    depth = text.count("*") + text.count("[")
    words = re.findall(r"\w+", text.split("[")[0])
    constant = "const" in words
    words = [word for word in words if word not in ("const", "struct", "enum")]
    name = words[-1] if len(words) > 1 else ""
    return Parameter(" ".join(words[:-1] if name else words), depth, name, constant)


def _declared(text: str) -> Mapping[str, tuple[Parameter, ...]]:
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    found: dict[str, tuple[Parameter, ...]] = {}
    for name, inside in _DECLARED.findall(text):
        parts = [part for part in inside.split(",") if part.strip() not in ("", "void")]
        found.setdefault(name, tuple(map(_parameter, parts)))  # the first one is the newest form
    return found


def newest(version: int) -> Mapping[str, tuple[str, tuple[Parameter, ...] | None]]:
    """Return each function's newest symbol up to a version of CUDA, with its parameters if the header declares them."""
    declared = _declared(header().read_text(errors="replace"))
    found: dict[str, tuple[int, str]] = {}
    for name, suffix, first in _LISTED.findall(FUNCTIONS.read_text()):
        if suffix.endswith(("_ptsz", "_ptds")) or int(first) > version:
            continue
        found[name] = max(found.get(name, (0, "")), (int(first), name + suffix))
    return {name: (symbol, declared.get(symbol, declared.get(name))) for name, (_, symbol) in sorted(found.items())}
