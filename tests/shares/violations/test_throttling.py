"""The allowance for a CPU limit: rules by cases, and the files of both versions."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_node.devices import cgroup
from jupyter_gpu_node.shares.enforcement import cpu_limits
from jupyter_gpu_node.shares.rules.violations.throttling import (
    MOST,
    Groups,
    Throttled,
    allowance,
    parse,
    period_by,
    period_of,
)

MS = 1_000
PERIOD = 100 * MS
FIRST = "usage_usec 5\nnr_periods 9\nnr_throttled 3\nthrottled_usec 700\n"
counters = st.builds(Throttled, st.integers(0, 50), st.integers(0, MOST), st.sampled_from((1_000, PERIOD)))


def test_the_counters_of_both_versions() -> None:
    """Microseconds in the one, nanoseconds in the other; a group that can have no limit has none of them."""
    assert parse(FIRST, PERIOD) == Throttled(3, 700, PERIOD)
    assert parse("nr_periods 9\nnr_throttled 3\nthrottled_time 700999\n", PERIOD) == Throttled(3, 700, PERIOD)
    assert parse("usage_usec 5\nuser_usec 3\nnonsense\nnr_throttled \u00b2\n", PERIOD) is None


@pytest.mark.parametrize(
    ("limit", "period"), [("max 100000\n", None), ("20000 100000\n", PERIOD), ("", None), ("x y", None), ("5 0", None)]
)
def test_a_limit_of_version_two(limit: str, period: int | None) -> None:
    """It is read from one file."""
    assert period_of(limit) == period


@pytest.mark.parametrize(("quota", "period"), [("-1\n", None), ("20000\n", PERIOD), ("", None), ("0", None)])
def test_a_limit_of_version_one(quota: str, period: int | None) -> None:
    """It is read from two files."""
    assert period_by(quota, "100000\n") == period


@pytest.mark.parametrize(
    ("times", "time", "allowed"),
    [
        (0, 0, 150 * MS),  # it may have been stopped all the time
        (1, 0, 150 * MS),  # it is stopped since, and has not run again
        (1, 90 * MS, 240 * MS),
        (3, 270 * MS, 420 * MS),
        (3, 3_000 * MS, 450 * MS),  # on many CPUs
        (300, 40_000 * MS, MOST),
    ],
)
def test_throttled_time_is_allowed(times: int, time: int, allowed: int) -> None:
    """The time until it was heard, and for which it was stopped since, is allowed, at most by whole periods."""
    before = {"g": Throttled(4, 1, PERIOD)}
    assert allowance(before, {"g": Throttled(4 + times, 1 + time, PERIOD)}, 50 * MS) == allowed


def test_share_that_was_never_throttled_has_no_allowance() -> None:
    """Only the time until it was heard is allowed; without a limit not even that."""
    none = {"g": Throttled(0, 0, PERIOD)}
    assert allowance(none, none, 50 * MS) == 50 * MS
    assert allowance(none, none, 10_000 * MS) == PERIOD, "it has said that it takes longer"
    assert allowance({}, {}, 50 * MS) == 0
    assert allowance({}, none, 50 * MS) == 0, "it was given a limit meanwhile"
    assert allowance(none, {}, 50 * MS) == 0, "it has ended"


@given(st.dictionaries(st.sampled_from("abc"), counters), st.dictionaries(st.sampled_from("abc"), counters))
def test_allowance_has_a_limit(before: Groups, now: Groups) -> None:
    """It is bounded, whatever the files say; of several groups the worst counts."""
    allowed = allowance(before, now, 0)
    assert 0 <= allowed <= MOST
    assert all(allowed >= allowance({name: before[name]}, {name: now[name]}, 0) for name in before.keys() & now.keys())


def test_groups_are_read_up_to_the_top(tmp_path: Path) -> None:
    """Those with a limit, of version 2, which other machines have; files that say nothing are passed over."""
    for name, limit in (
        ("pod", "20000 100000\n"),
        ("pod/container", "max 100000\n"),
        ("pod/container/own", "1 1000\n"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cpu.max").write_text(limit)
        (tmp_path / name / "cpu.stat").write_text(FIRST)
    (tmp_path / "cpu.max").write_text("1 1000\n")
    (tmp_path / "pod" / "container" / "own" / "cpu.stat").write_bytes(b"\xff")
    tree = cgroup.Hierarchy(PurePosixPath(tmp_path), PurePosixPath("/"))
    found: dict[str, Throttled] = {}
    for group in ("/pod/container/own", "/../hidden", "/pod/container"):
        cpu_limits.climb(tree, group, found)
    assert found == {str(tmp_path / "pod"): Throttled(3, 700, PERIOD)}


def test_a_process_that_has_ended_is_in_no_group() -> None:
    """The groups of our own process can be read."""
    assert cpu_limits.read([2**22 + 1]) == {}
    cpu_limits.read([os.getpid()])


def test_the_tree_of_a_controller() -> None:
    """It is found as mountinfo names it: one line may be of several controllers."""
    text = "1 2 0:3 / /cg/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n3 2 0:4 / /cg/u rw - cgroup2 c rw\nodd line\n"
    assert cgroup.controller(text, "cpu") == cgroup.Hierarchy(PurePosixPath("/cg/cpu,cpuacct"), PurePosixPath("/"))
    assert cgroup.controller(text, "memory") is None
