"""The use classes of a pod's GPUs: what rests, since when, and what is published."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu_node.agent.rules.use_class import APART, UseScan, UseScans, reported
from jupyter_gpu_node.agent.rules.work import TurnTotals, used

SCAN = 5.0
"""Seconds from scan to scan."""


def published(*scans: tuple[str, str], pod: UseScans | None = None, recorded: str = "") -> list[tuple[str, str] | None]:
    """Return, for each scan of what is open and used, what was published after it (open, resting); None: nothing."""
    pod = pod or UseScans()
    found: list[tuple[str, str] | None] = []
    for number, (opened, used_now) in enumerate(scans):
        scan = UseScan(number * SCAN, frozenset(opened), frozenset(used_now))
        changed = pod.observe(scan, 60, frozenset(recorded))
        found.append(("".join(sorted(pod.open or ())), "".join(sorted(pod.rests))) if changed else None)
    return found


def test_open_gpus_change_only_after_two_equal_scans() -> None:
    """A program that opens and closes a GPU again and again causes no writes."""
    scans = UseScans()
    found = published(*((found, "") for found in ("a", "b", "a", "a", "a", "b", "a", "b", "b")), pod=scans)
    assert [one and one[0] for one in found] == [None, None, None, "a", None, None, None, None, "b"]


def test_open_gpu_rests_after_a_minute_without_use_seen_twice() -> None:
    """The minute begins with the last scan that saw it used."""
    found = published(("a", ""), *[("a", "a")] * 3, *[("a", "")] * 15)
    assert found[1] == ("a", "")
    assert [number for number, one in enumerate(found) if one] == [1, 3 + 12 + 1]
    assert found[16] == ("a", "a")


def test_first_use_takes_the_rest_back() -> None:
    """The next rest needs a whole minute again."""
    quiet = [("a", "")] * 15
    found = published(*quiet, ("a", "a"), *quiet)
    assert {number: one for number, one in enumerate(found) if one} == {
        1: ("a", ""),
        13: ("a", "a"),
        15: ("a", ""),
        28: ("a", "a"),
    }


def test_gpu_that_is_closed_does_not_rest() -> None:
    """One that is opened again works for a minute, as its program does something with it."""
    found = published(*[("ab", "b")] * 15, *[("b", "b")] * 2, *[("ab", "b")] * 14)
    assert {number: one for number, one in enumerate(found) if one} == {
        1: ("ab", ""),
        13: ("ab", "a"),
        16: ("b", ""),
        18: ("ab", ""),
        30: ("ab", "a"),
    }
    flaps = published(*[("a", "")] * 15, ("", ""), *[("a", "")] * 3)
    assert {number: one for number, one in enumerate(flaps) if one} == {1: ("a", ""), 13: ("a", "a"), 16: ("a", "")}


def test_rest_that_an_earlier_process_recorded_goes_on() -> None:
    """So a node plugin that starts anew writes nothing; a use ends that rest as any other."""
    assert published(("a", ""), ("a", ""), ("a", ""), recorded="a") == [None, ("a", "a"), None]
    assert published(("a", ""), ("a", "a"), ("a", "a"), recorded="a") == [None, ("a", ""), None]
    assert published(("", ""), ("a", ""), ("a", ""), recorded="a") == [None, None, ("a", "")], "it was closed"


scans = st.tuples(st.sets(st.sampled_from("abc")), st.sets(st.sampled_from("abc")))


@given(st.lists(scans, max_size=60), st.sampled_from([0.5, 10, 60]))
def test_changes_come_with_every_second_scan_at_most(found: list[tuple[set[str], set[str]]], rest: float) -> None:
    """Whatever programs do; what rests is open, and was not used within the time that counts as rest."""
    pod, last, used_at = UseScans(), -APART, dict.fromkeys("abc", 0.0)
    for number, (opened, used_now) in enumerate(found):
        at = number * SCAN
        for uuid in "abc":
            if uuid in used_now & opened:
                used_at[uuid] = at
        if pod.observe(UseScan(at, frozenset(opened), used_now & opened), rest):
            assert number - last >= APART
            last = number
            assert pod.open is not None
            assert pod.rests <= pod.open
            assert all(at - used_at[uuid] >= rest for uuid in pod.rests)


def test_rest_is_known_before_it_is_published() -> None:
    """So a shrink chooses by the last scans, though the record may be changed later."""
    pod = UseScans()
    published(*[("a", "")] * 14, pod=pod)
    assert (pod.resting, pod.rests) == (frozenset("a"), frozenset("a"))
    pod.observe(UseScan(70, frozenset("ab"), frozenset("a")), 60)
    assert (pod.resting, pod.rests) == (frozenset(), frozenset("a"))


def test_only_shares_of_the_pod_are_reported() -> None:
    """A GPU that rests is open; the lists are sorted, so that an equal report is an equal text."""
    shares = [GpuShare(uuid, 500) for uuid in ("c", "b", "a")]
    assert reported(shares, frozenset("dbca"), frozenset("da")) == (("a", "b", "c"), ("a",))
    assert reported(shares, ["b"], ["a"]) == (("b",), ())


@pytest.mark.parametrize(
    ("turns", "seen", "result"),
    [
        (TurnTotals(5, 6, alone=True), False, True),
        (TurnTotals(5, 5, alone=True), True, False),
        (TurnTotals(None, 5, alone=True), None, False),
        (TurnTotals(5, 6, alone=False), False, True),
        (TurnTotals(5, 5, alone=False), True, True),
        (TurnTotals(5, 5, alone=False), False, False),
        (TurnTotals(5, 5, alone=False), None, True),
        (None, True, True),
        (None, False, False),
        (None, None, True),
    ],
)
def test_use_is_what_turns_or_the_driver_say(turns: TurnTotals | None, seen: bool | None, result: bool) -> None:
    """Turns alone where a pod has a part of the GPU; what neither of them tells counts as use."""
    assert used(turns, seen) is result
