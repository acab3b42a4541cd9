"""Settings of the worker controller for an administrator: the JSON file behind ``--settings``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jupyter_gpu.common.settings_file import bounded
from jupyter_gpu.model.service import MAX_WORKERS
from jupyter_gpu_scheduler.settings import LeaseSettings

from .rules.template import Template


@dataclass(frozen=True, slots=True)
class WorkerLeaseSettings(LeaseSettings):
    """Leader election among several replicas."""

    name: str = "jupyter-gpu-workers"
    """Name of the Lease object, in the controller's own namespace."""


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """The address of ``/healthz``, ``/readyz`` and ``/metrics``, in plain HTTP."""

    address: str = "0.0.0.0"  # noqa: S104 the kubelet's probes come from the node
    """Address to listen on. Default: all addresses."""
    port: int = bounded(8080, least=0, most=65535)
    """Port to listen on; 0 takes a free one. Default 8080."""
    metrics: bool = True
    """Whether ``/metrics`` is served, to any client that reaches the port. The probes always are. Default true."""


@dataclass(frozen=True, slots=True)
class BoundSettings:
    """Bounds on workers, whatever the scheduler asks for."""

    per_pod: int = bounded(4, least=1, most=MAX_WORKERS)
    """Most workers of one notebook. Default 4."""
    per_owner: int = bounded(8, least=1, most=1000)
    """Most workers of all notebooks of one owner. Default 8."""
    burst: int = bounded(4, least=1, most=100)
    """So many workers of an owner are created at once, ... Default 4."""
    per_second: float = bounded(1.0, least=0.01, most=100)
    """... then so many in a second. Default 1."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """All settings of the worker controller."""

    namespaces: tuple[str, ...]
    """Namespaces whose notebooks may have workers. It has rights in these alone."""
    template: Template = Template()  # noqa: RUF009 it never changes
    """The pods that it creates."""
    bounds: BoundSettings = BoundSettings()
    """Bounds on their number."""
    lease: WorkerLeaseSettings = WorkerLeaseSettings()
    """Leader election."""
    status: ProbeSettings = ProbeSettings()
    """Probes and metrics."""
    silence_seconds: float = bounded(300.0, least=1, most=3600)
    """Watches that heard nothing from the API server for so long are no more believed: the liveness probe fails.
    Default 300."""
    kubeconfig: Path | None = None
    """Outside a cluster; ``None``: the pod's service account, else ``KUBECONFIG``."""

    def __post_init__(self) -> None:
        if not self.namespaces or not all(self.namespaces):
            raise ValueError("'namespaces' must name a namespace: the controller has rights in named ones alone.")
