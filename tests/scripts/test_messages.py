"""Messages that can be translated, and our own translations of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.lib import messages


def test_messages_are_found_in_both_languages() -> None:
    """With all places; text that Python and TypeScript share is one message."""
    found = messages.messages()
    assert {place.partition(":")[0].rpartition(".")[2] for place in found["set for %1"]} == {"py", "ts"}
    assert 'msgid "set for %1"\nmsgstr ""' in messages.template(found)


def test_our_own_translations_fit() -> None:
    """None is of a message that is gone or has other placeholders, and German lacks none."""
    found, own = messages.messages(), messages.catalogues()
    assert own.keys() >= messages.COMPLETE
    assert [messages.problems(catalogue, found) for catalogue in own.values()] == [[] for _ in own]
    assert [messages.missing(own[locale], found) for locale in sorted(messages.COMPLETE)] == [[]]


def test_message_without_translation_is_named_with_its_place() -> None:
    """With the first place, so that the sentence can be read where it is used."""
    found = messages.missing({"": {}, "a": ["b"]}, {"a": ["x.py:1"], "c %1": ["x.py:2", "y.ts:3"]})
    assert found == ["It has no translation: 'c %1' (x.py:2)"]


@pytest.mark.parametrize(
    ("catalogue", "problem"),
    [
        ({"": {}, "a %1": ["b %1"]}, ""),
        ({"gone": ["weg"]}, "no such message"),
        ({"a %1": ["b"]}, "placeholders"),
        ({"a %1": []}, "one translation"),
    ],
)
def test_translation_that_does_not_fit_is_named(catalogue: dict[str, object], problem: str) -> None:
    """A sentence for each."""
    found = messages.problems(catalogue, {"a %1": []})
    assert [problem in text for text in found] == [True] * bool(problem)


def test_calls_are_read_as_they_are_written() -> None:
    """Over lines, in both kinds of quotes; one without a literal is seen."""
    python = 'gettext("a "\n  "b", x)\ngettext(text)\nother("c")'
    assert list(messages.of_python(python)) == [(1, "a b"), (3, None)]
    typescript = "trans.__(\n  'it\\'s' + \" %1\", n)\nthis.trans.__(text)"
    assert list(messages.of_typescript(typescript)) == [(1, "it's %1"), (3, None)]


def test_message_without_a_literal_is_refused(tmp_path: Path) -> None:
    """It could not be extracted."""
    (tmp_path / "jupyter_gpu").mkdir()
    (tmp_path / "jupyter_gpu" / "a.py").write_text("gettext(text)")
    with pytest.raises(ValueError, match=r"jupyter_gpu/a\.py:1: "):
        messages.messages(tmp_path)


def test_command_writes_the_template(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And tells how much of each language is translated."""
    file = tmp_path / "jupyter_gpu.pot"
    assert messages.main([str(file), "--check"]) == 0
    assert "Content-Type" in file.read_text()
    assert "de_DE: " in capsys.readouterr().out
