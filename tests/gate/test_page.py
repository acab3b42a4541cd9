"""The page of the admin guide that says what is gated, and what is not."""

from scripts.lib import gated


def test_it_is_current() -> None:
    """``python -m scripts.lib.gated`` writes what stands there."""
    text = gated.GUIDE.read_text()
    assert gated.BEGIN in text
    assert gated.END in text
    assert gated.page(text) == text


def test_it_says_of_each_function_what_is_so() -> None:
    """None is gated of a kind that is said not to be, and none is left out of one that is."""
    assert gated.missing() == []
    assert {gated.kind_of(name) for name, _, _ in gated.functions()} == set(gated.KINDS)
    assert gated.ours() <= {name + end for name, end, _ in gated.functions()}
