"""Details of real GPUs, with a fake driver: no caller waits for them, and missing values are not invented."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.details import LinkRates, ProcessUse, Reading
from jupyter_gpu.model.view import GpuLoad
from jupyter_gpu_node.gpus import nvml, nvml_details
from jupyter_gpu_node.gpus.nvml import NvmlSource
from jupyter_gpu_node.gpus.nvml_details import Traffic, rates
from jupyter_gpu_node.gpus.rules import fabric
from tests.node.gpus.test_nvml import Driver, driver, gpu, helper

__all__ = ["driver"]  # the fixture

FULL = {
    "celsius": 62,
    "slowdown": 90,
    "milliwatts": 210_500,
    "limit": 400_000,
    "pcie": [1200, 30],
    "nvlink": [4_000_000, 1_000_000],
    "computing": [[11, 2**30], [12, None]],
    "drawing": [[13, 5]],
}


def until(source: NvmlSource, good: Callable[[dict[str, Reading]], bool], *uuids: str) -> dict[str, Reading]:
    """Ask as a panel does, until the answer is ``good``."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        found = dict(source.details(uuids))
        if good(found):
            return found
        time.sleep(0.05)
    raise AssertionError(f"it is still {found}")


@pytest.mark.root
def test_all_details_of_a_gpu(driver: Driver) -> None:
    """In °C, watts, bytes and bytes a second; NVLink as soon as there are two counts."""
    driver.set(gpu("a", busy=37, used=5, **FULL))
    source = driver.source()
    assert source.loads(["GPU-a"]) == {"GPU-a": GpuLoad(37, 5, 62, 210.5)}
    assert source.details(["GPU-a"]) == {}, "nothing is measured before somebody asks, and nobody waits for it"
    first = until(source, bool, "GPU-a")["GPU-a"]
    assert (first.slowdown, first.power_limit) == (90, 400.0)
    assert first.pcie == LinkRates(1_200_000, 30_000)
    assert first.processes == (ProcessUse(11, 2**30), ProcessUse(12), ProcessUse(13, 5))
    link = until(source, lambda found: found["GPU-a"].nvlink is not None, "GPU-a")["GPU-a"].nvlink
    assert link is not None
    assert link.received == pytest.approx(4_000_000 * 1024, rel=0.01)
    assert link.sent == pytest.approx(1_000_000 * 1024, rel=0.01)


@pytest.mark.root
def test_missing_details_are_left_out(driver: Driver) -> None:
    """Never 0; a threshold of 0 is none. The GPUs beside it are read all the same."""
    driver.set(gpu("a", slowdown=0, computing=[]), gpu("b", **FULL), gpu("c", fails="PcieThroughput", **FULL))
    source = driver.source()
    assert source.loads(["GPU-a"]) == {"GPU-a": GpuLoad(0, 2**30)}
    found = until(source, lambda found: len(found) == 3, "GPU-a", "GPU-b", "GPU-c", "GPU-unknown")
    assert found["GPU-a"] == Reading(processes=())
    assert found["GPU-a"].to_json() == {"processes": []}
    assert found["GPU-b"].pcie is not None
    assert (found["GPU-c"].pcie, found["GPU-c"].slowdown) == (None, 90)


@pytest.mark.root
def test_measuring_pcie_delays_no_answer(driver: Driver) -> None:
    """Loads are answered at once while a driver takes seconds to measure, and so are further questions for details."""
    driver.set(gpu("a", slow=3, **FULL), gpu("b"))
    source = driver.source()
    source.loads(["GPU-a"])
    source.details(["GPU-a"])
    before, calls = helper(source), driver.path.with_suffix(".pcie")
    end = time.monotonic() + 20
    while not calls.exists() and time.monotonic() < end:
        time.sleep(0.01)
    began = time.monotonic()
    for _ in range(20):
        assert source.loads(["GPU-a", "GPU-b"]).keys() == {"GPU-a", "GPU-b"}
        assert source.details(["GPU-a"]) == {}
    assert time.monotonic() - began < 2.5
    assert (helper(source), source.note) == (before, "")


@pytest.mark.root
def test_gpu_that_hangs_while_measured_stays_healthy(driver: Driver) -> None:
    """A reading that is only shown takes no GPU away from a pod, nor the helper down."""
    driver.set(gpu("a", hangs="PcieThroughput", **FULL), gpu("b"))
    source = driver.source(deadline=5)
    before = [one.healthy for one in source.inventory()]
    number = helper(source)
    source.details(["GPU-a"])
    time.sleep(0.3)
    assert source.details(["GPU-a"]) == {}
    assert [one.healthy for one in source.inventory()] == before == [True, True]
    assert helper(source) == number


@pytest.mark.root
def test_nothing_is_measured_without_a_question(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither if only loads are asked for, nor some seconds after the last question."""
    driver.set(gpu("a", **FULL))
    source = driver.source()
    calls = driver.path.with_suffix(".pcie")
    for _ in range(5):
        source.loads(["GPU-a"])
    assert not calls.exists()
    until(source, bool, "GPU-a")
    time.sleep(nvml_details.INTEREST + nvml_details.PACE + 1)
    number = len(calls.read_text())
    time.sleep(nvml_details.PACE + 1)
    assert len(calls.read_text()) == number
    assert source.details(["GPU-a"]) == {}, "what is old is not told"
    until(source, bool, "GPU-a")


def test_invalid_readings_are_left_out(driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer of the helper is checked like all that comes from outside; a broken sensor spoils no load."""
    answer = tmp_path / "answer.json"
    code = f"import sys\nfor _ in sys.stdin: print(open({str(answer)!r}).read(), flush=True)"
    monkeypatch.setattr(nvml, "COMMAND", (sys.executable, "-c", code))
    source = driver.source()
    gpus: list[dict[str, Any]] = [{"uuid": "GPU-a", "slowdown": "hot"}, {"uuid": 7}, {"uuid": "GPU-b", "slowdown": 90}]
    answer.write_text(json.dumps({"gpus": gpus}))
    assert source.details(["GPU-a"]) == {"GPU-b": Reading(slowdown=90)}
    gpus = [{"uuid": "GPU-a", "utilisation": 5, "memory": 6, "temperature": -3, "power": "x"}]
    answer.write_text(json.dumps({"gpus": gpus}))
    assert source.loads(["GPU-a"]) == {"GPU-a": GpuLoad(5, 6)}


COUNTS = st.none() | st.builds(Traffic, st.floats(0, 1e6), st.integers(0, 2**63), st.integers(0, 2**63))


@given(COUNTS, COUNTS)
def test_rate_needs_two_growing_counts(before: Traffic | None, now: Traffic | None) -> None:
    """Else there is none: a driver that began anew did not send backwards."""
    found = rates(before, now)
    if found is None:
        assert (
            before is None
            or now is None
            or now.time <= before.time
            or now.received < before.received
            or now.sent < before.sent
        )
    else:
        assert found.received >= 0
        assert found.sent >= 0


def test_rates() -> None:
    """Bytes by seconds."""
    assert rates(Traffic(1, 100, 0), Traffic(3, 300, 50)) == LinkRates(100, 25)


def test_fake_driver_matches_the_real_module(tmp_path: Path) -> None:
    """The names that the helper asks for exist in the real module."""
    import pynvml

    names = [
        *("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureThreshold", "nvmlDeviceGetPowerUsage"),
        *("nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPcieThroughput", "nvmlDeviceGetFieldValues"),
        *("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"),
        *("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfoV_t"),
    ]
    assert all(callable(getattr(pynvml, name)) for name in names)
    assert (pynvml.NVML_TEMPERATURE_GPU, pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN) == (0, 1)
    assert (pynvml.NVML_PCIE_UTIL_TX_BYTES, pynvml.NVML_PCIE_UTIL_RX_BYTES) == (0, 1)
    fields = (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX)
    assert fields == (138, 139)
    assert pynvml.NVML_GPU_FABRIC_STATE_COMPLETED == fabric.COMPLETED
    told = pynvml.c_nvmlGpuFabricInfoV_t
    assert [(name, getattr(told, name).offset) for name, _ in told._fields_] == [
        *(("version", 0), ("clusterUuid", 4), ("status", 20), ("cliqueId", 24), ("state", 28), ("healthMask", 32))
    ]
