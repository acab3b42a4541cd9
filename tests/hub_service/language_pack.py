"""A small language pack, installed as pip does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path


def install(folder: Path, locale: str, words: Mapping[str, str] | str) -> Path:
    """Install a pack into ``folder``, to be put on Python's path; return its catalogue. Text: as the file has it."""
    name = f"jupyterlab_language_pack_{locale}"
    file = folder / name / "locale" / locale / "LC_MESSAGES" / "jupyter_gpu.json"
    file.parent.mkdir(parents=True)
    (folder / name / "__init__.py").write_text("raise AssertionError('a pack is not imported')\n")
    catalogue = {"": {"domain": "jupyter_gpu", "language": locale}}
    file.write_text(words if isinstance(words, str) else json.dumps(catalogue | {k: [v] for k, v in words.items()}))
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[jupyterlab.languagepack]\n{locale} = {name}\n")
    return file
