"""Sentences that can be translated where they are shown: English text that knows its pattern and its values.

The patterns are the message ids of language packs (domain ``jupyter_gpu``), in Python as in TypeScript. Code that makes
a sentence neither knows nor asks for a language: it returns English, and whatever shows it calls `translate`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

DOMAIN = "jupyter_gpu"
"""Name of our catalogues in language packs."""
LANGUAGE = "[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{2,8}){0,3}"
"""Regular expression of a language's name: ``de``, ``de-DE``, ``zh_Hans_CN``."""
MAX_VALUES = 9
"""Most values of a pattern."""


class Message(str):
    """An English sentence, made of a pattern such as ``%1 may have %2`` and its values."""

    __slots__ = ("pattern", "values")

    pattern: str
    values: tuple[object, ...]

    def __new__(cls, pattern: str, *values: object) -> Message:
        """Make the sentence; a value may be a `Message` as well."""
        made = super().__new__(cls, fill(pattern, values))
        made.pattern = pattern
        made.values = values
        return made

    def __getnewargs__(self) -> tuple[object, ...]:  # type: ignore[override] # what copies are made from
        return (self.pattern, *self.values)


def gettext(pattern: str, *values: object) -> Message:
    """Return a sentence; ``pattern`` must be a literal, as that is what ``scripts.lib.messages`` extracts."""
    return Message(pattern, *values)


def sentences(*parts: str) -> Message:
    """Return sentences as one text, each of which is translated by itself; empty ones are left out."""
    said = [part for part in parts if part]
    if len(said) > MAX_VALUES:
        said = [*said[: MAX_VALUES - 1], sentences(*said[MAX_VALUES - 1 :])]
    return Message(" ".join(f"%{number + 1}" for number in range(len(said))), *said)


def message_of(error: BaseException) -> str:
    """Return the sentence that an exception was made with: unlike ``str(error)`` still a `Message` if it was one."""
    return error.args[0] if error.args and isinstance(error.args[0], Message) else str(error)


def is_language(text: str) -> bool:
    """Tell whether a text looks like the name of a language."""
    return re.fullmatch(LANGUAGE, text, re.ASCII) is not None


def fill(pattern: str, values: Iterable[object]) -> str:
    """Return ``%1 of %2`` with its values; a number without a value stays."""
    known = ("", *map(str, values))
    text, *rest = _parts(pattern)
    for number, more in zip(rest[::2], rest[1::2], strict=True):
        at = int(number)
        text += (known[at] if at < len(known) else f"%{number}") + more
    return text


@lru_cache(maxsize=1024)  # in the scheduler the same few again and again
def _parts(pattern: str) -> tuple[str, ...]:
    """Return the text before the first number, and each number with the text after it."""
    return tuple(re.split("%([1-9])", pattern))


def translate(text: object, words: Mapping[str, str]) -> str:
    """Return a text by ``words``, which has translations by the English patterns; anything else stays English."""
    if not isinstance(text, Message):
        return str(text)
    return fill(words.get(text.pattern, text.pattern), (translate(value, words) for value in text.values))


def translated(value: Any, words: Mapping[str, str]) -> Any:
    """Return JSON with each `Message` in it translated; keys stay."""
    if isinstance(value, Mapping):
        return {key: translated(item, words) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [translated(item, words) for item in value]
    return translate(value, words) if isinstance(value, Message) else value
