"""Language packs: found as JupyterLab finds them, and read with care."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from jupyter_gpu_hub.state import language_packs
from jupyter_gpu_hub.state.language_packs import Languages, catalogues, read_words

from . import language_pack


def test_installed_pack_is_found_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not imported; only packs with words of ours count."""
    file = language_pack.install(tmp_path, "xx_YY", {"Save": "Speichern"})
    other = language_pack.install(tmp_path, "fr_FR", {})
    other.rename(other.with_name("jupyterlab.json"))
    monkeypatch.syspath_prepend(str(tmp_path))
    found = catalogues()
    assert found["xx_YY"] == (file,)
    assert "fr_FR" not in found
    assert read_words(file) == {"Save": "Speichern"}


def test_words_of_a_pack_win_over_our_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words that a pack lacks come from the package; English has no words."""
    for name, words in (("own", {"Save": "Sichern", "Close": "Zu"}), ("packs", {"Save": "Speichern"})):
        language_pack.install(tmp_path / name, "xx_YY", words)
        monkeypatch.syspath_prepend(str(tmp_path / name))
    monkeypatch.setattr(language_packs, "OWN", "jupyterlab_language_pack_xx_YY")
    own = tmp_path / "own" / "jupyterlab_language_pack_xx_YY"
    monkeypatch.setattr(language_packs, "_folders", lambda _: iter((own, tmp_path / "packs" / own.name)))
    languages = Languages()
    assert languages.liked("xx").words == {"Save": "Speichern", "Close": "Zu"}
    assert languages.liked("xx") is languages.liked("xx-YY")
    assert languages.liked("en, xx").words == {}


def test_hub_may_choose_the_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then what browsers like has no effect; without a pack it is English."""
    language_pack.install(tmp_path, "xx_YY", {"Save": "Speichern"})
    monkeypatch.syspath_prepend(str(tmp_path))
    assert Languages("xx").liked("en").locale == "xx_YY"
    assert Languages("yy").liked("xx").locale == "en"


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
