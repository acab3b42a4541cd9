"""The record of the shares that the node plugin served."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_node.agent.sharing import served_shares
from jupyter_gpu_node.agent.sharing.served_shares import Served
from jupyter_gpu_node.shares.rules.turns.terms import Terms

BOOT = "6c4ba5e0"
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,40}", fullmatch=True)
terms = st.builds(Terms, st.integers(1, 250), st.none() | st.integers(0, 2**53 - 1))
served = st.dictionaries(names, st.dictionaries(names, terms, max_size=4), max_size=4)


@given(served)
def test_written_shares_are_read_again(shares: Served) -> None:
    """All of them."""
    assert served_shares.parse(served_shares.serialize(shares, BOOT), BOOT) == shares


@given(served, st.binary(max_size=3), st.integers(0), st.integers(0, 200))
def test_any_file_gives_shares_or_an_expected_error(shares: Served, noise: bytes, at: int, cut: int) -> None:
    """Shares that a GPU can have, or an error that is expected."""
    text = served_shares.serialize(shares, BOOT)
    at %= len(text)
    with contextlib.suppress(ValueError):
        found = served_shares.parse(text[:at] + noise + text[at + cut :], BOOT)
        assert all(sum(one.milli for one in pods.values()) <= 1000 for pods in found.values())


@pytest.mark.parametrize(
    "gpus",
    [
        {"GPU-0": {"pod": {"milli": 0}}},
        {"GPU-0": {"pod": {"milli": 1001}}},
        {"GPU-0": {"pod": {"milli": 250, "limit": -1}}},
        {"GPU-0": {"pod": {"limit": 5}}},
        {"GPU-0": {"one": {"milli": 600}, "other": {"milli": 600}}},
        {"../GPU-0": {"pod": {"milli": 250}}},
        {"GPU-0": {"../pod": {"milli": 250}}},
        {"GPU-0": []},
        [],
    ],
)
def test_impossible_shares_are_refused(tmp_path: Path, gpus: Any) -> None:
    """None of them is believed, and the file is put aside."""
    path = tmp_path / "served.json"
    path.write_text(json.dumps({"version": 1, "boot": BOOT, "gpus": gpus}))
    assert served_shares.load(path, BOOT) == {}
    assert [file.name for file in tmp_path.iterdir()] == ["served.broken"]


def test_file_is_ignored_after_a_boot(tmp_path: Path) -> None:
    """It is for the next start of the plugin, not of the machine: no program of then is there."""
    path = tmp_path / "state" / "served.json"
    shares = {"GPU-0": {"one": Terms(250), "other": Terms(500, 2**30)}}
    assert served_shares.load(path, BOOT) == {}
    served_shares.save(path, shares, BOOT)
    assert served_shares.load(path, BOOT) == shares
    assert served_shares.load(path, "another") == {}
    assert served_shares.load(path, BOOT) == shares
