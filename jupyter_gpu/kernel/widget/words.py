"""Translations of the page's words into the language of the kernel, for pages without translations of their own.

JupyterLab and Notebook use the page's own language. Other front ends use that of the kernel's locale, from the same
language packs, if one is installed in the kernel's environment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.metadata import entry_points
from importlib.resources import files

_DOMAIN = "jupyter_gpu"
_OWN = "jupyter_gpu"
"""The package with translations of our own."""
_GROUP = "jupyterlab.languagepack"
_MOST = 1000


def language(environ: Mapping[str, str]) -> str:
    """Return the language, such as ``de_DE``; empty for English and if none is set."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if value := environ.get(name):
            found = re.match(r"[a-z]{2,3}(_[A-Z]{2})?", value)
            return "" if found is None or found[0].startswith("en") else found[0]
    return ""


def catalog(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the translations by the English words, our own and those of a pack, which win; empty if there are none."""
    wanted = language(environ)
    if not wanted:
        return {}
    own = {folder.name: _OWN for folder in (files(_OWN) / "locale").iterdir()}
    packs = {entry.name: entry.value.partition(":")[0] for entry in entry_points(group=_GROUP)}
    return {**_words(wanted, own), **_words(wanted, packs)}


def _words(wanted: str, packages: Mapping[str, str]) -> dict[str, str]:
    """Return the words of the wanted locale, or of another of its language; ``packages``: their names by locale."""
    for name in (wanted, *(name for name in sorted(packages) if name.partition("_")[0] == wanted.partition("_")[0])):
        if name in packages:
            try:
                file = files(packages[name]) / "locale" / name / "LC_MESSAGES" / f"{_DOMAIN}.json"
                return read_catalog(json.loads(file.read_text(encoding="utf-8")))
            except (ImportError, OSError, ValueError):
                return {}
    return {}


def read_catalog(body: object) -> dict[str, str]:
    """Read a file of a language pack, which is not trusted."""
    if not isinstance(body, Mapping):
        return {}
    found = {}
    for key, value in list(body.items())[:_MOST]:
        text = value[0] if isinstance(value, list) and value else value
        if key and isinstance(key, str) and isinstance(text, str) and text:
            found[key] = text
    return found
