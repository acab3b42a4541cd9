"""A server of probes and metrics over plain HTTP, for the processes that serve a cluster.

``/healthz``: the process works, or should be restarted. ``/readyz``: it can do its work. ``/metrics``: for
Prometheus, unless the settings say no.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from tornado import web
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

Check = Callable[[], str]
"""Function that returns what is wrong, in words; empty: nothing."""

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
LARGEST_BODY = 1024


class _ProbeHandler(web.RequestHandler):
    """The handler of one check."""

    def initialize(self, check: Check) -> None:
        """Set the check."""
        self.check = check

    def get(self) -> None:
        """Answer 200, or 503 with the reason."""
        why = self.check()
        self.set_status(503 if why else 200)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(why or "ok")


class _MetricsHandler(web.RequestHandler):
    """The handler of the metrics."""

    def initialize(self, metrics: Callable[[], bytes]) -> None:
        """Set the function that returns their text."""
        self.metrics = metrics

    def get(self) -> None:
        """Answer in Prometheus' text format."""
        self.set_header("Content-Type", METRICS_TYPE)
        self.finish(self.metrics())


class StatusServer:
    """The server of probes and metrics; without ``metrics`` of the probes alone."""

    def __init__(
        self, address: str, port: int, *, alive: Check, ready: Check, metrics: Callable[[], bytes] | None
    ) -> None:
        self._where = address, port
        routes: list[Any] = [
            ("/healthz", _ProbeHandler, {"check": alive}),
            ("/readyz", _ProbeHandler, {"check": ready}),
        ]
        if metrics is not None:
            routes.append(("/metrics", _MetricsHandler, {"metrics": metrics}))
        self._server = HTTPServer(web.Application(routes, log_function=lambda _: None), max_body_size=LARGEST_BODY)
        self.port = port
        """The port it listens on, once it has started."""

    def start(self) -> None:
        """Begin to answer. Raises `OSError` if the port is taken."""
        address, port = self._where
        sockets = bind_sockets(port, address)
        self.port = sockets[0].getsockname()[1]
        self._server.add_sockets(sockets)

    async def close(self) -> None:
        """Stop answering."""
        self._server.stop()
        await self._server.close_all_connections()

    async def run(self) -> None:
        """Answer until cancelled."""
        self.start()
        try:
            await asyncio.Event().wait()
        finally:
            await self.close()
