"""Settings of the hub's service of an administrator: the file behind ``--settings``, and the hub's environment."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from jupyter_gpu.common import limits_file
from jupyter_gpu.common.machine_zone import zone_name
from jupyter_gpu.common.settings_file import SettingsError, bounded
from jupyter_gpu.model.limits.machine_file import HUB
from jupyter_gpu.model.message import is_language

URL = "JUPYTERHUB_SERVICE_URL"
"""Variable with the address to listen on; the hub sets it for a service that it starts."""
NEEDED = ("JUPYTERHUB_API_TOKEN", "JUPYTERHUB_API_URL", "JUPYTERHUB_CLIENT_ID", "JUPYTERHUB_SERVICE_PREFIX")
"""Variables that every service of a hub has; the chart sets them for one that the hub does not start."""


@dataclass(frozen=True, slots=True)
class RateSettings:
    """The rate of requests that each token may make."""

    per_second: float = bounded(10.0, least=0.1, most=10_000)
    """Requests a second over a long time. Default 10."""
    burst: float = bounded(60.0, least=1, most=100_000)
    """Requests at once. Default 60."""


@dataclass(frozen=True, slots=True)
class HubRequestSettings:
    """Bounds on what the hub is asked about tokens. A request above them is refused with status 503."""

    at_once: int = bounded(8, least=1, most=100)
    """Questions that are open at the same time. Default 8."""
    waiting: int = bounded(200, least=1, most=10_000)
    """Requests that wait for the hub's answer, all together. Default 200."""
    seconds: float = bounded(5.0, least=0.5, most=60)
    """Seconds for which one waits at most. Default 5."""
    stale_seconds: int = bounded(30, least=1, most=300)
    """Seconds for which the hub's last answer about a token counts for reads while the hub is busy or away; never fewer
    than ``cacheSeconds``. Default 30.
    """


@dataclass(frozen=True, slots=True)
class MachineSettings:
    """The files of a machine without a cluster. Only root, or the owner of the state directory, may run the service."""

    limits: Path = limits_file.MACHINE
    """Root's file with the limits. Default ``/etc/jupyter/jupyter_gpu_limits.json``; where servers in containers read
    it, ``limits.json`` in the state directory."""
    state: Path | None = None
    """The state directory, as the setting ``state_dir`` of the servers; without it the usual one."""
    folder: Path = limits_file.LASTING
    """Folder for the record of limits that were removed. Default ``/var/lib/jupyter-gpu``."""


@dataclass(frozen=True, slots=True)
class HubServiceSettings:
    """All settings of the service."""

    store: Literal["cluster", "machine"] = "cluster"
    """Where limits, accounts, pods and GPUs are: in a Kubernetes cluster, or in files of one machine. Default
    ``cluster``; it is never guessed."""
    machine: MachineSettings = MachineSettings()
    hub: str = ""
    """Name of the hub, as pods have it in the annotation ``jupyter-gpu.io/hub``, else the namespace of the users' pods.
    Empty: the namespace of this service's own pod (``POD_NAMESPACE``), and on one machine ``local``.
    """
    edit: bool = True
    """Whether limits may be changed here. ``false`` where they are kept elsewhere, as in a repository. Default true."""
    address: str = ""
    """Address to listen on; empty: that of ``JUPYTERHUB_SERVICE_URL``, else 127.0.0.1."""
    port: int = bounded(0, least=0, most=65535)
    """Port to listen on; 0: that of ``JUPYTERHUB_SERVICE_URL``, else 8888."""
    kubeconfig: Path | None = None
    """Kubeconfig; without it the pod's service account, else ``KUBECONFIG``."""
    cache_seconds: int = bounded(3, least=1, most=60)
    """Seconds for which the hub's answer about a token counts for reads; writes ask each time. Default 3."""
    hub_requests: HubRequestSettings = HubRequestSettings()
    mirror: bool = True
    """Whether members and properties of the hub's groups are mirrored. Default true."""
    mirror_seconds: float = bounded(10.0, least=0.2, most=3600)
    """Seconds between two looks at the hub's groups. Default 10."""
    mirror_shared: bool = True
    """Whether limits for groups of every hub count for this hub's groups of those names, too. Default true."""
    users_seconds: float = bounded(60.0, least=0.2, most=3600)
    """Age in seconds at which the list of the hub's users is read again when a page shows it. Default 60."""
    pages: int = bounded(500, least=1, most=10_000)
    """Pages that may follow changes at the same time. Default 500, and 20 for each person."""
    time_zone: str = ""
    """Time zone of hours and budgets, the scheduler's, such as ``Europe/Berlin``: for previews. Default UTC; on one
    machine always the machine's."""
    language: str = ""
    """Language of all answers, such as ``de`` or ``pt_BR``, if a pack has it; empty: the one that each browser likes
    best. Default empty.
    """
    rate: RateSettings = RateSettings()
    write: bool = False
    """Whether servers may have the requests of their own pods written here. Default false."""
    server_rate: RateSettings = RateSettings(per_second=1.0, burst=5.0)
    """The rate of such requests, reads included, for each server. Default: 1 a second, 5 at once."""

    def __post_init__(self) -> None:
        if self.language and not is_language(self.language):
            raise ValueError(f"'language' is no language: {self.language!r}; write it as de, de-DE or pt_BR.")
        if self.store == "machine":
            self._check_machine()
        elif not self.time_zone:
            object.__setattr__(self, "time_zone", "UTC")
        try:
            ZoneInfo(self.time_zone)
        except (OSError, ValueError) as error:  # ZoneInfoNotFoundError is a KeyError
            raise ValueError(f"'timeZone' is no time zone: {error}") from None
        except KeyError:
            raise ValueError(f"'timeZone' is not known on this machine: {self.time_zone!r}.") from None

    def _check_machine(self) -> None:
        if self.time_zone or self.kubeconfig or self.write:
            raise ValueError(
                "With 'store': 'machine' leave out 'timeZone' (it is the machine's), 'kubeconfig' (there is no "
                "cluster) and 'write' (each server takes its GPUs itself)."
            )
        object.__setattr__(self, "time_zone", zone_name())

    @property
    def zone(self) -> tzinfo:
        """The time zone."""
        return ZoneInfo(self.time_zone)


def listen_on(settings: HubServiceSettings, environ: Mapping[str, str]) -> tuple[str, int]:
    """Return address and port to listen on; raises `SettingsError`."""
    url = environ.get(URL, "")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "127.0.0.1", parts.port or 8888
    except ValueError:
        raise SettingsError(f"{URL} is no address with a port: {url[:200]!r}.") from None
    host = settings.address or ("127.0.0.1" if host == "localhost" else host)
    try:
        ipaddress.ip_address(host)
    except ValueError:  # the name of a Kubernetes Service, under which others reach it: that is no address of ours
        host = "0.0.0.0"  # noqa: S104 - its pod is behind a network policy
    return host, settings.port or port


def check_environment(environ: Mapping[str, str]) -> None:
    """Raise `SettingsError` unless the hub's variables are there."""
    missing = [name for name in NEEDED if not environ.get(name)]
    if missing:
        raise SettingsError(
            f"{', '.join(missing)} must be set. A hub sets them for the services that it starts; for one that it does "
            "not start, set them to the values of its entry in JupyterHub.services."
        )


def hub_name(settings: HubServiceSettings, environ: Mapping[str, str], namespace: str) -> str:
    """Return the name of the hub; ``namespace``: that of our own pod. Raises `SettingsError`."""
    if settings.store == "machine":
        return settings.hub or HUB
    name = settings.hub or environ.get("POD_NAMESPACE", "") or namespace
    if not name:
        raise SettingsError("The hub has no name: set 'hub' to the namespace of its users' pods.")
    return name
