"""Probes and metrics over plain HTTP.

``/healthz``: this process hears the API server, or did not so long ago that it should be started anew. ``/readyz``: it
knows the cluster; whether it leads is no part of that. ``/metrics``: for Prometheus, unless the settings say no.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tornado import web
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from .metrics import CONTENT_TYPE, SchedulerMetrics
from .settings import StatusSettings

Check = Callable[[], str]
"""Function that says what is wrong, in words; empty: nothing is."""


class _ProbeHandler(web.RequestHandler):
    """The handler of one check."""

    def initialize(self, check: Check) -> None:
        """Set the check."""
        self.check = check

    def get(self) -> None:
        """Answer 200, or 503 and why."""
        why = self.check()
        self.set_status(503 if why else 200)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(f"{why or 'ok'}\n")


class _MetricsHandler(web.RequestHandler):
    """The handler of the metrics."""

    def initialize(self, metrics: SchedulerMetrics) -> None:
        """Set the metrics."""
        self.metrics = metrics

    def get(self) -> None:
        """Answer in Prometheus' text format."""
        self.set_header("Content-Type", CONTENT_TYPE)
        self.finish(self.metrics.text())


class StatusServer:
    """The server of probes and metrics."""

    def __init__(self, settings: StatusSettings, metrics: SchedulerMetrics, *, alive: Check, ready: Check) -> None:
        routes: list[Any] = [
            ("/healthz", _ProbeHandler, {"check": alive}),
            ("/readyz", _ProbeHandler, {"check": ready}),
        ]
        if settings.metrics:
            routes.append(("/metrics", _MetricsHandler, {"metrics": metrics}))
        self._server = HTTPServer(web.Application(routes, log_function=lambda _: None), max_body_size=1024)
        self._sockets = bind_sockets(settings.port, settings.address)

    @property
    def port(self) -> int:
        """The port it listens on."""
        port: int = self._sockets[0].getsockname()[1]
        return port

    def start(self) -> None:
        """Begin to answer."""
        self._server.add_sockets(self._sockets)

    async def close(self) -> None:
        """Stop answering."""
        self._server.stop()
        await self._server.close_all_connections()
