"""How long the hub's answers about tokens count."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_hub.rules.access import visitor
from jupyter_gpu_hub.rules.answers import Answer, Answers, small

ANN = {"name": "ann"}


def test_answer_counts_for_a_while_and_longer_while_the_hub_cannot_be_asked() -> None:
    """Each time by the moment at which the hub was asked."""
    answers = Answers(fresh=3, usable=30)
    answers.put("a", Answer(ANN, 10))
    assert answers.fresh("a", 12.9) == Answer(ANN, 10)
    assert answers.fresh("a", 13) is None
    assert answers.usable("a", 39.9) == Answer(ANN, 10)
    assert answers.usable("a", 40) is None
    assert answers.fresh("b", 10) is None
    assert answers.usable("b", 10) is None


def test_token_that_is_not_known_is_soon_asked_for_again() -> None:
    """No request is let in, or kept out, by such an answer for longer."""
    answers = Answers(fresh=3, usable=30)
    answers.put("a", Answer(None, 10))
    assert answers.fresh("a", 12) == Answer(None, 10)
    assert answers.usable("a", 12) is None


def test_revoked_token_replaces_what_was_known() -> None:
    """An answer that comes late and was asked for earlier does not bring it back."""
    answers = Answers(fresh=3, usable=30)
    answers.put("a", Answer(ANN, 10))
    answers.put("a", Answer(None, 11))
    answers.put("a", Answer(ANN, 10.5))
    assert answers.fresh("a", 12) == Answer(None, 11)


def test_usable_is_at_least_fresh() -> None:
    """A cache that counts for a minute does so whether the hub is busy or not."""
    answers = Answers(fresh=60, usable=30)
    answers.put("a", Answer(ANN, 0))
    assert answers.usable("a", 59) == Answer(ANN, 0)


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.floats(0, 5)), max_size=60))
def test_old_answers_are_forgotten(steps: list[tuple[str, float]]) -> None:
    """No more are kept than may be, and none that counts no more once a new one came."""
    answers, now = Answers(fresh=1, usable=4, most=5), 0.0
    for key, pause in steps:
        now += pause
        answers.put(key, Answer(ANN, now))
        assert answers.fresh(key, now) == Answer(ANN, now)
        assert len(answers) <= 5
    if steps:
        answers.put("new", Answer(ANN, now + 100))
        assert len(answers) == 1


def test_of_an_owner_little_is_kept() -> None:
    """It is the same visitor; scopes about other things, and fields that are read nowhere, are left out."""
    model = {
        "kind": "user",
        "name": "ann",
        "admin": True,
        "groups": ["ml"],
        "server": "/user/ann/",
        "scopes": ["access:services!service=gpu", "access:servers!server=ann/", "custom:gpu:limits", "list:users", 3],
    }
    kept = small(model)
    assert kept == {
        "kind": "user",
        "name": "ann",
        "admin": True,
        "groups": ("ml",),
        "scopes": ("access:services!service=gpu", "access:servers!server=ann/", "custom:gpu:limits"),
    }
    entry = ["access:services!service=gpu"]
    assert visitor(kept, entry) == visitor(model, entry) is not None
    assert small(None) is None
    assert small([]) is None
    assert small({"name": "ann", "groups": "ml"}) == {"name": "ann", "groups": (), "scopes": ()}
