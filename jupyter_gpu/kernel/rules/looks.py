"""Pure: libraries that looked for GPUs while a kernel had none, and what the kernel says about them.

A library that calls the driver itself looks again at its next call. One that uses the CUDA runtime looks once in the
life of a process, and keeps the answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

RUNTIME_SECTION = b"\0.nv_fatbin\0"
"""Name of a section with CUDA kernels, as it stands between others: a library that has it uses the CUDA runtime."""
_RUNTIME = re.compile(r"libcudart[.-]")
_PACKAGES = re.compile(r".*/(?:site|dist)-packages/(.+)", re.DOTALL)
_FOREIGN_CALLS = "libffi."
"""Beginning of the name of the library by which `ctypes` calls any other."""
_WITHOUT_NEED = frozenset({"xgboost"})
"""Packages that look for GPUs even for work on the CPU, and warn by themselves if a GPU was asked for."""


def read_looks(text: str) -> dict[str, int]:
    """Read the gate's report: how often each library, by its path, looked for GPUs in vain. Skip other lines."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        times, space, path = line.partition(" ")
        if space and times.isascii() and times.isdigit():
            found[path] = found.get(path, 0) + int(times)
    return found


def uses_runtime(path: str, section_names: bytes) -> bool:
    """Tell whether the library at ``path`` uses the CUDA runtime.

    ``section_names``: those of its ELF sections, each with a 0 before and behind it.
    """
    return bool(_RUNTIME.match(_file(path))) or RUNTIME_SECTION in section_names


def package(path: str) -> str:
    """Return the name of the Python package that has the library at ``path``; "" if that is unknown."""
    below = _PACKAGES.fullmatch(path)
    if below is None:
        return ""
    parts = below[1].split("/")
    if parts[0] == "nvidia":  # libraries of NVIDIA's that others use
        return ""
    if parts[:2] == ["cuda", "bindings"]:
        return "cuda.bindings"
    return parts[0].partition(".")[0]


def looked(paths: Iterable[str], kept: Iterable[str], *, program: bool = False) -> str:
    """Return what a kernel without GPUs says of libraries that looked for one, a line for each; "" if nothing.

    ``kept``: those that keep the answer. ``program``: it is a script, which says so at its end.
    """
    once = frozenset(kept)
    lines = []
    for path in paths:
        name = "A program that uses ctypes" if _file(path).startswith(_FOREIGN_CALLS) else package(path)
        if name in _WITHOUT_NEED:
            continue
        source = f"cuInit, from {_file(path)}" if path else "cuInit"
        place = "program" if program else "kernel"
        what = f"{name or 'A library'} looked for a GPU ({source}), and this {place} has none. "
        if program:
            lines.append(what + "gpu.resize(1) before it looks.")
        elif path in once:
            lines.append(what + "It looks only once, so to use a GPU with it: gpu.resize(1), then restart this kernel.")
        else:
            lines.append(what + "gpu.resize(1), then run the cell again.")
    return _printable(lines)


def looked_too_early(kept: Iterable[str]) -> str:
    """Return what a kernel with GPUs says of libraries that looked before and keep the answer; "" if none did."""
    lines = [
        f"{package(path) or _file(path) or 'A library'} has looked for GPUs before this kernel had any, and it looks "
        "only once: to use them with it, restart this kernel."
        for path in kept
    ]
    return _printable(dict.fromkeys(lines))


def _file(path: str) -> str:
    return path.rpartition("/")[2]


def _printable(lines: Iterable[str]) -> str:
    """Join ``lines``; names of files may have any characters."""
    return "\n".join("".join(sign if sign.isprintable() else "?" for sign in line) for line in lines)
