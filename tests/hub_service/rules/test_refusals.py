"""Refusals and their JSON."""

from __future__ import annotations

import pytest

from jupyter_gpu_hub.rules.refusals import REASONS, Refusal, of_status


@pytest.mark.parametrize("status", REASONS)
def test_every_status_has_words(status: int) -> None:
    """A reason for programs and a sentence for people."""
    body = of_status(status).to_json()
    assert body["reason"] == REASONS[status]
    assert body["message"].endswith(".")


@pytest.mark.parametrize(("status", "known"), [(418, 400), (599, 500), (502, 503), (504, 503)])
def test_other_statuses_become_known_ones(status: int, known: int) -> None:
    """A program need not know more of them."""
    assert of_status(status).status == known


def test_cause_of_a_client_is_told_and_ours_is_not() -> None:
    """Internal faults are for the log."""
    assert of_status(400, "odd").message.endswith(" (odd)")
    assert "odd" not in of_status(500, "odd").message


def test_details_are_kept() -> None:
    """They are for programs."""
    assert Refusal(409, "No.", theirs={"max": "1"}).to_json()["details"] == {"theirs": {"max": "1"}}
