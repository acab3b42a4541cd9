"""The connections of a worker that say what cannot be read."""

from __future__ import annotations

from jupyter_gpu.worker.unreadable import PATIENCE, REMEMBERED, Unreadable


def test_few_words_are_answered() -> None:
    """Those of each connection are counted by themselves."""
    words = Unreadable()
    for _ in range(PATIENCE):
        assert not words.ignores(b"a")
        words.add(b"a")
    assert words.ignores(b"a")
    assert not words.ignores(b"b")


def test_what_is_remembered_is_bounded() -> None:
    """The connection that was counted first is forgotten, and begins anew."""
    words = Unreadable()
    for _ in range(PATIENCE):
        words.add(b"first")
    for number in range(REMEMBERED - 1):
        words.add(b"%d" % number)
    assert words.ignores(b"first")
    words.add(b"last")
    assert not words.ignores(b"first")
    assert len(words._words) == REMEMBERED
