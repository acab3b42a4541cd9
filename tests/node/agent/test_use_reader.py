"""GPUs that pods used since the last look: turns, then the driver, or processor time for simulated GPUs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

from jupyter_gpu_node.agent.use_reader import OpenGpus, PeaksOfVendors, UseReader
from jupyter_gpu_node.processes import proc
from jupyter_gpu_node.processes.proc import ProcessInfo
from tests.node.conftest import Child

ONE, TWO = ProcessInfo(1, 1, "one"), ProcessInfo(2, 1, "two")


class Driver:
    """A driver that says what it is told, and notes what it was asked."""

    def __init__(self, **peaks: int | None) -> None:
        self.peaks = peaks
        self.asked: list[str] = []

    async def peak(self, gpu: str, begin: int) -> int | None:
        assert begin > 0
        self.asked.append(gpu)
        return self.peaks[gpu]


def reads(reader: UseReader, opened: OpenGpus) -> dict[str, set[str]]:
    """Return what the pods used."""
    return {pod: set(found) for pod, found in asyncio.run(reader.read(opened)).items()}


def test_driver_is_asked_about_gpus_whose_turns_say_nothing() -> None:
    """Not at the first look, of whose past nothing is known; what it does not tell counts as use."""
    turns = {("g0", "a"): (10, True), ("g0", "b"): (10, True), ("g1", "a"): (10, False)}
    driver = Driver(g1=0, g2=3, g3=None)
    reader = UseReader(lambda gpu, pod: turns.get((gpu, pod)), driver)
    opened = {"a": {"g0": (ONE,), "g1": (ONE,)}, "b": {"g0": (TWO,), "g2": (TWO,), "g3": (TWO,)}}
    assert reads(reader, opened) == {"a": set(), "b": set()}
    assert driver.asked == []
    turns["g0", "a"] = (11, True)
    assert reads(reader, opened) == {"a": {"g0"}, "b": {"g2", "g3"}}
    assert driver.asked == ["g1", "g2", "g3"]
    turns["g1", "a"] = (5, False)  # another server counts from the beginning
    driver.peaks["g1"] = 90
    assert reads(reader, opened) == {"a": {"g1"}, "b": {"g2", "g3"}}
    assert reads(reader, opened)["a"] == set(), "the driver was not asked before, so nothing is known of that time"
    assert reads(reader, opened)["a"] == {"g1"}, "a program that takes no turns"


def test_work_on_a_shared_gpu_without_turns_counts_for_each_pod() -> None:
    """The driver does not tell whose it is."""
    reader = UseReader(lambda gpu, pod: None, Driver(g0=1))
    opened = {"a": {"g0": (ONE,)}, "b": {"g0": (TWO,)}}
    reads(reader, opened)
    assert reads(reader, opened) == {"a": {"g0"}, "b": {"g0"}}


def test_pod_that_was_away_begins_anew() -> None:
    """Nothing counts that it did before it opened the GPU again."""
    turns = {"now": 10}
    reader = UseReader(lambda gpu, pod: (turns["now"], True), Driver())
    opened = {"a": {"g0": (ONE,)}}
    assert reads(reader, opened) == {"a": set()}
    assert reads(reader, {}) == {}
    turns["now"] = 20
    assert reads(reader, opened) == {"a": set()}
    turns["now"] = 30
    assert reads(reader, opened) == {"a": {"g0"}}


def test_simulated_gpu_is_used_while_a_process_computes(spawn: Callable[..., Child]) -> None:
    """One that only has it open uses nothing."""
    works, waits = spawn(), spawn()
    info = {child: proc.describe(child.pid) for child in (works, waits)}
    first, second = info[works], info[waits]
    assert first is not None
    assert second is not None
    reader = UseReader(lambda gpu, pod: None, None)
    opened = {"a": {"g0": (first,)}, "b": {"g0": (second,)}}
    assert reads(reader, opened) == {"a": set(), "b": set()}
    works.run("end = time.process_time() + 0.3\nwhile time.process_time() < end: pass")
    assert reads(reader, opened) == {"a": {"g0"}, "b": set()}


def test_gpus_of_other_vendors_are_asked_of_their_own_source() -> None:
    """NVIDIA's driver is not asked about them; a time for which their source knows nothing counts as use."""
    nvidia, asked = Driver(g0=0), list[float]()
    known = {"g1": 0}

    def others(uuids: Collection[str], seconds: float) -> Mapping[str, int]:
        asked.append(seconds)
        return {uuid: known[uuid] for uuid in uuids if uuid in known}

    peaks = PeaksOfVendors(nvidia, others, lambda gpu: "nvidia" if gpu == "g0" else "amd")
    reader = UseReader(lambda gpu, pod: None, peaks)
    opened = {"a": {"g0": (ONE,), "g1": (ONE,), "g2": (ONE,)}}
    assert reads(reader, opened) == {"a": set()}
    assert reads(reader, opened) == {"a": {"g2"}}
    known["g1"] = 50
    assert reads(reader, opened) == {"a": {"g1", "g2"}}
    assert nvidia.asked == ["g0", "g0"]
    assert len(asked) == 4
    assert all(0 <= seconds < 60 for seconds in asked)
