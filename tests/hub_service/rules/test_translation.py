"""The language of the page, and the words of a catalogue."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpu.model import strict
from jupyter_gpu.model.message import gettext
from jupyter_gpu_hub.rules.translation import EN, MAX_WORDS, Language, choose, wanted, words_of


@pytest.mark.parametrize(
    ("header", "languages"),
    [
        ("de-CH, fr;q=0.9, en;q=0.8, *;q=0.5", ("de-CH", "fr", "en")),
        ("en;q=0.5,de", ("de", "en")),
        ("de;q=0", ()),
        ("../../etc, de;q=x, , zh-Hans-CN", ("zh-Hans-CN",)),
        ("", ()),
    ],
)
def test_header_is_read_in_order_of_liking(header: str, languages: tuple[str, ...]) -> None:
    """Tags that are no language are left out."""
    assert wanted(header) == languages


@pytest.mark.parametrize(
    ("languages", "locale"),
    [
        (("de-DE",), "de_DE"),
        (("de",), "de_AT"),
        (("de-CH",), "de_AT"),
        (("fr", "de-DE"), "de_DE"),
        (("en-US", "de"), "en"),
        (("fr",), "en"),
        ((), "en"),
    ],
)
def test_first_language_that_there_is_is_chosen(languages: tuple[str, ...], locale: str) -> None:
    """A region that there is not falls back to another of the language; English needs no pack."""
    assert choose(languages, ["de_DE", "de_AT", "zh_CN"]) == locale


def test_words_are_the_plain_messages() -> None:
    """The head of the catalogue, contexts, plural forms, and what is not translated stay out."""
    catalogue = {
        "": {"domain": "jupyter_gpu", "language": "de"},
        "Limit": ["Limit"],
        "Save": ["Speichern"],
        "menu\x04Save": ["Sichern"],
        "%1 GPU": ["%1 GPU", "%1 GPUs"],
        "Close": [""],
        "Open": "Öffnen",
        "Bad": [7],
    }
    assert words_of(catalogue) == {"Limit": "Limit", "Save": "Speichern"}


@pytest.mark.parametrize("catalogue", [[], "x", {str(i): ["x"] for i in range(MAX_WORDS + 1)}])
def test_what_is_no_catalogue_is_refused(catalogue: Any) -> None:
    """So is one that is far too large."""
    with pytest.raises(strict.FieldError):
        words_of(catalogue)


def test_language_says_what_it_has_words_for() -> None:
    """The rest is English; so is all in English."""
    german = Language("de_DE", {"No user is found.": "Niemand."})
    assert (german.tag, EN.tag) == ("de-DE", "en")
    assert [german.say(gettext(text)) for text in ("No user is found.", "Next")] == ["Niemand.", "Next"]
    assert EN.say(gettext("No user is found.")) == "No user is found."
