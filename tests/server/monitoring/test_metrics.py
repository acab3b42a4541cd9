"""Our figures on the Jupyter server's own ``/metrics``."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families

from jupyter_gpu.server.app import GpuExtension
from jupyter_gpu.server.monitoring import metrics_collector
from jupyter_gpu.server.monitoring.rules import figures
from tests.server.conftest import Call, Fetch

NAME = "jupyter_gpu_server_"


async def scrape(fetch: Fetch) -> dict[str, dict[tuple[str, ...], float]]:
    """Return the scraped figures by name, with values by labels."""
    response = await fetch("metrics")
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(response.body.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


async def scrape_until(fetch: Fetch, name: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Return the first scrape that has that figure: each one has a sample taken for the next."""
    for _ in range(600):
        found = await scrape(fetch)
        if name in found:
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(f"{name} is not among {sorted(found)}")


async def test_figures_follow_the_view(jp_fetch: Fetch, put: Call, extension: GpuExtension) -> None:
    """Amounts and phase change at once, outcomes of resizes are counted, and the server's own figures stay."""
    found = await scrape(jp_fetch)
    assert found[f"{NAME}attached_gpus"] == {(): 0}
    assert found[f"{NAME}phase"][("Idle",)] == 1
    before = sum(found.get(f"{NAME}resizes_total", {}).values())
    await put({"gpus": 1.5})
    found = await scrape(jp_fetch)
    assert (found[f"{NAME}requested_gpus"], found[f"{NAME}attached_gpus"]) == ({(): 1.5}, {(): 1.5})
    assert (found[f"{NAME}phase"][("Ready",)], found[f"{NAME}phase"][("Idle",)]) == (1, 0)
    assert sum(found[f"{NAME}resizes_total"].values()) == before + 1
    assert "http_request_duration_seconds_count" in found


async def test_scrape_does_not_wait_for_a_sample(jp_fetch: Fetch, put: Call, extension: GpuExtension) -> None:
    """It triggers one for the next scrape if a GPU is attached; each GPU is labelled by its index."""
    await put({"gpus": 0})
    await scrape(jp_fetch)
    await asyncio.sleep(0.3)
    assert f"{NAME}sample_timestamp_seconds" not in await scrape(jp_fetch), "no GPU, no sample"
    view = (await put({"gpus": 1})).body
    first = await scrape(jp_fetch)
    assert f"{NAME}gpu_utilisation_ratio" not in first
    found = await scrape_until(jp_fetch, f"{NAME}gpu_utilisation_ratio")
    index = (str(view["gpus"][0]["index"]),)
    assert found[f"{NAME}gpu_utilisation_ratio"] == {index: 0}
    assert found[f"{NAME}gpu_memory_bytes"] == {index: 24 * 2**30}
    assert found[f"{NAME}gpu_temperature_celsius"][index] > 0
    await put({"gpus": 0})
    assert f"{NAME}gpu_utilisation_ratio" not in await scrape(jp_fetch)


async def test_our_error_keeps_the_other_figures(
    jp_fetch: Fetch, extension: GpuExtension, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The server's own figures are still scraped; the log has the error once."""

    def broken(_: Any) -> Any:
        raise RuntimeError("no figures today")

    monkeypatch.setattr(figures, "families", broken)
    for _ in range(3):
        found = await scrape(jp_fetch)
        assert "http_request_duration_seconds_count" in found
        assert f"{NAME}attached_gpus" not in found
    assert caplog.text.count("The figures of the GPUs are missing") == 1
    monkeypatch.undo()
    assert f"{NAME}attached_gpus" in await scrape(jp_fetch)


async def test_old_sample_is_left_out(jp_fetch: Fetch, put: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that is some minutes old says nothing about now."""
    await put({"gpus": 1})
    await scrape_until(jp_fetch, f"{NAME}sample_timestamp_seconds")
    monkeypatch.setattr(metrics_collector, "OLD", -1.0)
    assert f"{NAME}sample_timestamp_seconds" not in await scrape(jp_fetch)


async def test_collector_ends_with_the_extension(jp_fetch: Fetch, extension: GpuExtension) -> None:
    """Another server in the same process would report everything twice otherwise."""
    ours = extension.metrics
    assert ours is not None
    assert f"{NAME}attached_gpus" in prometheus_client.generate_latest().decode()
    await extension.stop_extension()
    assert f"{NAME}attached_gpus" not in prometheus_client.generate_latest().decode()
    ours.end()
    assert f"{NAME}attached_gpus" not in await scrape(jp_fetch)


def test_start_loads_no_metrics_module() -> None:
    """Modules for figures, details and the list of servers are imported by the first request for them."""
    later = {
        f"jupyter_gpu.{name}"
        for name in ("server.monitoring.rules.figures", "model.details", "model.machine", "model.overview")
    }
    gpus = "jupyter_gpu_node.gpus.nvml, jupyter_gpu_node.gpus.simulated"
    modules = f"jupyter_gpu.server.app, jupyter_gpu.backends.local, {gpus}"
    code = f"import sys, {modules}; print({later} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "set()"
