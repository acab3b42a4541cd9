"""Use of a GPU by process: the part in turns of others, and NVML in its process, with a fake driver and with none."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_node.processes.rules.process_id import ProcessId
from jupyter_gpu_node.shares.rules.foreign_use import beyond, foreign
from jupyter_gpu_node.shares.scans.usage_by_process import NvmlUsageReader

MEMBER, ESCAPER, OTHER = ProcessId(7, 70), ProcessId(8, 80), ProcessId(9, 90)

PLAYED = """
import os, time
from types import SimpleNamespace as Sample
NVML_ERROR_NOT_FOUND = 6
class NVMLError(Exception):
    value = 6
def nvmlInit(): pass
def nvmlDeviceGetHandleByUUID(uuid): return uuid.decode()
def nvmlDeviceGetProcessUtilization(gpu, since):
    if gpu == "GPU-quiet":
        raise NVMLError
    if gpu == "GPU-hangs":
        time.sleep(600)
    if gpu == "GPU-kills":
        os._exit(1)
    return [
        Sample(pid=7, timeStamp=since + 1, smUtil=40), Sample(pid=7, timeStamp=since + 2, smUtil=60),
        Sample(pid=8, timeStamp=since + 1, smUtil=5), Sample(pid=9, timeStamp=since, smUtil=90),
    ]
NVML_GPU_UTILIZATION_SAMPLES = 1
def nvmlDeviceGetSamples(gpu, kind, since):
    assert kind == NVML_GPU_UTILIZATION_SAMPLES
    if gpu == "GPU-wsl":
        raise NVMLError
    values = {"GPU-a": [0, 2, 1], "GPU-quiet": [0, 0], "GPU-silent": []}[gpu]
    samples = [Sample(timeStamp=since + 1, sampleValue=Sample(uiVal=value)) for value in values]
    return 1, [Sample(timeStamp=since, sampleValue=Sample(uiVal=90)), *samples]
def nvmlDeviceGetComputeRunningProcesses(gpu):
    if gpu == "GPU-wsl":
        raise NVMLError
    return [Sample(pid=7, usedGpuMemory=500), Sample(pid=8, usedGpuMemory=None), Sample(pid=0, usedGpuMemory=1)]
def nvmlDeviceGetGraphicsRunningProcesses(gpu):
    if gpu != "GPU-draws":
        raise NVMLError
    return [Sample(pid=7, usedGpuMemory=400), Sample(pid=8, usedGpuMemory=3), Sample(pid=9, usedGpuMemory=2**64 - 1)]
"""


# --- in turns of others -----------------------------------------------------------------------------------------------


def test_process_that_asks_is_measured_by_the_turns_of_its_share() -> None:
    """Its use is exact to the microsecond, below zero where it used less, and never more than others had."""
    assert foreign({"a": {MEMBER: 500}}, {"a": 500, "b": 500}, {MEMBER}) == {}
    assert beyond({"a": {MEMBER: 500}}, {"a": 500, "b": 500}, {MEMBER}) == {"a": 0, "b": -500}
    assert beyond({"a": {MEMBER: 500}}, {"a": 400, "b": 90}, {MEMBER}) == {"a": 90, "b": -90}


def test_process_that_never_asks_is_charged_for_the_turns_of_others() -> None:
    """It is, whatever turns its share has: it launches in all of them."""
    uses = {"a": {MEMBER: 500, ESCAPER: 300}, "b": {OTHER: 10}}
    assert foreign(uses, {"a": 600, "b": 500}, {MEMBER, OTHER}) == {"a": {ESCAPER: 300}}
    assert foreign(uses, {"a": 600, "b": 200}, {MEMBER, OTHER}) == {"a": {ESCAPER: 200}}
    assert foreign(uses, {"a": 600, "b": 400}, {OTHER}) == {"a": {MEMBER: 400}}
    assert beyond(uses, {"a": 600, "b": 500}, {MEMBER, OTHER}) == {"a": -100, "b": -490}


def test_foreign_use_is_none_while_others_have_no_turns() -> None:
    """It is at most as much as they had."""
    assert foreign({"a": {ESCAPER: 900}}, {"a": 0, "b": 0}, set()) == {}
    assert foreign({"a": {ESCAPER: 900}}, {"a": 0, "b": 100}, set()) == {"a": {ESCAPER: 100}}


PROCESSES = st.builds(ProcessId, st.integers(1, 9), st.just(1))


@given(
    st.dictionaries(st.sampled_from("abc"), st.dictionaries(PROCESSES, st.integers(0, 1000), max_size=4)),
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 1000)),
    st.frozensets(PROCESSES),
)
def test_it_is_never_more_than_was_used_or_others_had(
    uses: dict[str, dict[ProcessId, int]], turns: dict[str, int], members: frozenset[ProcessId]
) -> None:
    """A process that used nothing, or that asks, is charged nothing."""
    for share, parts in foreign(uses, turns, members).items():
        others = sum(turn for other, turn in turns.items() if other != share)
        assert all(0 < part <= uses[share][process] for process, part in parts.items())
        assert not members & parts.keys()
        assert sum(parts.values()) <= others
    for share, more in beyond(uses, turns, members).items():
        assert -turns[share] <= more <= sum(turn for other, turn in turns.items() if other != share)


# --- NVML -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def played(tmp_path: Path) -> dict[str, str]:
    """Environment in which the driver is played."""
    (tmp_path / "pynvml.py").write_text(PLAYED)
    return {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}


def test_driver_reports_use_by_process(played: dict[str, str]) -> None:
    """The use is the mean of its samples that are new; an idle GPU was used by no process."""

    async def check() -> None:
        left: list[int] = []
        reader = NvmlUsageReader(left.append, deadline=60, environment=played)
        assert await reader.read("GPU-1", 1_000, 201_000) == {7: 100_000, 8: 10_000}
        assert await reader.read("GPU-quiet", 1_000, 201_000) == {}
        assert len(left) == 1
        assert reader.note == ""
        await reader.close()
        assert await reader.read("GPU-1", 1_000, 201_000) is None
        assert not Path(f"/proc/{left[0]}").exists()

    asyncio.run(check())


def test_the_driver_says_how_much_memory_each_process_has(played: dict[str, str]) -> None:
    """Memory of programs that compute and that draw; missing figures are unknown, and break nothing else."""

    async def check() -> None:
        reader = NvmlUsageReader(deadline=60, environment=played)
        assert await reader.memory("GPU-1") == {7: 500, 8: None}
        assert await reader.memory("GPU-draws") == {7: 500, 8: 3, 9: None}
        assert await reader.memory("GPU-wsl") is None
        assert await reader.read("GPU-1", 1_000, 201_000) == {7: 100_000, 8: 10_000}
        await reader.close()
        assert await reader.memory("GPU-1") is None

    asyncio.run(check())


def test_the_driver_says_how_much_of_a_gpu_was_used_at_most(played: dict[str, str]) -> None:
    """By its new samples alone; where it has none nothing is known, and other questions are answered as ever."""

    async def check() -> None:
        reader = NvmlUsageReader(deadline=60, environment=played)
        assert await reader.peak("GPU-a", 1_000) == 2
        assert await reader.peak("GPU-quiet", 1_000) == 0
        assert await reader.peak("GPU-silent", 1_000) is None
        assert await reader.peak("GPU-wsl", 1_000) is None
        assert reader.note == ""
        assert await reader.peak("GPU-other", 1_000) is None, "an error of another kind ends the helper"
        await reader.close()

    asyncio.run(check())


@pytest.mark.parametrize("gpu", ["GPU-kills", "GPU-hangs"])
def test_a_driver_that_does_not_answer_is_asked_again_later(played: dict[str, str], gpu: str) -> None:
    """Another helper asks it again; until then nothing is known."""

    async def check() -> None:
        left: list[int] = []
        reader = NvmlUsageReader(left.append, deadline=60, retry=0.5, environment=played)
        assert await reader.read("GPU-1", 0, 1000)
        reader.deadline = 0.2 if gpu == "GPU-hangs" else 60
        assert await reader.read(gpu, 0, 1000) is None
        assert ("No answer" if gpu == "GPU-hangs" else "ended") in reader.note
        reader.deadline = 60
        end = time.monotonic() + 60
        while await reader.read("GPU-1", 0, 1000) is None:
            assert time.monotonic() < end
            await asyncio.sleep(0.01)
        assert len(left) == 2
        await reader.close()

    asyncio.run(check())


def test_without_a_driver_nothing_is_known(tmp_path: Path) -> None:
    """The note says why."""
    (tmp_path / "pynvml.py").write_text("raise ImportError('no pynvml')")

    async def check() -> None:
        reader = NvmlUsageReader(deadline=60, environment={"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])})
        assert await reader.read("GPU-1", 0, 1000) is None
        assert reader.note == "The NVIDIA driver does not tell who uses a GPU: no pynvml"
        await reader.close()

    asyncio.run(check())
