"""The port of the node plugin, as probes and Prometheus meet it."""

import asyncio

import pytest
from tornado.httpclient import AsyncHTTPClient

from jupyter_gpu_node.agent.metrics import Metrics, Port


@pytest.mark.parametrize("served", [True, False])
def test_metrics_are_served_unless_the_settings_say_no(served: bool) -> None:
    """Then nobody gets them, and the probes are answered all the same."""

    async def statuses() -> list[int]:
        port = Port(Metrics(), str, str, "127.0.0.1", 0, served)
        task = asyncio.create_task(port.run())
        await port.started.wait()
        client = AsyncHTTPClient()
        try:
            paths = ("/healthz", "/readyz", "/metrics")
            urls = (f"http://127.0.0.1:{port.bound}{path}" for path in paths)
            return [(await client.fetch(url, raise_error=False)).code for url in urls]
        finally:
            task.cancel()
            await asyncio.wait([task])

    assert asyncio.run(statuses()) == [200, 200, 200 if served else 404]
