"""Pure: the language of an answer, chosen from the installed packs by the browser's header, and its words."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from jupyter_gpu.model import strict
from jupyter_gpu.model.message import LANGUAGE, translate

ENGLISH = "en"
MAX_LANGUAGES = 20
"""Most languages of a header that are looked at."""
MAX_WORDS = 20_000
_LANGUAGE = re.compile(rf"({LANGUAGE})(?:\s*;\s*q=([01](?:\.\d{{1,3}})?))?", re.ASCII)
_CONTEXT = "\x04"
"""Separates the context of a message from the message."""


@dataclass(frozen=True, slots=True)
class Language:
    """A language and the words that are known in it."""

    locale: str = ENGLISH
    """``de_DE``, as a folder of a pack."""
    words: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Translations by the English patterns; what is missing stays English."""

    @property
    def tag(self) -> str:
        """Return ``de-DE``, as HTML and HTTP write it."""
        return self.locale.replace("_", "-")

    def say(self, text: object) -> str:
        """Return a text in this language."""
        return translate(text, self.words)


EN = Language()
"""English, which needs no words."""


def wanted(header: str) -> tuple[str, ...]:
    """Return the languages of a header ``Accept-Language``, those liked best first; what cannot be read is left out."""
    found = [_LANGUAGE.fullmatch(part.strip()) for part in header.split(",")[:MAX_LANGUAGES]]
    liked = [(float(match[2] or 1), match[1]) for match in found if match]
    return tuple(language for weight, language in sorted(liked, key=lambda item: -item[0]) if weight > 0)


def choose(languages: Collection[str], available: Collection[str]) -> str:
    """Return the locale of the first language that there is, ``de_DE`` for ``de`` or ``de-CH``; else English."""
    for language in languages:
        key = language.replace("-", "_").lower()
        base = key.partition("_")[0]
        if base == ENGLISH:
            return ENGLISH
        ranked = sorted(
            (locale.lower() != key, locale)
            for locale in available
            if locale.replace("-", "_").lower().partition("_")[0] == base
        )
        if ranked:
            return ranked[0][1]
    return ENGLISH


def words_of(catalogue: Any) -> Mapping[str, str]:
    """Return the translations of a catalogue of JupyterLab (``{"English": ["Deutsch"]}``); raises `FieldError`.

    Messages with a context, plural forms and translations that are empty are left out, and so stay English.
    """
    body = strict.an_object(catalogue, "catalogue")
    if len(body) > MAX_WORDS:
        raise strict.FieldError(f"'catalogue' must have at most {MAX_WORDS} messages.", "catalogue")
    words = {}
    for english, forms in body.items():
        first = forms[0] if isinstance(forms, list) and len(forms) == 1 else None
        if english and _CONTEXT not in english and isinstance(first, str) and first:
            words[english] = first
    return words
