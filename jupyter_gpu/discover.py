"""How code finds the Jupyter server it belongs to, with no configuration.

In this order:

1. under JupyterHub: the variables that the hub gives to every server and its kernels;
2. the server that started this kernel (``JPY_PARENT_PID``), or a parent process of this one: a terminal of the server,
   a script started by a kernel. Each server writes ``jpserver-<pid>.json`` into Jupyter's runtime directory;
3. the only Jupyter server of this user that runs.

A server that listens on every address is asked at 127.0.0.1. Its certificate, if it has one, is not checked there:
the connection stays on this machine, and certificates are made for the names that browsers use.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .model.errors import ServerUnreachable

_MAX_BYTES = 64 * 1024
_LOOPBACK = "127.0.0.1"
_HERE = frozenset({"", "*", "0.0.0.0", "::", "localhost"})  # noqa: S104 - names of "this machine", nothing is bound
_NONE = (
    "No Jupyter server was found. Run this in a notebook or a terminal of a Jupyter server that has jupyter-gpu; "
    "start one with 'jupyter lab'."
)


@dataclass(frozen=True, slots=True)
class Server:
    """Where to send requests."""

    host: str
    port: int
    base: str = "/"
    """Path prefix with a slash at both ends."""
    token: str = field(default="", repr=False)
    secure: bool = False
    sock: str = ""
    """Path of a Unix socket, where the server listens on that instead of a port."""

    @property
    def url(self) -> str:
        """For people; holds no token."""
        if self.sock:
            return f"unix:{self.sock}{self.base}"
        return f"http{'s' if self.secure else ''}://{self.host}:{self.port}{self.base}"


def find(environ: Mapping[str, str] | None = None, pid: int | None = None) -> Server:
    """The server of process ``pid`` (default: this one) with its environment.

    Raises :class:`~.model.errors.ServerUnreachable` with what is missing.
    """
    env = os.environ if environ is None else environ
    return _of_hub(env) or _of_parents(env, os.getpid() if pid is None else pid) or _only_one(env)


def _of_hub(env: Mapping[str, str]) -> Server | None:
    token, address = env.get("JUPYTERHUB_API_TOKEN"), env.get("JUPYTERHUB_SERVICE_URL")
    if not token or not address:
        return None
    try:
        parts = urlsplit(address)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise ServerUnreachable(f"JUPYTERHUB_SERVICE_URL is not an address: {error}.") from None
    base = env.get("JUPYTERHUB_SERVICE_PREFIX") or parts.path
    return Server(_host(parts.hostname or ""), port, _slashed(base), token, parts.scheme == "https")


def _of_parents(env: Mapping[str, str], pid: int) -> Server | None:
    directory = runtime_dir(env)
    word = env.get("JPY_PARENT_PID", "")
    started_by = [int(word)] if word.isascii() and word.isdigit() else []
    for candidate in (*started_by, *ancestors(pid)):
        server = _read(directory / f"jpserver-{candidate}.json")
        if server is not None:
            return server
    return None


def _only_one(env: Mapping[str, str]) -> Server:
    try:
        names = sorted(runtime_dir(env).glob("jpserver-*.json"))
    except OSError:
        names = []
    servers = [server for name in names if (server := _read(name)) is not None]
    if not servers:
        raise ServerUnreachable(_NONE)
    if len(servers) > 1:
        urls = ", ".join(server.url for server in servers)
        raise ServerUnreachable(
            f"{len(servers)} Jupyter servers run here ({urls}) and this process belongs to none of them. "
            "Run it in a notebook or a terminal of the one you mean."
        )
    return servers[0]


def runtime_dir(env: Mapping[str, str]) -> Path:
    """Jupyter's runtime directory by the rules of jupyter_core for Linux."""
    if given := env.get("JUPYTER_RUNTIME_DIR"):
        return Path(given)
    if data := env.get("JUPYTER_DATA_DIR"):
        return Path(data) / "runtime"
    home = env.get("XDG_DATA_HOME") or Path(env.get("HOME") or Path.home()) / ".local" / "share"
    return Path(home) / "jupyter" / "runtime"


def ancestors(pid: int) -> Iterator[int]:
    """``pid``, its parent, and so on, as far as ``/proc`` tells."""
    seen: set[int] = set()
    while pid > 0 and pid not in seen:
        seen.add(pid)
        yield pid
        try:
            # The command stands in brackets and may itself hold any character: what follows the last bracket is safe.
            fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
            pid = int(fields[1])
        except (OSError, ValueError, IndexError):
            return


def _read(path: Path) -> Server | None:
    """The server that ``path`` describes; None unless this user wrote it and it runs."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    with open(descriptor, "rb") as file:  # noqa: PTH123 - already open
        about = os.fstat(descriptor)
        # Whoever writes this file chooses where our token goes.
        if about.st_uid != os.geteuid() or not stat.S_ISREG(about.st_mode):
            return None
        try:
            info = json.loads(file.read(_MAX_BYTES))
        except (OSError, ValueError):
            return None
    return _server(info) if isinstance(info, dict) and _runs(info.get("pid")) else None


def _server(info: Mapping[str, Any]) -> Server | None:
    port, base, token = info.get("port"), info.get("base_url", "/"), info.get("token", "")
    host, sock = info.get("hostname", ""), info.get("sock") or ""
    if not all(isinstance(text, str) for text in (base, token, host, sock)) or not isinstance(port, int):
        return None
    return Server(_host(host), port, _slashed(base), token, info.get("secure") is True, sock)


def _runs(pid: object) -> bool:
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _host(name: str) -> str:
    return _LOOPBACK if name in _HERE else name


def _slashed(base: str) -> str:
    return f"/{base.strip('/')}/" if base.strip("/") else "/"
