"""The REST client against real sockets that answer well, badly and not at all."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.kernel.client import Client, get_status, put_request, read_answer
from jupyter_gpu.kernel.discovery import ServerAddress
from jupyter_gpu.model.errors import GpuError, LimitExceeded, NotPermitted, ServerUnreachable
from jupyter_gpu.model.view import View
from tests.kernel.builders import view

Reply = tuple[int, str, bytes]


class Site(ThreadingHTTPServer):
    """A web server that records requests and gives set answers."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.reply: Callable[[], Reply] = lambda: (200, "application/json", json.dumps(view(1000).to_json()).encode())
        self.asked: list[tuple[str, str, dict[str, str], Any]] = []

    def server_for(self, token: str = "secret") -> ServerAddress:
        return ServerAddress("127.0.0.1", self.server_address[1], "/base/", token)


class Handler(BaseHTTPRequestHandler):
    """The handler of one request."""

    server: Site

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append((self.command, self.path, dict(self.headers), json.loads(body) if body else None))
        status, kind, answer = self.server.reply()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_PUT = do_GET  # noqa: N815 - the names that http.server calls

    def log_message(self, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def site() -> Iterator[Site]:
    """Run a web server."""
    with Site() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def test_request_has_prefix_and_token(site: Site) -> None:
    """The path has the server's prefix, the header its token, and the answer is the view."""
    assert Client(site.server_for()).send(get_status()) == view(1000)
    (method, path, headers, _), *_ = site.asked
    assert (method, path) == ("GET", "/base/jupyter-gpu/api/v1/status")
    assert headers["Authorization"] == "token secret"
    assert "Cookie" not in headers


def test_long_poll_names_the_known_view(site: Site) -> None:
    """`after` has the instance and the version that is known."""
    Client(site.server_for()).send(get_status(view(0, version=7), 25))
    assert site.asked[0][1] == "/base/jupyter-gpu/api/v1/status?after=one:7&timeout=25.000"


def test_put_sends_fields_and_generation(site: Site) -> None:
    """The body has the fields, and the generation if there is one."""
    Client(site.server_for()).send(put_request({"milli": 500}, 3))
    method, path, headers, body = site.asked[0]
    assert (method, path, body) == ("PUT", "/base/jupyter-gpu/api/v1/request", {"milli": 500, "generation": 3})
    assert headers["Content-Type"] == "application/json"


def test_xsrf_cookie_and_header_agree_without_a_token(site: Site) -> None:
    """A server without authentication still checks for cross-site requests."""
    Client(site.server_for(token="")).send(get_status())
    headers = site.asked[0][2]
    assert headers["Cookie"] == f"_xsrf={headers['X-XSRFToken']}"
    assert "Authorization" not in headers


def test_proxy_is_not_used(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy of the environment never sees the token."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    assert Client(site.server_for()).send(get_status()).status.attached == 1000


def test_server_error_is_raised_as_its_type(site: Site) -> None:
    """It has the reason, message and amounts."""
    body = json.dumps(LimitExceeded(limit=2000).to_json()).encode()
    site.reply = lambda: (422, "application/json", body)
    with pytest.raises(LimitExceeded, match="Your server's limit is 2 GPUs") as caught:
        Client(site.server_for()).send(put_request({"milli": 9000}))
    assert caught.value.limit == 2000


def test_missing_extension_is_explained(site: Site) -> None:
    """A plain 404 means that jupyter-gpu is not installed, and the error says how to get it."""
    site.reply = lambda: (404, "text/html", b"<html>Not Found</html>")
    with pytest.raises(ServerUnreachable, match=r"pip install jupyter_gpu-\*\.whl"):
        Client(site.server_for()).send(get_status())


@pytest.mark.parametrize("status", [302, 401, 403])
def test_login_page_is_not_permitted(status: int) -> None:
    """A login page or a bare refusal is NotPermitted, never a view."""
    with pytest.raises(NotPermitted, match="does not accept this process"):
        read_answer(status, b"<html>login</html>", "http://here/", View.from_json)


@pytest.mark.parametrize("answer", [b"", b"{}", b"[]", b"\xff", b'{"instance": 1}', b"[" * 100_000])
def test_unreadable_answer_names_versions_as_cause(answer: bytes) -> None:
    """Versions that do not fit are the likely cause."""
    with pytest.raises(GpuError, match="different versions"):
        read_answer(200, answer, "http://here/", View.from_json)


@pytest.mark.parametrize("answer", [b"", b"{}", b'{"message": "Oops", "reason": null}', b'{"reason": "FromTheFuture"}'])
def test_unknown_error_is_a_gpu_error(answer: bytes) -> None:
    """This holds whatever the error contains."""
    with pytest.raises(GpuError, match="500"):
        read_answer(500, answer, "http://here/", View.from_json)


def test_refused_connection_is_server_unreachable() -> None:
    """The error has the address, but not the token."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        server = ServerAddress("127.0.0.1", taken.getsockname()[1], "/", "secret")
    with pytest.raises(ServerUnreachable, match=r"127\.0\.0\.1") as caught:
        Client(server).send(get_status())
    assert "secret" not in str(caught.value)


def test_broken_connection_is_server_unreachable(site: Site) -> None:
    """The server dies in the middle of an answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def die() -> None:
            connection, _ = listener.accept()
            connection.recv(10)
            connection.close()

        thread = threading.Thread(target=die)
        thread.start()
        with pytest.raises(ServerUnreachable):
            Client(ServerAddress("127.0.0.1", listener.getsockname()[1])).send(get_status())
        thread.join()


def test_hanging_server_times_out() -> None:
    """The error is ServerUnreachable."""
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(ServerUnreachable, match="timed out"):
        Client(ServerAddress("127.0.0.1", silent.getsockname()[1])).send(get_status(patience=0.05))


def test_abort_ends_a_wait() -> None:
    """Another thread can end a request that waits, so that a cancelled task leaves nothing behind."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        exchange = Client(ServerAddress("127.0.0.1", silent.getsockname()[1])).exchange(get_status(patience=60))
        failed: list[BaseException] = []

        def ask() -> None:
            try:
                exchange.run()
            except ServerUnreachable as error:
                failed.append(error)

        thread = threading.Thread(target=ask)
        started = time.monotonic()
        thread.start()
        connection, _ = silent.accept()
        connection.recv(10)
        exchange.abort()
        thread.join(50)
        connection.close()
    assert failed
    assert time.monotonic() - started < 50


def test_unix_socket_is_used(tmp_path: Path) -> None:
    """A server that listens on a Unix socket is asked there."""
    answer = json.dumps(view(2000).to_json()).encode()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "sock"))
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(answer) + answer)

        thread = threading.Thread(target=serve)
        thread.start()
        found: View = Client(ServerAddress("", 0, "/", "t", sock=str(tmp_path / "sock"))).send(get_status())
        thread.join()
    assert found == view(2000)


def test_dead_unix_socket_is_server_unreachable(tmp_path: Path) -> None:
    """A socket without a listener counts like a port without one."""
    with pytest.raises(ServerUnreachable):
        Client(ServerAddress("", 0, sock=str(tmp_path / "none"))).send(get_status())
