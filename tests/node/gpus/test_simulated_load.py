"""The load of simulated GPUs in a cluster is that of their users."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.details import ProcessUse
from jupyter_gpu_node.gpus import simulated_load
from jupyter_gpu_node.gpus.rules import simulated_sensors
from jupyter_gpu_node.gpus.simulated import MEMORY
from jupyter_gpu_node.gpus.simulated_load import LoadReading, ProcessCost
from jupyter_gpu_node.processes import proc
from jupyter_gpu_node.processes.proc import ProcessInfo
from tests.node.conftest import Child


def process(pid: int) -> ProcessInfo:
    return ProcessInfo(pid, 1, "python")


ONE, TWO = process(1), process(2)


def reading(time: float, **uses: tuple[float, int]) -> LoadReading:
    """``one=(processor seconds, bytes)``."""
    return LoadReading(time, {{"one": ONE, "two": TWO}[name]: ProcessCost(*use) for name, use in uses.items()})


def test_load_of_a_gpu_is_that_of_its_users() -> None:
    """Half a processor is 50 %; several add up, to 100 % at most; memory is theirs."""
    before = reading(10, one=(1, 5), two=(0, 5))
    assert simulated_load.loads({"a": [ONE]}, before, reading(12, one=(2, 7))) == {"a": simulated_sensors.load(0.5, 7)}
    both = simulated_load.loads({"a": [ONE, TWO]}, before, reading(12, one=(3, 7), two=(1, 2)))
    assert both == {"a": simulated_sensors.load(1, 9)}


def test_load_is_divided_among_open_gpus() -> None:
    """Nothing is counted twice."""
    now = reading(12, one=(3, 8))
    found = simulated_load.loads({"a": [ONE], "b": [ONE], "c": []}, reading(10, one=(1, 8)), now)
    assert found == {
        "a": simulated_sensors.load(0.5, 4),
        "b": simulated_sensors.load(0.5, 4),
        "c": simulated_sensors.load(0, 0),
    }


def test_new_process_has_no_load_yet() -> None:
    """Neither at the first reading nor for a process that just came; one that ended does nothing any more."""
    now = reading(12, one=(3, 8))
    assert simulated_load.loads({"a": [ONE]}, None, now) == {"a": simulated_sensors.load(0, 8)}
    assert simulated_load.loads({"a": [ONE]}, reading(10, two=(1, 1)), now) == {"a": simulated_sensors.load(0, 8)}
    assert simulated_load.loads({"a": [ONE, TWO]}, reading(12, one=(3, 8)), now) == {"a": simulated_sensors.load(0, 8)}


def test_memory_of_a_process_is_divided_among_open_gpus() -> None:
    """A process with several open counts in equal parts; one that ended has no load."""
    now = reading(12, one=(3, 8))
    found = {uuid: simulated_sensors.load(0.5, 4) for uuid in "ab"}
    details = simulated_load.details({"a": [ONE, TWO], "b": [ONE]}, found, now)
    assert details == {uuid: simulated_sensors.reading(0.5, [ProcessUse(1, 4)], linked=False) for uuid in "ab"}


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.integers(0, 2**60), st.floats(0, 1e6))
def test_load_is_always_valid(first: float, second: float, memory: int, passed: float) -> None:
    """Whatever the clocks say."""
    now = reading(passed, one=(second, memory))
    (load,) = simulated_load.loads({"a": [ONE]}, reading(0, one=(first, 0)), now).values()
    assert load.utilisation is not None
    assert load.memory is not None
    assert 0 <= load.utilisation <= 100
    assert 0 <= load.memory <= MEMORY


@pytest.mark.parametrize("text", ["", "1 (a) S", "1 (odd) name) S " + "x " * 30])
def test_malformed_text_is_no_reading(text: str) -> None:
    """As of a process that just ended."""
    assert simulated_load.use_of(text) is None


def test_real_process_is_read(spawn: Callable[..., Child]) -> None:
    """One that works uses processor time and memory; one that is gone is left out."""
    child = spawn()
    found = proc.describe(child.pid)
    assert found is not None
    before = simulated_load.read([found])
    child.run("sum(range(5_000_000))")
    now = simulated_load.read([found, ProcessInfo(2**22 + 1, 1, "gone")])
    assert list(now.uses) == [found]
    (load,) = simulated_load.loads({"a": [found]}, before, now).values()
    assert load.utilisation
    assert load.memory
