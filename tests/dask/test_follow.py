"""Which workers start, go on and retire."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.dask.rules.follow import Steps, steps
from jupyter_gpu.dask.rules.words import Ready, Schedule, Work
from jupyter_gpu.remote.rules import control

GPUS = st.frozensets(st.sampled_from("abcde"))


@given(attached=GPUS, working=GPUS, held=GPUS)
def test_all_is_in_line_after_one_turn(attached: frozenset[str], working: frozenset[str], held: frozenset[str]) -> None:
    """Each attached GPU has one worker that works, and all others were asked to retire."""
    held -= working
    todo = steps(attached, working, held)
    left = (working | held | todo.start) - todo.retire
    assert left == attached
    assert (working | todo.start | todo.resume) >= attached
    assert steps(attached, left, frozenset()) == Steps()
    assert not todo.start & (working | held)
    assert todo.resume <= held


def test_examples() -> None:
    """One of each row of the table."""
    assert steps({"new", "works", "back"}, {"works", "gone"}, {"back", "kept"}) == Steps(
        start=frozenset({"new"}), resume=frozenset({"back"}), retire=frozenset({"gone", "kept"})
    )


def test_words_there_and_back() -> None:
    """A key is in no representation."""
    for word in (Schedule("c2VjcmV0", ("/x",)), Work("c2VjcmV0", "tls://1", "GPU-1", (".", "/x")), Ready("tls://1")):
        assert control.read(word.dump(), Schedule, Work, Ready) == word
        assert "c2VjcmV0" not in repr(word)
