"""Language packs: found as JupyterLab finds them, and read with care."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from jupyter_gpu_hub.state.language_packs import catalogues, read_words

from . import language_pack


def test_installed_pack_is_found_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not imported; only packs with words of ours count."""
    file = language_pack.install(tmp_path, "de_DE", {"Save": "Speichern"})
    other = language_pack.install(tmp_path, "fr_FR", {})
    other.rename(other.with_name("jupyterlab.json"))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert dict(catalogues()) == {"de_DE": file}
    assert read_words(file) == {"Save": "Speichern"}


@pytest.mark.parametrize("text", ["{", "[]", '{"a": 1' + "0" * 2**22 + "}"])
def test_pack_that_cannot_be_read_leaves_english(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    """The log says which one."""
    file = language_pack.install(tmp_path, "de_DE", text)
    with caplog.at_level(logging.WARNING):
        assert read_words(file) == {}
    assert str(file) in caplog.text


def test_pack_that_is_gone_leaves_english(tmp_path: Path) -> None:
    """It was there when the packs were listed."""
    assert read_words(tmp_path / "gone.json") == {}
