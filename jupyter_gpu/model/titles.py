"""The names of notebooks and consoles: whole, and as short as they are unique. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Title(NamedTuple):
    """The title of the notebook or console that a kernel belongs to."""

    path: str
    """Whole, below the server's folder. A console has its name, as its path is made up."""
    label: str
    """The shortest end of it that nothing else ends with."""


def labels(paths: Iterable[str]) -> dict[str, str]:
    """Find for each of ``paths`` the shortest end, cut at a slash, that no other has; else all of it."""
    parts = {path: path.split("/") for path in paths}
    ends = Counter(tuple(words[-size:]) for words in parts.values() for size in range(1, len(words) + 1))
    return {path: "/".join(_shortest(words, ends)) for path, words in parts.items()}


def _shortest(words: list[str], ends: Counter[tuple[str, ...]]) -> list[str]:
    for size in range(1, len(words)):
        if ends[tuple(words[-size:])] == 1:
            return words[-size:]
    return words


def titles(sessions: Iterable[Mapping[str, Any]]) -> dict[str, Title]:
    """Return titles by kernel id; ``sessions`` as in Jupyter's API. Of several for a kernel, a notebook comes first."""
    paths: dict[str, str] = {}
    for session in sorted(sessions, key=lambda session: session.get("type") != "notebook"):
        kernel, path = session.get("kernel"), _path(session)
        if kernel and path:
            paths.setdefault(str(kernel["id"]), path)
    times = Counter(paths.values())
    whole = {id_: path if times[path] == 1 else f"{path} (kernel {id_})" for id_, path in paths.items()}
    short = labels(whole.values())
    return {id_: Title(path, short[path]) for id_, path in whole.items()}


def _path(session: Mapping[str, Any]) -> str:
    path = str(session.get("path") or "")
    if session.get("type") != "console" or not session.get("name"):
        return path
    folder, slash, _ = path.rpartition("/")
    return f"{folder}{slash}{session['name']}"
