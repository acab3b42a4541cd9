"""Discovery of the Jupyter server that code belongs to, with no configuration.

In this order:

1. the server that its user names: ``gpu.connect(url)``, ``jupyter gpu --url``, or ``JUPYTER_GPU_URL`` (and
``JUPYTER_GPU_TOKEN``); 2. the file that the server names to its kernels and terminals (``JUPYTER_GPU_SERVER``): where
it listens for them, and their secret. It stays the same when that server restarts, on any port; 3. under JupyterHub:
the variables that the hub gives to every server and its kernels, which lead to the same files; 4. the server of a
parent process, by the same files.

If none of these applies, a program belongs to no server and gets an error that says so (`outside`), even if only one
server runs: it would act on GPUs that it does not know, without a guard. It can choose to with ``gpu.connect()``.

A server without jupyter-gpu is never found, nor one of another machine or container with the same home.
`local_endpoint` is the server's side. Secrets are sent only to addresses in files of this user, and to the server that
the user named.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from jupyter_gpu.common.parents import ancestors, started
from jupyter_gpu.common.rendezvous import FILE, here, runtime_dir
from jupyter_gpu.kernel.rules import outside
from jupyter_gpu.model.errors import InvalidRequest, OutsideServer, ServerUnreachable

URL, TOKEN = "JUPYTER_GPU_URL", "JUPYTER_GPU_TOKEN"
"""Variables by which a user names the server."""
_NAME = re.compile(r"jupyter-gpu-([0-9a-f]{16})-[0-9a-f]{16}-\d{1,2}\.json")
_MAX_BYTES = 64 * 1024
_LOOPBACK = {"": "127.0.0.1", "*": "127.0.0.1", "0.0.0.0": "127.0.0.1", "localhost": "127.0.0.1", "::": "::1"}  # noqa: S104 - nothing is bound
_LOCAL = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The address of a Jupyter server, and other facts from its file."""

    host: str
    port: int
    base: str = "/"
    """Path prefix with a slash at both ends."""
    token: str = field(default="", repr=False)
    secure: bool = False
    sock: str = ""
    """Path of a Unix socket to use instead of the port."""
    check: bool = False
    """Whether to check its certificate, which is for the names that browsers use, and so not on this machine."""
    folder: str = ""
    """Folder of its notebooks, by which users recognize the server."""
    container: bool = False
    """Whether its device rules hold all programs of its container, not only those that it started."""
    file: str = ""
    """File that these facts come from, which is read again when it changes."""
    stamp: int = 0
    """Modification time of that file in nanoseconds."""

    @property
    def url(self) -> str:
        """Address to show to users; without the token."""
        if not self.port:
            return f"http+unix://{quote(self.sock, safe='')}{self.base}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.secure else ''}://{host}:{self.port}{self.base}"


def find(environ: Mapping[str, str] | None = None, pid: int | None = None) -> ServerAddress:
    """Find the server of process ``pid`` (default: this one) with its environment.

    Raises `OutsideServer` if servers run here and it belongs to none of them, or `ServerUnreachable` with what else is
    missing.
    """
    env = os.environ if environ is None else environ
    if url := env.get(URL):
        return named(url, env.get(TOKEN), env)
    if path := env.get(FILE):
        found = _read(Path(path))
        if found is None:
            raise ServerUnreachable(outside.GONE, path=path)
        return found[0]
    if server := _of_hub(env):
        return _here(server, env)
    running = _running(env)
    for parent in ancestors(os.getpid() if pid is None else pid):
        if parent in running:
            return running[parent]
    if running:
        raise _outside(tuple(running.values()))
    raise ServerUnreachable(outside.none(env.get("SUDO_USER", "")))


def wanted(environ: Mapping[str, str] | None = None, pid: int | None = None) -> ServerAddress:
    """Find the server for a program that asks for one: its own, or else the only one that runs here.

    Raises `OutsideServer`, which lists them, if there are several.
    """
    env = os.environ if environ is None else environ
    try:
        return find(env, pid)
    except ServerUnreachable:
        running = _running(env)
        if len(running) == 1:
            return next(iter(running.values()))
        if running:
            raise _outside(tuple(running.values())) from None
        raise


def named(url: str, token: str | None = None, environ: Mapping[str, str] | None = None) -> ServerAddress:
    """Return the server at an address from the user. A server of this user on this machine needs no token: its file has
    it. Raises `InvalidRequest`.
    """
    server = at(url, token)
    return server if server.token or server.check else _here(server, os.environ if environ is None else environ)


def at(url: str, token: str | None = None) -> ServerAddress:
    """Parse an address as Jupyter prints it, with its token or without.

    Raises `InvalidRequest`.
    """
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError as error:
        raise _no_address(url, str(error)) from None
    if parts.scheme not in ("http", "https", "http+unix") or not parts.hostname:
        raise _no_address(url, "it begins with http:// or https://")
    if parts.username or parts.password:
        raise _no_address(url, "a name and a password in it are not used; give a token")
    given = token if token is not None else (parse_qs(parts.query).get("token") or [""])[0]
    if not given.isprintable() or not given.isascii():
        raise InvalidRequest("The token may hold only printable ASCII characters.", field="token")
    base = _slashed(re.sub(r"/(lab|tree|notebooks|doc)(/.*)?$", "", parts.path))
    if parts.scheme == "http+unix":
        return ServerAddress("localhost", 0, base, given, sock=unquote(parts.netloc))
    host, secure = _host(parts.hostname), parts.scheme == "https"
    return ServerAddress(host, port or (443 if secure else 80), base, given, secure, check=host not in _LOCAL)


def renewed(server: ServerAddress) -> ServerAddress:
    """Return ``server``, read from its file again, as it may have restarted. Raises `ServerUnreachable` if it has
    ended.
    """
    if not server.file or _stamp(server.file) == server.stamp:
        return server
    found = _read(Path(server.file))
    if found is None:
        raise ServerUnreachable(outside.GONE, path=server.file)
    return found[0]


def _of_hub(env: Mapping[str, str]) -> ServerAddress | None:
    token, address = env.get("JUPYTERHUB_API_TOKEN"), env.get("JUPYTERHUB_SERVICE_URL")
    if not token or not address:
        return None
    try:
        parts = urlsplit(address)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise ServerUnreachable(f"JUPYTERHUB_SERVICE_URL is not an address: {error}.") from None
    base = env.get("JUPYTERHUB_SERVICE_PREFIX") or parts.path
    return ServerAddress(_host(parts.hostname or ""), port, _slashed(base), token, parts.scheme == "https")


def _running(env: Mapping[str, str]) -> dict[int, ServerAddress]:
    """Find the servers of this user that run on this machine, or in this container, by their pids."""
    try:
        names = sorted(runtime_dir(env).glob(f"jupyter-gpu-{here()}-*.json"))
    except OSError:
        return {}
    found = [_read(name) for name in names if _NAME.fullmatch(name.name)]
    return {one[1]: one[0] for one in found if one is not None}


def _here(server: ServerAddress, env: Mapping[str, str]) -> ServerAddress:
    """Return ``server`` from its file, if it is this user's and runs here: its port may not accept its own programs.

    With a hub's ``internal_ssl`` each server trusts only the hub and the proxy.
    """
    return next((one for one in _running(env).values() if _same(one, server)), server)


def _outside(servers: Sequence[ServerAddress]) -> OutsideServer:
    places = tuple(sorted(outside.RunningServer(one.url, one.folder, one.container) for one in servers))
    return OutsideServer(outside.message(places), servers=[{"url": one.url, "folder": one.folder} for one in places])


def _same(one: ServerAddress, named: ServerAddress) -> bool:
    """Tell whether ``one``, which runs here, is the server at an address on this machine."""
    if named.sock:
        return one.sock == named.sock and one.base == named.base
    alike = (one.port, one.base, one.secure) == (named.port, named.base, named.secure)
    return alike and (one.host == named.host or one.host in _LOCAL)


def _read(path: Path) -> tuple[ServerAddress, int] | None:
    """Read a server's file and its pid; None unless this user wrote it and, as far as is visible, the server runs."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return None
    with open(descriptor, "rb") as file:  # noqa: PTH123 - already open
        about = os.fstat(descriptor)
        # The writer of this file chooses where our secret goes.
        if about.st_uid != os.geteuid() or not stat.S_ISREG(about.st_mode) or about.st_mode & 0o022:
            return None
        try:
            info = json.loads(file.read(_MAX_BYTES))
        except (OSError, ValueError, RecursionError):
            return None
    server = _server(info) if isinstance(info, dict) else None
    pid = info.get("pid") if server else None
    if server is None or not isinstance(pid, int) or isinstance(pid, bool):
        return None
    match = _NAME.fullmatch(path.name)
    if match and match[1] == here() and not (pid > 0 and 0 < started(pid) == info.get("started")):
        return None
    return replace(server, file=str(path), stamp=about.st_mtime_ns), pid


def _server(info: Mapping[str, Any]) -> ServerAddress | None:
    host, port, secure = info.get("host"), info.get("port"), info.get("secure")
    base, token, sock = info.get("base"), info.get("token"), info.get("sock")
    folder, container = info.get("folder", ""), info.get("container", False)
    texts = [word for word in (host, base, token, sock) if isinstance(word, str) and word.isprintable()]
    if len(texts) != 4 or not isinstance(port, int) or not 0 <= port < 65536 or not isinstance(secure, bool):
        return None
    assert isinstance(host, str)
    assert isinstance(base, str)
    # Folders may have any name, and this one is only shown.
    known = ascii(folder)[1:-1] if isinstance(folder, str) and not folder.isprintable() else str(folder)
    server = ServerAddress(_host(host), port, _slashed(base), str(token), secure, str(sock))
    return replace(server, folder=known[:300], container=container is True)


def _stamp(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116 - at each question
    except OSError:
        return -1


def _no_address(url: str, why: str) -> InvalidRequest:
    shown = url.partition("?")[0][:200]
    return InvalidRequest(f"{shown!r} is not the address of a Jupyter server: {why}.", field="url")


def _host(name: str) -> str:
    return _LOOPBACK.get(name, name)


def _slashed(base: str) -> str:
    return f"/{base.strip('/')}/" if base.strip("/") else "/"
