"""Findings about the workers of a server on other nodes: the way to each, and packages that it needs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from jupyter_gpu.model.pod_worker import Stage
from jupyter_gpu.model.view import View
from jupyter_gpu.remote.rules.control import LAST_PORT, PORT

from .findings import Finding, Level

_PORTS = (
    f"Its ports {PORT} to {LAST_PORT} must be open to this pod: ask your administrator whether a NetworkPolicy closes "
    "them."
)

_VERSIONS = (
    "Kernels of another environment than this one may still go with it: they are compared when one starts there."
)


@dataclass(frozen=True, slots=True)
class Way:
    """A worker that was asked something over the network."""

    worker: str
    """Its id."""
    seconds: float = 0.0
    """Time until it had answered, with the handshake."""
    trouble: str = ""
    """Why there was no answer; empty: there was one."""
    unlike: str = ""
    """Why its Python or packages do not go with those of this program; empty: they do, or it does not tell."""


@dataclass(frozen=True, slots=True)
class Tried:
    """The ways to all workers that the server says can be reached, or why none was tried."""

    ways: Sequence[Way] = ()
    missing: Sequence[str] = ()
    """Packages of the extra ``remote`` that are missing."""
    untried: str = ""
    """Why no way was tried; empty: all were."""


def judge_ways(view: View, tried: Tried) -> Iterator[Finding]:
    """Yield the findings about GPUs of other nodes; none where no other node serves the server."""
    if view.elsewhere is None:
        return
    if tried.missing:
        yield _missing(tried.missing)
    ready = [worker for worker in view.workers if worker.stage is Stage.READY]
    if tried.untried and ready:
        yield Finding(Level.NOTE, "worker", f"The way to the workers on other nodes was not tried: {tried.untried}")
        return
    ways: Mapping[str, Way] = {way.worker: way for way in tried.ways}
    for worker in ready:
        way = ways.get(worker.id)
        yield _way(worker.node, way)
        if way is not None and way.unlike:
            yield Finding(Level.PROBLEM, "worker", f"{worker.node}: {way.unlike}", _VERSIONS)


def _way(node: str, way: Way | None) -> Finding:
    if way is None:
        text = f"This server has no key yet for the worker on {node}, so no kernel can use its GPUs."
        advice = "It comes within seconds; else ask your administrator whether the node plugins of both nodes run."
        return Finding(Level.PROBLEM, "worker", text, advice)
    if way.trouble:
        return Finding(Level.PROBLEM, "worker", way.trouble, _PORTS)
    text = f"The worker on {node} answers in {1000 * way.seconds:.0f} ms, and knows the key of this server."
    return Finding(Level.OK, "worker", text)


def _missing(packages: Sequence[str]) -> Finding:
    if list(packages) == ["cryptography"]:
        text = "cryptography is not installed: large values go a slower way to other nodes."
        level = Level.NOTE
    else:
        text = f"Not installed: {', '.join(packages)}. Without it, no GPU of another node can be used."
        level = Level.PROBLEM
    return Finding(level, "remote", text, "Install the extra 'remote' of jupyter-gpu's wheel, and restart the kernels.")
