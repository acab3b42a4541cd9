"""Pure: cached answers to questions about single nodes."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

MEMOS = 256
"""Questions whose answers are cached; the least recently used one is dropped for a new one."""


class Memos:
    """Answers by question and node. An answer may depend on nothing but the question and what `drop` is called for."""

    def __init__(self) -> None:
        self._answers: dict[Hashable, dict[str, Any]] = {}

    def of(self, question: Hashable) -> dict[str, Any]:
        """Return the cached answers to one question, by node; the caller adds those that are missing."""
        answers = self._answers.pop(question, None)
        if answers is None:
            answers = {}
            if len(self._answers) >= MEMOS:
                del self._answers[next(iter(self._answers))]
        self._answers[question] = answers
        return answers

    def drop(self, node: str) -> None:
        """Drop all answers for a node."""
        for answers in self._answers.values():
            answers.pop(node, None)
