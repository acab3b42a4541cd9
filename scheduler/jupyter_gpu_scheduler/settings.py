"""Settings of the scheduler for an administrator: the JSON file behind ``--settings``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from zoneinfo import ZoneInfo

from jupyter_gpu.common.settings_file import bounded, checked
from jupyter_gpu.model import strict
from jupyter_gpu.model.service import MAX_WORKERS
from jupyter_gpu_scheduler.rules.accounts.counters import Names
from jupyter_gpu_scheduler.rules.limits.job_end import JOB_KINDS
from jupyter_gpu_scheduler.rules.pairs.relation import Network
from jupyter_gpu_scheduler.rules.scoring.policy import Policy, PolicyError
from jupyter_gpu_scheduler.rules.state.resources import QUANTITY, quantity

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def _read_policy(value: Any, key: str) -> Policy:
    try:
        return Policy.from_settings(strict.an_object(value, repr(key)))
    except PolicyError as error:
        raise strict.FieldError(str(error), key) from None


def _read_zone(value: Any, key: str) -> ZoneInfo:
    name = strict.text(64)(value, key)
    try:
        return ZoneInfo(name)
    except (ValueError, OSError):  # such as a name that leads out of the folder of zones, or no zone of that name
        raise strict.FieldError(f"{key!r} must be a time zone such as UTC or Europe/Berlin.", key) from None


def _read_cpu(value: Any, key: str) -> int:
    return _read_quantity(value, key, 1000)


def _read_bytes(value: Any, key: str) -> int:
    return _read_quantity(value, key, 1)


def _read_quantity(value: Any, key: str, scale: int) -> int:
    text = strict.text(32)(value, key)
    if not QUANTITY.fullmatch(text):
        raise strict.FieldError(f"{key!r} must be an amount such as 100m or 8Gi.", key)
    return quantity(text, scale)


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """Leader election among several replicas."""

    name: str = "jupyter-gpu-scheduler"
    """Name of the Lease object, in the scheduler's own namespace."""
    namespace: str = ""
    """Namespace of the Lease object; empty: the environment's ``POD_NAMESPACE``, else ``default``."""
    duration_seconds: float = bounded(15.0, least=1, most=600)
    """Seconds until another may take over from a leader that is silent. Default 15."""
    renew_seconds: float = bounded(10.0, least=0.5, most=600)
    """A leader that could not renew for so long stops leading; less than the duration. Default 10."""
    retry_seconds: float = bounded(2.0, least=0.1, most=60)
    """Between two tries to get or renew it. Default 2."""

    def __post_init__(self) -> None:
        if not self.retry_seconds < self.renew_seconds < self.duration_seconds:
            raise ValueError("'lease' needs retrySeconds < renewSeconds < durationSeconds.")


@dataclass(frozen=True, slots=True)
class ExtenderSettings:
    """The address at which kube-scheduler asks, and its TLS."""

    address: str = "127.0.0.1"
    """Address to listen on; ``0.0.0.0`` or ``::`` for all, which needs certificates. Default 127.0.0.1."""
    port: int = bounded(8443, least=0, most=65535)
    """Port to listen on; 0 takes a free one. Default 8443."""
    certificate: Path | None = None
    """The server's certificate, PEM. Read again when the file changes."""
    key: Path | None = None
    """Its private key, PEM."""
    client_ca: Path | None = None
    """Authority whose certificates clients must have, PEM."""
    client_names: tuple[str, ...] = ()
    """Common names of client certificates that are accepted; empty: every one of that authority."""
    endpoint_slice: str = ""
    """Name of an EndpointSlice in our namespace, into which the leader writes its address (``POD_IP``) for the Service
    of that name. Empty: none.
    """
    deadline_seconds: float = bounded(3.0, least=0.1, most=60)
    """Seconds for one answer, bind included; less than kube-scheduler's ``httpTimeout`` (5 s by default). Default 3."""
    body_bytes: int = bounded(16 * 1024**2, least=1024, most=1024**3)
    """Largest request. Names of 5,000 nodes and a pod are about 150 kB. Default 16 MiB."""

    def __post_init__(self) -> None:
        files = [self.certificate, self.key, self.client_ca]
        if any(files) and not all(files):
            raise ValueError("'extender' needs certificate, key and clientCa together.")
        if not any(files) and self.address not in LOOPBACK:
            raise ValueError(
                "'extender' answers without certificates only on 127.0.0.1: its clients can place pods. "
                "Give certificate, key and clientCa."
            )

    @property
    def secure(self) -> bool:
        """Whether mutual TLS is spoken."""
        return self.certificate is not None


@dataclass(frozen=True, slots=True)
class StatusSettings:
    """The address of ``/healthz``, ``/readyz`` and ``/metrics``, in plain HTTP."""

    address: str = "0.0.0.0"  # noqa: S104 the kubelet's probes come from the node
    """Address to listen on. Default: all addresses."""
    port: int = bounded(8080, least=0, most=65535)
    """Port to listen on; 0 takes a free one. Default 8080."""
    metrics: bool = True
    """Whether ``/metrics`` is served, to any client that reaches the port. The probes always are. Default true."""
    users: Names = "names"
    """The names of users there. ``names``: as the hub names them, so that metrics can be joined with the hub's;
    ``hashed``: by a hash, which distinguishes users and can be computed from a name; ``none``: not at all, so that the
    users of a namespace are counted together. Default names."""


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """Limits on the load on the API server."""

    concurrent: int = bounded(16, least=1, most=512)
    """Writes on their way at once, one per pod. Default 16."""
    backoff_seconds: float = bounded(0.25, least=0.01, most=60)
    """Seconds before a failed write is tried again; doubles each time up to ``backoffMaxSeconds``. Default 0.25."""
    backoff_max_seconds: float = bounded(10.0, least=0.01, most=600)
    """Default 10."""


@dataclass(frozen=True, slots=True)
class LineSettings:
    """The line of waiting pods, and how often a waiting pod's wish is answered and its position updated."""

    patience_seconds: float = bounded(600.0, least=1, most=365 * 86400)
    """Seconds after which a waiting pod is served before all later ones, whatever their priority. Default 600."""
    place_seconds: float = bounded(10.0, least=0, most=3600)
    """Seconds between two updates of a waiting pod's position in line, where nothing else is new. Default 10."""
    wish_burst: int = bounded(20, least=1, most=10_000)
    """So many changes of one pod's wish are answered at once, ... Default 20."""
    wish_seconds: float = bounded(0.2, least=0, most=3600)
    """... then one in so many seconds; 0: all at once. What is given back is never held up. Default 0.2."""


@dataclass(frozen=True, slots=True)
class PrioritySettings:
    """The highest priority that wishes may use; a higher one counts as that."""

    default: int = bounded(9, least=0, most=9)
    """Highest priority in all namespaces that are not named. Default 9."""
    namespaces: Mapping[str, int] | None = bounded(None, least=0, most=9)
    """Highest priority by namespace."""

    def cap(self, namespace: str) -> int:
        """Return the highest priority of one namespace."""
        return (self.namespaces or {}).get(namespace, self.default)


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """Limits of users, groups and namespaces, which are objects in the cluster (``GpuLimit``)."""

    time_zone: ZoneInfo = checked(_read_zone, default=ZoneInfo("UTC"))  # noqa: RUF009 it is a field
    """Time zone of the hours of limits, and of the days, weeks and months of budgets. Default UTC."""
    queue: Literal["fair", "ticket"] = "fair"
    """Order of the line where limits exist. ``fair``: owners below what is guaranteed come first, then the higher
    priority, then the owner with the least for the weight; ``ticket``: first come, first served. Default fair."""
    reclaim: bool = False
    """Whether guaranteed GPUs are taken back from owners who have more than is guaranteed to them, after their grace.
    GPUs of preemptible pods always are. Default false."""
    job_kinds: tuple[str, ...] = JOB_KINDS
    """Kinds of controllers whose preemptible pods are ended when what they have open is taken, as Kubernetes writes
    kind and group: ``Job.batch``. Pods of others drain. Default: Jobs, and what workflow engines and training
    operators make pods for."""


@dataclass(frozen=True, slots=True)
class NotebookWorkerSettings:
    """Workers: pods through which a running notebook has GPUs of other nodes. The worker controller makes them."""

    namespaces: tuple[str, ...] = ()
    """Namespaces whose pods may have GPUs of other nodes; the worker controller's own setting names the same. Empty:
    none. Default: none."""
    per_pod: int = bounded(4, least=1, most=MAX_WORKERS)
    """Most workers of one pod. Default 4."""
    grace_seconds: float = bounded(600.0, least=0, most=86400)
    """Seconds for which a worker without GPUs is kept, so that the next GPU there is had at once. Default 600."""
    cpu: int = checked(_read_cpu, default=100)
    """CPU that a worker pod requests, as the worker controller's template says: thousandths, written as in Kubernetes.
    Default 100m."""
    memory: int = checked(_read_bytes, default=256 * 1024**2)
    """Memory that it requests: bytes, written as in Kubernetes. Default 256Mi."""


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """All settings of the scheduler."""

    policy: Policy = checked(_read_policy, default=Policy())  # noqa: RUF009 it is a field
    """Policy for placing new pods:
    ``{"name": "fgd" | "pack" | "spread" | "source", "weights"?, "models"?, "gpus"?, "headroom"?, "workload"?}``.
    Default fgd.
    """
    relation: Network = Network()  # noqa: RUF009 it can't be changed
    """Nearness of nodes: labels that name a switch, and points for each relation."""
    lease: LeaseSettings = LeaseSettings()
    """Leader election."""
    extender: ExtenderSettings = ExtenderSettings()
    """The address at which kube-scheduler asks. Default: plain HTTP on 127.0.0.1:8443."""
    status: StatusSettings = StatusSettings()
    """Probes and metrics."""
    writes: WriteSettings = WriteSettings()
    """Pressure on the API server."""
    line: LineSettings = LineSettings()
    """The line of waiting pods."""
    priorities: PrioritySettings = PrioritySettings()
    """Highest priorities by namespace. Default: all priorities count."""
    limits: LimitSettings = LimitSettings()
    """Limits of users, groups and namespaces."""
    workers: NotebookWorkerSettings = NotebookWorkerSettings()
    """GPUs of other nodes for running pods. Default: none."""
    lending: bool = False
    """Whether a shared GPU whose pods do nothing may have a guest: a preemptible pod that waits for a part of a GPU.
    Default false."""
    namespaces: tuple[str, ...] = ()
    """Namespaces whose pods get GPUs; empty: all."""
    silence_seconds: float = bounded(300.0, least=1, most=3600)
    """Watches that heard nothing from the API server for so long, bookmarks included, are no more believed: the
    liveness probe fails. Default 300."""
    wake_seconds: float = bounded(1.0, least=0.05, most=60)
    """A waiting pod that has room now and was not asked for again by then is written, which wakes kube-scheduler.
    Default 1."""
    kubeconfig: Path | None = None
    """Outside a cluster; ``None``: the pod's service account, else ``KUBECONFIG``."""
