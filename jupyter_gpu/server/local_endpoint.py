"""The server's endpoint for its own kernels and terminals: a Unix socket, a secret, and a file with both.

Code cannot log in as users do (with a password, at a hub, at an identity provider of their own), and the server's port
may require certificates that code does not have. So code connects to a Unix socket of this user with a secret that is
new at each start. Only our own handlers accept it, and it grants no additional rights: the code that has it runs as the
user of the server. If no such socket can be made, the file names the server's port.

The file's name is made of the machine (or container), the server's folder and its path prefix: a restarted server has
the same, so programs that outlived it find it again. Servers with the same name have a number each, which a lock
reserves.
"""

from __future__ import annotations

import contextlib
import fcntl
import hmac
import json
import logging
import os
import secrets
import socket
import stat
from asyncio import AbstractEventLoop
from logging import Logger
from pathlib import Path
from typing import Any

from jupyter_server.auth import Authorizer, IdentityProvider, User
from tornado.httpserver import HTTPServer

from jupyter_gpu.common import parents, rendezvous

_MOST_ALIKE = 100
"""The most servers of one user on one machine in one folder."""
_OWN_FILE = os.O_NOFOLLOW | os.O_CLOEXEC
_log = logging.getLogger(__name__)


class LocalEndpoint:
    """The endpoint of one server. ``app`` is the ServerApp, whose port need not be open yet.

    ``container``: its device rules hold for all programs of the container, not only for those that it starts.
    """

    def __init__(self, app: Any, container: bool = False) -> None:
        self._app, self._container = app, container
        self._folder = Path(app.runtime_dir)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._name, self._lock = _number(self._folder, rendezvous.digest(str(app.root_dir), str(app.base_url)))
        self._secret = secrets.token_urlsafe(32)
        self._http: HTTPServer | None = None
        self._closed = False
        self.file = str(self._path("json"))
        """Path of the file, for `FILE`."""
        self.attached = self._path("attached")
        """Path of the file of `attached`, in which kernels read what is attached."""

    def open(self) -> None:
        """Listen, and write the file. On the event loop, as soon as the server's own port is known.

        Does nothing after `close`. Raises `OSError`.
        """
        if self._closed:
            return
        sock = self._listen()
        about = {
            "pid": os.getpid(),
            "started": parents.started(os.getpid()),
            "host": str(self._app.ip),
            "port": 0 if self._app.sock else int(self._app.port),
            "secure": bool(self._app.certfile),
            "sock": sock or str(self._app.sock),
            "base": str(self._app.base_url),
            "token": self._secret,
            "folder": str(self._app.root_dir),
            "container": self._container,
        }
        _replace(self._path("json"), json.dumps(about).encode())

    def admits(self, header: str) -> bool:
        """Tell whether an ``Authorization`` header has the secret."""
        kind, _, given = header.partition(" ")
        return kind.lower() == "token" and hmac.compare_digest(given.strip().encode(), self._secret.encode())

    def close(self) -> None:
        """Close the endpoint at the end of the server, and remove its files; nothing opens it again."""
        self._closed = True
        if os.environ.get(rendezvous.FILE) == self.file:
            del os.environ[rendezvous.FILE]
        if self._http:
            self._http.stop()
            self._http = None
        for kind in ("json", "sock", "lock"):  # the lock last: a server that waits for the name finds it free
            with contextlib.suppress(OSError):
                self._path(kind).unlink()
        os.close(self._lock)

    def _path(self, kind: str) -> Path:
        return self._folder / f"{self._name}.{kind}"

    def _listen(self) -> str:
        """Listen, and return the path of the socket; empty if none can be made, as on some file systems."""
        path = self._path("sock")
        sock = listener(path)
        if sock is None:
            return ""
        self._http = HTTPServer(self._app.web_app)
        self._http.add_socket(sock)
        return str(path)


def start_endpoint(app: Any, loop: AbstractEventLoop, log: Logger, *, container: bool) -> LocalEndpoint | None:
    """Make the endpoint and name its file in the environment; ``loop`` opens it when the server's port is known.

    Returns ``None``, with a warning, if it cannot be made.
    """

    def warn(error: OSError) -> None:
        log.warning("`gpu` in notebooks and terminals cannot find this server: %s.", error)

    def open_endpoint() -> None:
        try:
            endpoint.open()
        except OSError as error:
            warn(error)

    try:
        endpoint = LocalEndpoint(app, container)
    except OSError as error:
        warn(error)
        return None
    os.environ[rendezvous.FILE] = endpoint.file
    loop.call_soon(open_endpoint)
    return endpoint


def listener(path: Path) -> socket.socket | None:
    """Return a socket that listens at ``path``, for this user alone; None if there can be none."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        path.unlink(missing_ok=True)
        with rendezvous.short(str(path)) as address:
            sock.bind(address)
            os.chmod(address, 0o600)  # noqa: PTH101 - the same address
        sock.listen(128)
    except OSError as error:
        sock.close()
        _log.info("Code of this server uses its port: %s can't be a socket (%s).", path, error)
        return None
    return sock


class LocalIdentityProvider(IdentityProvider):
    """The identity provider for programs that have the secret, which belong to this server's user."""

    def get_user(self, handler: Any) -> User:  # noqa: ARG002 - the same for every request
        """Return a user that no login creates."""
        return User("jupyter-gpu", "jupyter-gpu", "Code of this server")

    def is_token_authenticated(self, handler: Any) -> bool:  # noqa: ARG002
        """Return true: such a program sends no cookie that another page could make it send."""
        return True

    def should_check_origin(self, handler: Any) -> bool:  # noqa: ARG002
        """Return false: such a program is no browser."""
        return False


class LocalAuthorizer(Authorizer):
    """The authorizer for these programs, which run as the user of the server and so gain no rights."""

    def is_authorized(self, handler: Any, user: User, action: str, resource: str) -> bool:  # noqa: ARG002
        """Allow our own resource only."""
        return resource == "jupyter_gpu"


def _number(folder: Path, alike: str) -> tuple[str, int]:
    """Return a name that no running server has, and the lock that reserves it. Raises `OSError`."""
    for number in range(_MOST_ALIKE):
        name = f"jupyter-gpu-{rendezvous.here()}-{alike}-{number}"
        lock = _locked(folder / f"{name}.lock")
        if lock is not None:
            return name, lock
    raise OSError(f"{_MOST_ALIKE} servers of this folder run here already")


def _locked(path: Path) -> int | None:
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | _OWN_FILE, 0o600)
        try:
            about = os.fstat(lock)
            if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid():
                raise OSError(f"{path} is not a file of this user")
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(about, path.lstat()):
                    return lock
        except BlockingIOError:
            os.close(lock)
            return None
        except OSError as error:
            os.close(lock)
            raise OSError(f"{path} can't be locked ({error.strerror or error})") from None
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)  # another server has just ended, and removed it


def _replace(path: Path, text: bytes) -> None:
    """Replace a file in one step, readable by this user alone."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OWN_FILE, 0o600)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - already open
            file.write(text)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
