"""Answers kube-scheduler's filter, prioritize and preempt requests, and binds pods.

A client of this server can bind pods, so only clients with a certificate of the configured authority are accepted. A
process that does not lead, or does not know the cluster yet, answers with an error, and kube-scheduler tries the pod
again. The process then also closes the connection, so that the next one reaches the leader: kube-scheduler never closes
its connections by itself.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from weakref import WeakSet

from tornado import web
from tornado.http1connection import HTTP1Connection
from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream
from tornado.netutil import bind_sockets

from jupyter_gpu.model import strict
from jupyter_gpu.model.annotations import Requested
from jupyter_gpu_scheduler.rules import wire
from jupyter_gpu_scheduler.rules.new_pods.places import places, rate
from jupyter_gpu_scheduler.rules.new_pods.preemption import helpful
from jupyter_gpu_scheduler.rules.queue.fit_cache import wanted
from jupyter_gpu_scheduler.rules.scoring.policy import Policy, WorkloadKind
from jupyter_gpu_scheduler.rules.scoring.score import prioritize
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.records import PodRecord
from jupyter_gpu_scheduler.rules.state.snapshot import CPU

from .binder import Binder
from .cluster_cache import ClusterCache
from .metrics import SchedulerMetrics
from .settings import ExtenderSettings
from .waiting import WaitingPods

CERTIFICATE_SECONDS = 5.0
"""Seconds between two checks whether the certificate files changed."""

WARM_KINDS, WARM_NODES = 16, 50
"""Wishes that are computed in advance, and nodes that are computed before other tasks get a turn."""

_log = logging.getLogger(__name__)


class Extender:
    """The answers to kube-scheduler, without HTTP. ``why_unready`` returns why there can be none now, else empty."""

    def __init__(
        self,
        cache: ClusterCache,
        waiting: WaitingPods,
        binder: Binder,
        policy: Policy,
        why_unready: Callable[[], str],
        settings: ExtenderSettings,
    ) -> None:
        self._cache = cache
        self._waiting = waiting
        self._binder = binder
        self._policy = policy
        self.why_unready = why_unready
        self._settings = settings

    async def warm(self) -> None:
        """Compute in advance what the first requests need, as kube-scheduler does nothing while it waits for an answer.

        This covers the most common wishes of the policy's mix, and pods without one, some nodes at a time; other tasks
        run in between. Where notebooks have workers, then what other nodes can give for each.
        """
        notebooks, snapshot = self._cache.notebooks, self._cache.snapshot
        kinds = sorted((kind for kind in self._policy.workload if kind.wish), key=lambda kind: -kind.share)
        for kind in (*kinds[:WARM_KINDS], WorkloadKind(None, 0)):
            requested = Requested(0, kind.wish) if kind.wish else None
            pod = PodState("", requested=requested, asks={CPU: kind.cpu}, anywhere=notebooks.has_workers)
            names = tuple(snapshot.nodes())
            for start in range(0, len(names), WARM_NODES):
                prioritize(snapshot, pod, names[start : start + WARM_NODES], self._policy)
                await asyncio.sleep(0)
            if pod.anywhere:
                rate(snapshot, notebooks.chooser, pod, names, self._policy)
                await asyncio.sleep(0)

    async def filter(self, body: bytes) -> tuple[str, Any]:
        """Return the outcome for the metrics, and an ``ExtenderFilterResult``."""
        try:
            question = wire.read_extender_args(body, self._settings.body_bytes)
        except strict.FieldError as error:
            return "invalid", wire.filter_error(str(error))
        if why := self.why_unready():
            return "unready", wire.filter_error(why)
        record = self._cache.read(question.pod)
        if not record.matters:
            return "fits", wire.filter_result(question.nodes)
        pod = self._state(record)
        if pod.node:
            return "bound", wire.filter_error(f"The pod is bound to {pod.node} already.")
        found = places(self._cache.snapshot, self._cache.notebooks.chooser, pod, question.nodes)
        self._waiting.asked(pod.uid, question.nodes, bool(found.fitting), as_guest=found.as_guest)
        if wanted(pod) is None and len(found.fitting) == 1:  # with one node, kube-scheduler does not prioritize
            self._waiting.scored(pod.uid, found.fitting)
        return "fits" if found.fitting else "full", wire.filter_result(found.fitting, found.failed, found.never)

    async def prioritize(self, body: bytes) -> tuple[str, Any]:
        """Return the outcome, and a ``HostPriorityList`` or ``None``: kube-scheduler then continues without scores."""
        try:
            question = wire.read_extender_args(body, self._settings.body_bytes)
        except strict.FieldError:
            return "invalid", None
        if self.why_unready():
            return "unready", None
        record = self._cache.read(question.pod)
        pod = self._state(record)
        if not record.matters or pod.node:
            return "done", wire.host_priorities(dict.fromkeys(question.nodes, 0))
        snapshot, chooser, coming = self._cache.snapshot, self._cache.notebooks.chooser, self._waiting.coming(pod.uid)
        scores = rate(snapshot, chooser, pod, question.nodes, self._policy, coming)
        if wanted(pod) is None:
            most = max(scores.values(), default=0)
            self._waiting.scored(pod.uid, tuple(name for name, score in scores.items() if score == most))
        return "done", wire.host_priorities(scores)

    async def bind(self, body: bytes) -> tuple[str, Any]:
        """Return the outcome, and an ``ExtenderBindingResult``."""
        try:
            question = wire.read_binding_args(body, self._settings.body_bytes)
        except strict.FieldError as error:
            return "invalid", wire.bind_result(str(error))
        if why := self.why_unready():
            return "unready", wire.bind_result(why)
        try:
            async with asyncio.timeout(self._settings.deadline_seconds):
                why = await self._binder.bind(question)
        except TimeoutError:
            return "late", wire.bind_result("The API server takes too long; the pod is tried again.")
        self._waiting.bound(question.uid)
        return "refused" if why else "done", wire.bind_result(why)

    async def preempt(self, body: bytes) -> tuple[str, Any]:
        """Return the outcome, and an ``ExtenderPreemptionResult`` or ``None``: then no pod is ended."""
        try:
            question = wire.read_preemption_args(body, self._settings.body_bytes)
        except strict.FieldError as error:
            _log.warning("A question of kube-scheduler about preemption can't be read: %s", error)
            return "invalid", None
        if self.why_unready():
            return "unready", None
        nodes = tuple(node for node, victims in question.victims.items() if victims)
        record = self._cache.read(question.pod)
        if record.matters:
            pod = self._state(record)
            nodes = helpful(self._cache.snapshot, pod, question.victims)
            if nodes:
                self._waiting.preempts(pod.uid, nodes)
        return "helps" if nodes else "in vain", wire.preemption_result(question, nodes)

    def _state(self, record: PodRecord) -> PodState:
        """Return the pod as decisions see it, with its write in flight if it is known here."""
        return self._cache.snapshot.pod(record.state.uid) or self._cache.under_terms(record.state)


Answer = Callable[[bytes], Awaitable[tuple[str, Any]]]


class _VerbHandler(web.RequestHandler):
    """The handler of one verb."""

    def initialize(
        self,
        verb: str,
        answer: Answer,
        why_unready: Callable[[], str],
        metrics: SchedulerMetrics,
        settings: ExtenderSettings,
    ) -> None:
        """Set the verb's answer, and ``why_unready``, which returns why another replica must answer; empty: none."""
        self.why_unready = why_unready
        self.verb = verb
        self.answer = answer
        self.metrics = metrics
        self.settings_of_extender = settings

    def prepare(self) -> None:
        """Accept only clients named in the settings, if any are named."""
        if self.settings_of_extender.client_names and not self._client_allowed():
            raise web.HTTPError(403)

    async def post(self) -> None:
        """Answer one request."""
        began = time.perf_counter()
        outcome, answer = await self.answer(self.request.body)
        self.metrics.answers.labels(self.verb, outcome).inc()
        self.metrics.answer_seconds.labels(self.verb).observe(time.perf_counter() - began)
        self.set_status(200 if answer is not None else 503)
        self.set_header("Content-Type", "application/json")
        unready = bool(self.why_unready())
        if unready:
            self.set_header("Connection", "close")
        await self.finish(json.dumps(answer, separators=(",", ":")))
        if unready and isinstance(self.request.connection, HTTP1Connection):
            self.request.connection.close()

    def _client_allowed(self) -> bool:
        found = self.request.get_ssl_certificate()
        subject = found.get("subject", ()) if isinstance(found, dict) else ()
        names = {value for part in subject for key, value in part if key == "commonName"}
        return bool(names & set(self.settings_of_extender.client_names))


class _Server(HTTPServer):
    """An HTTP server that can close all its connections."""

    def initialize(self, *args: Any, **kwargs: Any) -> None:
        """Prepare the server. ``HTTPServer`` calls this on construction, in place of ``__init__``."""
        super().initialize(*args, **kwargs)
        self._open: WeakSet[IOStream] = WeakSet()

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        """Remember one more connection."""
        self._open.add(stream)
        super().handle_stream(stream, address)

    def drop(self) -> None:
        """Close all connections, even those that wait for an answer."""
        for stream in tuple(self._open):
            stream.close()


class ExtenderServer:
    """The HTTP server of an `Extender`."""

    def __init__(self, extender: Extender, settings: ExtenderSettings, metrics: SchedulerMetrics) -> None:
        self._settings = settings
        verbs: dict[str, Answer] = {
            "filter": extender.filter,
            "prioritize": extender.prioritize,
            "bind": extender.bind,
            "preempt": extender.preempt,
        }
        common = {"why_unready": extender.why_unready, "metrics": metrics, "settings": settings}
        routes: list[Any] = [
            (f"/{verb}", _VerbHandler, {"verb": verb, "answer": answer, **common}) for verb, answer in verbs.items()
        ]
        app = web.Application([*routes, ("/healthz", _AliveHandler)], log_function=_quiet)
        self._server = _Server(app, ssl_options=tls_context(settings), max_body_size=settings.body_bytes)
        self._sockets = bind_sockets(settings.port, settings.address)

    @property
    def port(self) -> int:
        """The port it listens on."""
        port: int = self._sockets[0].getsockname()[1]
        return port

    def start(self) -> None:
        """Begin to answer."""
        self._server.add_sockets(self._sockets)

    async def run(self) -> None:
        """Load renewed certificates and authorities, until cancelled."""
        seen = self._stamps()
        while True:
            await asyncio.sleep(CERTIFICATE_SECONDS)
            now = self._stamps()
            if now == seen:
                continue
            try:  # a new context: half-written files leave the old one in use, and no old authority stays
                self._server.ssl_options = tls_context(self._settings)
                seen = now
                _log.info("The certificates of the extender were read again.")
            except (OSError, ssl.SSLError) as error:
                _log.warning("The renewed certificates can't be used (yet): %s", error)

    def drop(self) -> None:
        """Close all connections at once: the next ones reach the new leader."""
        self._server.drop()

    async def close(self) -> None:
        """Stop accepting requests; those under way are answered."""
        self._server.stop()
        await self._server.close_all_connections()

    def _stamps(self) -> list[tuple[int, int] | None]:
        files = (self._settings.certificate, self._settings.key, self._settings.client_ca)
        return [_stamp(path) for path in files if path]


class _AliveHandler(web.RequestHandler):
    """The handler of the check that the extender listens here."""

    def get(self) -> None:
        """Answer that it listens."""
        self.finish("ok\n")


def tls_context(settings: ExtenderSettings) -> ssl.SSLContext | None:
    """Return mutual TLS, or ``None`` for plain HTTP. Raises ``OSError`` or ``ssl.SSLError`` for unusable files."""
    if not settings.secure:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    assert settings.certificate
    context.load_cert_chain(settings.certificate, settings.key)
    context.load_verify_locations(settings.client_ca)
    return context


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return the modification time and inode of a file, which change when it is replaced; the kubelet swaps a link."""
    try:
        found = path.stat()
    except OSError:  # while it is being replaced
        return None
    return found.st_mtime_ns, found.st_ino


def _quiet(handler: web.RequestHandler) -> None:
    """Log only failed requests; the metrics count all."""
    if handler.get_status() >= 500 and handler.get_status() != 503:
        _log.error("%s %s: %s", handler.request.method, handler.request.path, handler.get_status())
