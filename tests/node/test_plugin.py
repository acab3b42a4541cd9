"""The node plugin, put together of its parts, without a cluster and without GPUs."""

import asyncio
from pathlib import Path

import pytest

from jupyter_gpu.kube import Kube
from jupyter_gpu.kube.credentials import Credentials
from jupyter_gpu_node.__main__ import Plugin
from jupyter_gpu_node.settings import Settings, Simulated
from tests.common.status import answers


@pytest.mark.parametrize("served", [True, False])
def test_metrics_are_served_as_the_settings_say(tmp_path: Path, served: bool) -> None:
    """With `metrics` false the port has the probes alone."""
    settings = Settings(
        node="node1",
        pod_ip="127.0.0.1",
        port=0,
        metrics=served,
        simulated=Simulated(),
        state=tmp_path / "state",
        run=tmp_path / "run",
        pins=tmp_path / "pins",
    )

    async def found() -> list[tuple[int, str]]:
        plugin = Plugin(settings, Kube(Credentials("https://127.0.0.1:1")))
        try:
            return await answers(plugin.status, "/readyz", "/metrics")
        finally:
            plugin.scanner.close()
            plugin.inventory.close()

    readiness, metrics = asyncio.run(found())
    assert readiness == (503, "The pods of earlier processes are not guarded yet.")
    assert metrics[0] == (200 if served else 404)
    assert ("jupyter_gpu_can_guard" in metrics[1]) is served
