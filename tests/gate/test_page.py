"""The page of the admin guide that tells what is gated, and what is not."""

from scripts.lib import gated


def test_page_is_up_to_date() -> None:
    """``python -m scripts.lib.gated`` writes the same table."""
    text = gated.GUIDE.read_text()
    assert gated.BEGIN in text
    assert gated.END in text
    assert gated.page(text) == text


def test_page_is_right_for_each_function() -> None:
    """No function is gated of a kind that is said not to be, and none is left out of one that is."""
    assert gated.missing() == []
    assert {gated.kind_of(name) for name, _, _ in gated.functions()} == set(gated.KINDS)
    assert gated.ours() <= {name + end for name, end, _ in gated.functions()}
