"""Catalogues of installed language packs, found and read as JupyterLab does.

A pack is a package with the entry point ``jupyterlab.languagepack``, by name of its locale; a package with translations
of its own has ``jupyterlab.locale``. Both have ``locale/de_DE/LC_MESSAGES/jupyter_gpu.json``. They are found without
being imported, and without JupyterLab, which the service's image does not have.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from jupyter_gpu.model import strict
from jupyter_gpu_hub.rules.translation import words_of

DOMAIN = "jupyter_gpu"
"""Name of our catalogues."""
MAX_BYTES = 4 * 2**20

_log = logging.getLogger(__name__)


def catalogues() -> Mapping[str, Path]:
    """Return the file of each locale that has words of ours; a pack comes before the package's own."""
    found: dict[str, Path] = {}
    for group in ("jupyterlab.locale", "jupyterlab.languagepack"):
        for entry in sorted(entry_points(group=group), key=lambda entry: entry.name):
            for folder in _folders(entry.module):
                files = (folder / "locale").glob(f"*/LC_MESSAGES/{DOMAIN}.json")
                found.update({file.parents[1].name: file for file in files})
    return found


@lru_cache(maxsize=8)
def read_words(file: Path) -> Mapping[str, str]:
    """Return the words of a catalogue; none where it cannot be read, which is logged."""
    try:
        with file.open("rb") as stream:
            return words_of(strict.loads(stream.read(MAX_BYTES + 1), MAX_BYTES))
    except (OSError, strict.FieldError) as error:
        _log.warning("The language pack %s can't be read, so the page is English: %s", file, error)
        return {}


def _folders(module: str) -> Iterator[Path]:
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        return
    yield from map(Path, spec.submodule_search_locations or () if spec else ())
