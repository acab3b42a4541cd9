"""GPUs that a pod used since the last look: turns, then the driver's samples, or load of simulated GPUs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from jupyter_gpu.backends.local.scans.used_gpus import UsedGpus
from jupyter_gpu_node.gpus import simulated
from jupyter_gpu_node.gpus.registry import Registry
from jupyter_gpu_node.gpus.simulated import SimulatedGpus
from jupyter_gpu_node.processes import proc
from jupyter_gpu_node.processes.proc import ProcessInfo
from tests.backends.local.looks_real import LooksReal
from tests.backends.local.stage import Nursery, wait_for

ONE = ProcessInfo(1, 1, "one")


class Sampled(LooksReal):
    """GPUs whose driver keeps samples."""

    def __init__(self, folder: Path, count: int) -> None:
        super().__init__(folder, count)
        self.told: dict[str, int] = {}
        self.asked: list[tuple[set[str], float]] = []

    def peaks(self, uuids: Collection[str], seconds: float) -> Mapping[str, int]:
        self.asked.append((set(uuids), seconds))
        return {uuid: self.told[uuid] for uuid in uuids if uuid in self.told}


def known(source: SimulatedGpus) -> tuple[Registry, list[str]]:
    """Return a registry that has asked the source, and the uuids of its GPUs."""
    registry = Registry(lambda: source)
    registry.take()
    return registry, [gpu.uuid for gpu in registry.gpus]


def test_driver_is_asked_about_gpus_whose_turns_say_nothing(tmp_path: Path) -> None:
    """Not at the first look, of whose past nothing is known; what it does not tell counts as use."""
    source = Sampled(tmp_path, 4)
    registry, (part, whole, plain, silent) = known(source)
    turns = {part: (10, True), whole: (10, False)}
    reader = UsedGpus(registry, lambda uuids: {uuid: turns[uuid] for uuid in uuids if uuid in turns})
    opened = dict.fromkeys((part, whole, plain, silent), (ONE,))
    source.told = {part: 90, whole: 0, plain: 3}
    assert reader.read(opened, 5) == set()
    assert source.asked == []
    assert reader.read(opened, 5) == {plain, silent}
    assert source.asked == [({whole, plain, silent}, 5)]
    turns[part], turns[whole] = (11, True), (5, False)  # another arbiter counts from the beginning
    assert reader.read(opened, 4) == {part, whole, plain, silent}
    assert source.asked[1:] == [({plain, silent}, 4)]
    source.told[whole] = 1
    assert reader.read(opened, 5) == {plain, silent}, (
        "the driver was not asked before, so nothing is known of that time"
    )
    assert reader.read(opened, 5) == {whole, plain, silent}, "a program that takes no turns"
    assert reader.read({}, 5) == set()
    assert reader.read(opened, 5) == set(), "it begins anew"


def test_driver_without_samples_makes_each_open_gpu_count_as_used(tmp_path: Path) -> None:
    """As one that can't be asked now."""
    registry, (uuid,) = known(LooksReal(tmp_path, 1))
    reader = UsedGpus(registry, lambda _: {})
    assert [reader.read({uuid: (ONE,)}, 5) for _ in range(2)] == [set(), {uuid}]


def test_simulated_gpu_is_used_while_a_process_computes_or_says_so(tmp_path: Path, nursery: Nursery) -> None:
    """Turns never tell that it is not used: a program on it may take none."""
    registry, (first, second) = known(SimulatedGpus(tmp_path, 2))
    with contextlib.ExitStack() as ends:
        opened, children = {}, []
        for uuid in (first, second):
            children.append(nursery.actor())
            ends.callback(children[-1].end)
            children[-1].ask("pid")  # it has started
            info = proc.describe(children[-1].pid)
            assert info
            opened[uuid] = (info,)
        turns = {first: (10, True), second: (10, True)}
        reader = UsedGpus(registry, lambda _: dict(turns))
        assert reader.read(opened, 5) == set()
        children[0].ask("work")
        wait_for(lambda: reader.read(opened, 5) == {first}, "its use to be seen")
        children[0].ask("rest")
        time.sleep(0.2)
        reader.read(opened, 5)
        turns[second] = (11, True)
        time.sleep(0.2)
        assert reader.read(opened, 5) == {second}
        simulated.write_load(tmp_path, second, 0.1, 2**20)
        time.sleep(0.2)
        assert reader.read(opened, 5) == {second}
        simulated.clear_load(tmp_path, second)
        time.sleep(0.2)
        assert reader.read(opened, 5) == set()
