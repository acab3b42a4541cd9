"""The use of a machine's CPU, memory and disk, in classes."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.node_use import EIGHTHS, USE, NodeUse
from jupyter_gpu_node.agent.inventory.host_use import HostFiles
from jupyter_gpu_node.agent.inventory.rules import annotation, host_use
from jupyter_gpu_node.agent.inventory.rules.host_use import READINGS, CpuTime, HostReading, HostUse

STAT = "cpu  {busy} 0 0 {idle} 100 0 0 0 9 9\ncpu0 1 2 3 4 5 6 7 8 9 10\nintr 5\n"
MEMINFO = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    250 kB\nBuffers: x kB\n"
WINDOW = 300.0
PACE = WINDOW / READINGS
parts = st.floats(0, 1)


def readings(*memory: float, disk: float | None = None, begin: int = 0) -> list[HostReading]:
    """Return readings at the usual pace, of a machine whose CPU is as busy as its memory is full."""
    busy, found = 0.0, []
    for number, part in enumerate(memory, begin):
        busy += 6000 * part
        found.append(HostReading(number * PACE, CpuTime(round(busy), 6000 * (number - begin + 1)), part, disk))
    return found


def test_time_of_all_cpus_is_read() -> None:
    """Time in guests is counted twice there, and to wait for a disk is no work."""
    assert host_use.cpu_time("cpu  10 20 30 400 50 6 7 8 1000 1000\ncpu0 1 1 1 1 1 1 1 1 1 1\n") == CpuTime(81, 531)


@pytest.mark.parametrize("stat", ["", "\n", "cpu 1 2 3", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2 3 4 5 6 7 x"])
def test_time_that_is_not_told_is_not_known(stat: str) -> None:
    """A line of another form, or of one CPU."""
    assert host_use.cpu_time(stat) is None


@pytest.mark.parametrize(
    ("meminfo", "part"),
    [
        (MEMINFO, 0.75),
        ("MemTotal: 4 kB\nMemAvailable: 9 kB\n", 0.0),
        ("MemTotal: 4 kB\nMemAvailable: 0 kB\n", 1.0),
        ("MemTotal: 4 kB\n", None),
        ("MemAvailable: 4 kB\n", None),
        ("MemTotal: 0 kB\nMemAvailable: 0 kB\n", None),
        ("MemTotal:\nMemAvailable: -4 kB\n", None),
        ("", None),
    ],
)
def test_memory_in_use_is_what_programs_could_not_get(meminfo: str, part: float | None) -> None:
    """Memory that the kernel would give back is free."""
    assert host_use.memory_in_use(meminfo) == part


WORDS = st.sampled_from(["cpu ", "cpu", " 1", " 99999", "MemTotal: 4 kB\n", "MemAvailable: x\n", "\n"])


@given(st.text() | st.lists(WORDS).map("".join))
def test_any_text_gives_a_part_or_nothing(text: str) -> None:
    """Whatever another kernel writes."""
    assert (time := host_use.cpu_time(text)) is None or 0 <= time.busy <= time.all
    assert (part := host_use.memory_in_use(text)) is None or 0 <= part <= 1


@given(st.none() | st.integers(0, EIGHTHS), st.floats(-1, 2))
def test_class_is_near_what_is_measured(told: int | None, mean: float) -> None:
    """Three quarters of an eighth away at most; half of one if nothing was told before."""
    found = host_use.eighths(told, mean)
    assert found is not None
    assert 0 <= found <= EIGHTHS
    away = abs(found - EIGHTHS * max(0.0, min(1.0, mean)))
    assert away <= (0.5 if told is None else 0.75) + 1e-9
    assert host_use.eighths(found, mean) == found


def test_unknown_use_has_no_class() -> None:
    """Whatever was told before."""
    assert host_use.eighths(3, None) is None


@pytest.mark.parametrize(("exact", "told"), [(3.26, 4), (4.74, 4), (4.76, 5), (3.24, 3), (8, 8), (0, 0)])
def test_class_changes_a_quarter_beyond_its_border(exact: float, told: int) -> None:
    """So a mean that lies at the border goes to and fro without a change."""
    assert host_use.eighths(4, exact / EIGHTHS) == told


@given(st.integers(0, EIGHTHS), st.lists(st.tuples(st.floats(-0.74, 0.74), st.integers(1, 20)), max_size=9))
def test_load_that_varies_within_a_class_is_told_once(middle: int, runs: list[tuple[float, int]]) -> None:
    """However it does, for moments or for long, and although it is beyond the border of the class."""
    use = HostUse(WINDOW, NodeUse(memory=middle, disk=middle))
    for number, move in enumerate(move for move, length in [*runs, (0.74, 9), (-0.74, 9)] for _ in range(length)):
        part = max(0.0, min(1.0, (middle + move) / EIGHTHS))
        assert not use.observe(HostReading(number * PACE, None, part, part))


@given(st.lists(st.tuples(parts, parts, parts, st.floats(0.2, 3)), max_size=80))
def test_no_load_is_told_more_than_six_times_an_hour(loads: list[tuple[float, float, float, float]]) -> None:
    """Whatever it is and whenever it is read; what is told is the mean of the last minutes, in eighths."""
    use, time, busy, told_at = HostUse(WINDOW), 0.0, 0.0, list[float]()
    for cpu, memory, disk, pace in loads:
        time += pace * PACE
        busy += 100 * pace * PACE * cpu
        if use.observe(HostReading(time, CpuTime(round(busy), round(100 * time) + 1), memory, disk)):
            told_at.append(time)
            assert use.told != NodeUse()
    assert all(later - earlier >= 600 for earlier, later in itertools.pairwise(told_at))
    assert all(sum(1 for time in told_at if begin <= time < begin + 3600) <= 6 for begin in told_at)


def test_busy_machine_is_told_after_a_window() -> None:
    """Not before, as one reading says little; then a change only ten minutes later, and the latest one."""
    use = HostUse(WINDOW)
    said = [use.observe(one) for one in readings(*[0.5] * 6, disk=0.25)]
    assert said == [False] * READINGS + [True]
    assert use.told == NodeUse(4, 4, 2)
    later = readings(*[1.0] * 10, disk=0.25, begin=6)
    assert [use.observe(one) for one in later] == [False] * 9 + [True]
    assert use.told == NodeUse(8, 8, 2)


def test_what_was_told_before_a_restart_stays_until_more_is_known() -> None:
    """A window later, it is what is measured; what is not measured any more is not told."""
    use = HostUse(WINDOW, NodeUse(7, 7, 7, {"swap": 1}))
    for one in readings(*[0.0] * 5):
        assert not use.observe(one)
    assert use.told == NodeUse(7, 7, 7, {"swap": 1})
    assert use.observe(HostReading(WINDOW, CpuTime(0, 99_999), 0.0, None))
    assert use.told == NodeUse(0, 0, None, {"swap": 1})


@pytest.mark.parametrize("now", [None, CpuTime(5, 10), CpuTime(0, 5)])
def test_cpu_is_not_known_without_comparable_times(now: CpuTime | None) -> None:
    """Not told, no time passed, or a counter that began anew."""
    use = HostUse(WINDOW)
    assert not use.observe(HostReading(0, CpuTime(5, 10), 0.5))
    assert use.observe(HostReading(WINDOW, now, 0.5))
    assert use.told == NodeUse(None, 4, None)


def test_node_is_measured_from_files(tmp_path: Path) -> None:
    """From a tree of files; where one is missing or odd, that alone is not known."""
    files = HostFiles(tmp_path, tmp_path)
    empty = files.read()
    assert (empty.cpu, empty.memory) == (None, None)
    assert 0 <= (empty.disk or 0.0) <= 1
    (tmp_path / "stat").write_text(STAT.format(busy=50, idle=850))
    (tmp_path / "meminfo").write_bytes(b"MemTotal: \xff\n")
    found = files.read()
    assert (found.cpu, found.memory) == (CpuTime(50, 1000), None)
    (tmp_path / "meminfo").write_text(MEMINFO)
    assert files.read().memory == 0.75
    assert HostFiles(tmp_path / "gone", tmp_path).read().disk is None


def test_this_machine_is_read() -> None:
    """Its CPU has worked since it started, some memory is in use, and time goes on."""
    files = HostFiles(Path("/"))
    first, second = files.read(), files.read()
    assert first.cpu
    assert second.cpu
    assert 0 < first.cpu.busy < first.cpu.all <= second.cpu.all
    assert 0 < (first.memory or 0.0) < 1
    assert 0 <= (first.disk or 0.0) <= 1
    assert first.time <= second.time < math.inf


def test_use_is_written_once_and_taken_back() -> None:
    """Nothing is written that the Node has already; nothing known is no annotation; odd ones are replaced."""
    plain: dict[str, Any] = {"metadata": {"uid": "u"}}
    assert annotation.use_patch(plain, None) is None
    assert annotation.use_patch(plain, NodeUse()) is None
    body = annotation.use_patch(plain, NodeUse(3, None, 1))
    assert body == {"metadata": {"uid": "u", "annotations": {USE: '{"cpu":3,"disk":1}'}}}
    node = {"metadata": {"uid": "u", **body["metadata"]}}
    assert annotation.published_use(node) == NodeUse(3, None, 1)
    assert annotation.use_patch(node, NodeUse(3, None, 1)) is None
    for use in (None, NodeUse()):
        assert annotation.use_patch(node, use) == {"metadata": {"uid": "u", "annotations": {USE: None}}}
    odd = {"metadata": {"uid": "u", "annotations": {USE: "odd"}}}
    assert annotation.published_use(odd) == NodeUse()
    assert annotation.use_patch(odd, NodeUse()) is not None
