"""REST client of the server extension, on the standard library alone.

A `Call` describes a request, `Client.send` sends it. Connections are made directly, never through a proxy
from the environment: the server is on this machine.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from jupyter_gpu.common import rendezvous
from jupyter_gpu.model import errors, strict
from jupyter_gpu.model.errors import GpuError, NotPermitted, ServerUnreachable
from jupyter_gpu.model.reservation import ReservationOwner
from jupyter_gpu.model.usage import Usage
from jupyter_gpu.model.view import Sample, View

from . import discovery, error_box  # noqa: F401 - it has IPython show our errors
from .discovery import ServerAddress

if TYPE_CHECKING:
    from http.client import HTTPConnection

T = TypeVar("T")

API = "jupyter-gpu/api/v1/"
_MAX_ANSWER = 8 * 1024 * 1024
_PATIENCE = 30.0
"""Seconds that a server may take in addition to the time that it was asked to wait."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None
    patience: float = _PATIENCE
    """Seconds until the server counts as unreachable."""


def get_status(after: View | None = None, timeout: float = 0.0, patience: float = _PATIENCE) -> Call:
    """Return the call for the latest view, or for one newer than ``after``; it answers after ``timeout`` at most."""
    if after is None:
        return Call("GET", "status", patience=patience)
    wait = max(0.0, min(timeout, 30.0))
    return Call("GET", f"status?after={after.instance}:{after.version}&timeout={wait:.3f}", patience=wait + patience)


def put_request(fields: Mapping[str, Any], generation: int | None = None) -> Call:
    """Return the call that requests ``fields``; with ``generation``, only if that is still the current one."""
    return Call("PUT", "request", fields if generation is None else {**fields, "generation": generation})


def put_reservation(key: str, milli: int, owner: ReservationOwner, *, together: bool = False) -> Call:
    """Return the call that reserves ``milli`` until `delete_reservation`, or until ``owner`` ends.

    ``together``: on one node.
    """
    body = {"milli": milli, "owner": owner.to_json()}
    return Call("PUT", f"reservations/{key}", {**body, "together": True} if together else body)


def delete_reservation(key: str) -> Call:
    """Return the call that ends a reservation; safe to repeat, and for an unknown ``key``."""
    return Call("DELETE", f"reservations/{key}", patience=10.0)


class Client:
    """The client of one server, which is searched for at the first call. Thread-safe."""

    def __init__(self, server: ServerAddress | None = None) -> None:
        self._server = server

    @property
    def server(self) -> ServerAddress:
        """Address of the server. Raises `ServerUnreachable` if there is none."""
        self._server = discovery.find() if self._server is None else discovery.renewed(self._server)
        return self._server

    def send(self, call: Call) -> View:
        """Return the server's answer. Raises the error in it, or `ServerUnreachable`."""
        return self.exchange(call).run()

    def sample(self) -> Sample:
        """Return the load of the GPUs now; raises as `send`."""
        return self.exchange(Call("GET", "sample")).ask(Sample.from_json)

    def usage(self) -> Usage:
        """Return the use of GPUs since the server started; raises as `send`."""
        return self.exchange(Call("GET", "usage")).ask(Usage.from_json)

    def exchange(self, call: Call) -> Exchange:
        """Return `send` in two steps, so that another thread can abort it."""
        return Exchange(self.server, call)


class Exchange:
    """One call on its own connection."""

    def __init__(self, server: ServerAddress, call: Call) -> None:
        self._server = server
        self._call = call
        self._connection = connect(server, call.patience)

    def run(self) -> View:
        """Block until the server has answered."""
        return self.ask(View.from_json)

    def ask(self, read: Callable[[Any], T]) -> T:
        """Do the same for an answer that ``read`` parses."""
        from http.client import HTTPException

        server, call = self._server, self._call
        body = None if call.body is None else strict.dumps(call.body).encode()
        try:
            self._send(call.method, server.base + API + call.path, body)
            response = self._connection.getresponse()
            answer = response.read(_MAX_ANSWER)
        except (OSError, HTTPException) as error:
            raise ServerUnreachable(
                f"The Jupyter server at {server.url} does not answer ({error or type(error).__name__}). "
                "Look whether it still runs."
            ) from error
        finally:
            self._connection.close()
        return read_answer(response.status, answer, server.url, read)

    def _send(self, method: str, path: str, body: bytes | None) -> None:
        """Send the request, or as much as the server reads: it does not read a body that it refuses by the headers."""
        try:
            self._connection.request(method, path, body, headers(self._server))
        except (BrokenPipeError, ConnectionResetError):
            if self._connection.sock is None:
                raise

    def abort(self) -> None:
        """Make `run`, in another thread, raise."""
        import socket

        sock = self._connection.sock
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # it ended by itself meanwhile


def connect(server: ServerAddress, patience: float) -> HTTPConnection:
    """Return a connection that is opened at its first use."""
    import http.client
    import socket
    import ssl

    if server.sock:
        connection = http.client.HTTPConnection("localhost", timeout=patience)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(patience)
        try:
            with rendezvous.short(server.sock) as address:
                connection.sock.connect(address)
        except OSError as error:
            connection.close()
            raise ServerUnreachable(f"The Jupyter server at {server.url} does not answer ({error}).") from error
        return connection
    if server.secure:
        context = ssl.create_default_context()
        if not server.check:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return http.client.HTTPSConnection(server.host, server.port, timeout=patience, context=context)
    return http.client.HTTPConnection(server.host, server.port, timeout=patience)


def headers(server: ServerAddress) -> dict[str, str]:
    """Return the headers of every request."""
    common = {"Accept": "application/json", "Content-Type": "application/json", "Connection": "close"}
    if server.token:
        return {**common, "Authorization": f"token {server.token}"}
    # A server without authentication still wants the cookie and the header to be equal.
    word = secrets.token_hex(16)
    return {**common, "Cookie": f"_xsrf={word}", "X-XSRFToken": word}


def read_answer(status: int, answer: bytes, url: str, read: Callable[[Any], T]) -> T:
    """Return the body of an answer; raises the error in it."""
    try:
        body = strict.loads(answer, _MAX_ANSWER)
        if status == 200:
            return read(body)
    except strict.FieldError as error:
        if status == 200:
            raise GpuError(
                f"The answer of the Jupyter server at {url} cannot be read: {error} "
                "Kernel and server may have different versions of jupyter-gpu; install the same in both."
            ) from None
        body = None
    problem = errors.from_json(body)
    raise _without_reason(status, body, url) if type(problem) is GpuError else problem


def _without_reason(status: int, body: Any, url: str) -> GpuError:
    """Return the error for an answer that did not come from the extension itself."""
    if status == 404:
        return ServerUnreachable(
            f"The Jupyter server at {url} runs without jupyter-gpu. Install its wheel in the server's environment "
            "('pip install jupyter_gpu-*.whl'), see that 'jupyter server extension list' says enabled, and restart the "
            "server."
        )
    if status in (301, 302, 303, 307, 308, 401, 403):
        return NotPermitted(
            f"The Jupyter server at {url} does not accept this process (status {status}). "
            "Give it the server's token: gpu.connect(url, token), or JUPYTER_GPU_TOKEN."
        )
    said = str(body.get("message", ""))[:300] if isinstance(body, Mapping) else ""
    return GpuError(f"The Jupyter server at {url} answered with status {status}{f': {said}' if said else ''}.")
