"""The scheduler's process, put together of its parts, without a cluster."""

import asyncio

import pytest

from jupyter_gpu.kube import Kube
from jupyter_gpu.kube.credentials import Credentials
from jupyter_gpu_scheduler.process import SchedulerProcess
from jupyter_gpu_scheduler.settings import ExtenderSettings, SchedulerSettings, StatusSettings
from tests.common.status import answers


@pytest.mark.parametrize("served", [True, False])
def test_metrics_are_served_as_the_settings_say(served: bool) -> None:
    """With `metrics` false the port has the probes alone."""

    async def found() -> list[tuple[int, str]]:
        settings = SchedulerSettings(
            extender=ExtenderSettings(port=0), status=StatusSettings(address="127.0.0.1", port=0, metrics=served)
        )
        process = SchedulerProcess(Kube(Credentials("https://127.0.0.1:1")), settings, {})
        process.extender.start()
        try:
            return await answers(process.status, "/healthz", "/metrics")
        finally:
            await process.extender.close()

    health, metrics = asyncio.run(found())
    assert health == (200, "ok")
    assert metrics[0] == (200 if served else 404)
    assert ("jupyter_gpu_scheduler_leading" in metrics[1]) is served
