"""Catalogues of installed language packs, found and read as JupyterLab does.

A pack is a package with the entry point ``jupyterlab.languagepack``, by name of its locale; a package with translations
of its own, such as jupyter-gpu, has ``jupyterlab.locale``. Both have ``locale/de_DE/LC_MESSAGES/jupyter_gpu.json``.
They are found without being imported, and without JupyterLab, which the service's image does not have.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from jupyter_gpu.model import strict
from jupyter_gpu.model.message import DOMAIN
from jupyter_gpu_hub.rules.translation import EN, ENGLISH, Language, choose, wanted, words_of

MAX_BYTES = 4 * 2**20
OWN = "jupyter_gpu"
"""The package with translations of our own."""

_log = logging.getLogger(__name__)


class Languages:
    """The languages that were installed when the service started, read when they are first wanted."""

    def __init__(self, chosen: str = "") -> None:
        """``chosen``: the language of everybody, if there is a pack; empty: the one that each browser likes best."""
        self._chosen = chosen
        self._files = catalogues()
        self._known = {ENGLISH: EN}

    def liked(self, header: str) -> Language:
        """Return the language for a request with this ``Accept-Language``."""
        locale = choose((self._chosen,) if self._chosen else wanted(header), self._files)
        if locale not in self._known:
            words: dict[str, str] = {}
            for file in self._files[locale]:
                words.update(read_words(file))
            self._known[locale] = Language(locale, words)
        return self._known[locale]


def catalogues() -> Mapping[str, tuple[Path, ...]]:
    """Return the files of each locale that has words of ours. Later ones win: our own come before those of packs."""
    found: dict[str, tuple[Path, ...]] = {}
    for module in (OWN, *_modules("jupyterlab.locale"), *_modules("jupyterlab.languagepack")):
        for folder in _folders(module):
            for file in sorted((folder / "locale").glob(f"*/LC_MESSAGES/{DOMAIN}.json")):
                locale = file.parents[1].name
                found[locale] = (*(known for known in found.get(locale, ()) if known != file), file)
    return found


def read_words(file: Path) -> Mapping[str, str]:
    """Return the words of a catalogue; none where it cannot be read, which is logged."""
    try:
        with file.open("rb") as stream:
            return words_of(strict.loads(stream.read(MAX_BYTES + 1), MAX_BYTES))
    except (OSError, strict.FieldError) as error:
        _log.warning("The language pack %s can't be read, so its words stay English: %s", file, error)
        return {}


def _modules(group: str) -> list[str]:
    return [entry.module for entry in sorted(entry_points(group=group), key=lambda entry: entry.name)]


def _folders(module: str) -> Iterator[Path]:
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        return
    yield from map(Path, spec.submodule_search_locations or () if spec else ())
