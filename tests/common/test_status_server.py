"""The server of probes and metrics, as the kubelet and Prometheus meet it."""

import asyncio

import pytest
from tornado.httpclient import AsyncHTTPClient

from jupyter_gpu.common.status_server import StatusServer
from tests.common.status import answers


@pytest.mark.parametrize("served", [True, False])
def test_metrics_are_served_unless_the_settings_say_no(served: bool) -> None:
    """Without metrics the probes are answered all the same."""
    server = StatusServer("127.0.0.1", 0, alive=str, ready=str, metrics=(lambda: b"gpus 4\n") if served else None)
    found = asyncio.run(answers(server, "/healthz", "/readyz", "/metrics"))
    assert [status for status, _ in found] == [200, 200, 200 if served else 404]
    assert found[2][1] == "gpus 4\n" or not served


def test_failed_probe_says_why() -> None:
    """A check that fails answers 503 with its words; the other probe has an answer of its own."""
    server = StatusServer("127.0.0.1", 0, alive=str, ready=lambda: "The cluster is not known yet.", metrics=None)
    found = asyncio.run(answers(server, "/healthz", "/readyz"))
    assert found == [(200, "ok"), (503, "The cluster is not known yet.")]


def test_run_answers_until_cancelled() -> None:
    """The server answers while `run` is awaited, and its port is free again afterwards."""

    async def whole() -> tuple[int, list[tuple[int, str]]]:
        server = StatusServer("127.0.0.1", 0, alive=str, ready=str, metrics=None)
        task = asyncio.create_task(server.run())
        while not server.port:
            await asyncio.sleep(0)
        answer = await AsyncHTTPClient().fetch(f"http://127.0.0.1:{server.port}/healthz")
        task.cancel()
        await asyncio.wait([task])
        again = StatusServer("127.0.0.1", server.port, alive=str, ready=str, metrics=None)
        return answer.code, await answers(again, "/healthz")

    assert asyncio.run(whole()) == (200, [(200, "ok")])
