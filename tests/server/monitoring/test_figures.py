"""Our part of ``/metrics``: what is counted, and by which names."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from jupyter_gpu.model.annotations import Allocated, Attached, Reason, Requested, Wish
from jupyter_gpu.model.gpu import DrainingShare, Gpu, GpuShare
from jupyter_gpu.model.status import Phase
from jupyter_gpu.model.view import GpuLoad, GpuState, Mode, PodGpu, Sample, View
from jupyter_gpu.server.monitoring.rules.figures import Figures, families
from jupyter_gpu.server.monitoring.rules.peaks import TOTALS, Peaks
from jupyter_gpu.server.monitoring.rules.waits import Waits
from tests.model.test_share import ONE as SHARE

UUID = "GPU-5ea10000-secret"
GPUS = (Gpu(UUID, 3, "Test 80GB", 80 * 2**30), Gpu("GPU-other", 4, "Test 80GB", 80 * 2**30))
VIEW = View(
    instance="one",
    version=7,
    mode=Mode.ENFORCED,
    simulated=False,
    backend="local",
    total=8000,
    limit=4000,
    steps=(0, 1000),
    requested=Requested(3, Wish(2500)),
    allocated=Allocated(3, (GpuShare(UUID, 250),), Reason.PARTIAL, ticket=1),
    attached=Attached(3, (GpuShare(UUID, 250),), (DrainingShare("GPU-other", 1000),)),
    gpus=(PodGpu(GPUS[0], 250, GpuState.ATTACHED), PodGpu(GPUS[1], 1000, GpuState.DRAINING)),
)
SAMPLE = Sample(
    1700000000.5,
    {UUID: GpuLoad(42.0, 2**30, 62, 210.5), "GPU-other": GpuLoad(None, None), "GPU-gone": GpuLoad(1, 1)},
    {UUID: replace(SHARE, uuid=UUID)},
)
FULL = Figures(VIEW, SAMPLE, 12.5, 100.0, {"Done": 3, "Superseded": 1})


def text(told: Figures) -> str:
    """Return the figures as they are scraped."""

    class Collector:
        def collect(self) -> list[object]:
            return list(families(told))

    registry = CollectorRegistry()
    registry.register(Collector())  # type: ignore[arg-type]
    return generate_latest(registry).decode()


def values(told: Figures) -> dict[str, float]:
    """Return the figures by name and labels."""
    found = {}
    for family in text_string_to_metric_families(text(told)):
        for sample in family.samples:
            labels = ",".join(sample.labels.values())
            found[f"{sample.name.removeprefix('jupyter_gpu_server_')}{f'({labels})' if labels else ''}"] = sample.value
    return found


def test_figures_use_base_units_and_index_labels() -> None:
    """Amounts are in GPUs, seconds, bytes and ratios; each GPU is labelled by its index."""
    found = values(FULL)
    phases = {name: found.pop(name) for name in tuple(found) if name.startswith("phase")}
    assert {name for name, value in phases.items() if value} == {"phase(Waiting)"}
    assert len(phases) == len(Phase)
    assert found == pytest.approx(
        {
            "requested_gpus": 2.5,
            "allocated_gpus": 0.25,
            "attached_gpus": 0.25,
            "draining_gpus": 1,
            "limit_gpus": 4,
            "waiting_seconds": 12.5,
            "waited_seconds_total": 100,
            "resizes_total(Done)": 3,
            "resizes_total(Superseded)": 1,
            "sample_timestamp_seconds": 1700000000.5,
            "gpu_utilisation_ratio(3)": 0.42,
            "gpu_memory_used_bytes(3)": 2**30,
            "gpu_temperature_celsius(3)": 62,
            "gpu_power_watts(3)": 210.5,
            "gpu_memory_bytes(3)": 80 * 2**30,
            "gpu_memory_bytes(4)": 80 * 2**30,
            "share_ratio(3)": 0.25,
            "share_effective_ratio(3)": 0.4,
            "share_bank_seconds(3)": 1.2,
            "share_bank_limit_seconds(3)": 2,
            "share_used_seconds_total(3,guaranteed)": 0.001,
            "share_used_seconds_total(3,borrowed)": 0.002,
            "share_used_seconds_total(3,idle)": 0.003,
            "share_used_seconds_total(3,overrun)": 0.0001,
            "share_waited_seconds_total(3)": 0.005,
            "share_throttled_seconds_total(3)": 0.0005,
            "share_lost_seconds_total(3)": 0.000007,
        }
    )


def test_figures_have_no_uuid_and_no_old_sample() -> None:
    """No label contains a uuid; without a sample there are no figures of load and shares."""
    assert "GPU-" not in text(FULL)
    assert not re.search("server_(gpu|share|sample)_", text(replace(FULL, sample=None)))


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool (Debian: prometheus) is not installed")
@pytest.mark.parametrize("told", [FULL, Figures(VIEW)], ids=["full", "little"])
def test_promtool_finds_no_problem(told: Figures) -> None:
    """Prometheus' own tool accepts names, units and help texts."""
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text(told), check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 100))))
def test_waits_add_up(steps: list[tuple[bool, float]]) -> None:
    """The sum counts a wait that is under way, and never falls."""
    waits, now, sum_, waiting = Waits(), 0.0, 0.0, False
    for after, passed in steps:
        before = waits.total(now)
        sum_ += passed if waiting else 0.0
        now += passed
        assert waits.total(now) >= before
        waits.see(after, now)
        waiting = after
    assert waits.total(now) == pytest.approx(sum_)
    assert waits.lasting(now) <= waits.total(now)
    assert waiting or waits.lasting(now) == 0


@given(st.lists(st.lists(st.integers(0, 1000), min_size=7, max_size=7), min_size=1))
def test_totals_fall_only_for_a_new_share(counts: list[list[int]]) -> None:
    """A fall by more than half of the total is a new share; seeing the same twice changes nothing."""
    peaks, told, last = Peaks(), [0] * 7, 0
    for numbers in counts:
        use = replace(SHARE, **dict(zip(TOTALS, numbers, strict=True)))  # type: ignore[arg-type]
        before, seen = told, peaks.see({"a": use})
        told = [getattr(seen["a"], name) for name in TOTALS]
        assert peaks.see({"a": use}) == seen
        if 2 * sum(numbers) < last:
            assert told == numbers
        else:
            assert told == [max(pair) for pair in zip(numbers, before, strict=True)]
        last = sum(numbers)


def test_removed_share_is_forgotten() -> None:
    """A later share of the same GPU begins with its own totals."""
    peaks = Peaks()
    peaks.see({"a": SHARE})
    assert peaks.see({}) == {}
    later = replace(SHARE, guaranteed=999)
    assert peaks.see({"a": later}) == {"a": later}
