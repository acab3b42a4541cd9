"""Dask's pages behind the login of a real server, and nowhere else."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import stat
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPResponse

import pytest
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from jupyter_gpu.common import rendezvous
from jupyter_gpu.dask import nodes
from jupyter_gpu.dask.child import Child
from jupyter_gpu.dask.rules.words import Schedule
from jupyter_gpu.remote import certificates
from tests.kernel.servers import Server

NAME, RUNS = "0123456789abcdef", "fedcba9876543210"
PAGES = f"{rendezvous.DASK}{RUNS}/"


@pytest.fixture(scope="module")
def scheduler(server: Server) -> Iterator[Child]:
    """Start a scheduler as a program of this server does."""
    pages = rendezvous.dask_socket(server.runtime, RUNS)
    certificate = base64.b64encode(certificates.make().pem).decode()
    child = Child(Schedule(certificate, "gpu1", (str(pages),)))
    try:
        child.wait()
        assert stat.S_IMODE(pages.stat().st_mode) == 0o600
        yield child
    finally:
        child.end()
    assert not pages.exists()


def get(url: str, **headers: str) -> HTTPResponse:
    """Return the answer; raises `HTTPError`, also for a redirect to the login."""

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: object, **__: object) -> None:
            return None

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), Stay)
    found: HTTPResponse = opener.open(urllib.request.Request(url, headers=headers), timeout=30)
    return found


@pytest.mark.usefixtures("scheduler")
def test_pages_need_the_login(server: Server) -> None:
    """The user reads them; without login there is the way to it; another name is not found, and nothing is written."""
    url, login = server.url + PAGES, {"Authorization": f"token {server.token}"}
    with get(f"{url}json/counts.json", **login) as answer:
        assert b'"workers": 0' in answer.read()
        assert "frame-ancestors" in answer.headers["Content-Security-Policy"]
    with get(f"{url}info/main/workers.html?token={server.token}") as answer:
        assert b"Workers" in answer.read()
    with pytest.raises(urllib.error.HTTPError, match="302"):
        get(f"{url}json/counts.json")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(f"{server.url}{rendezvous.DASK}{NAME}/status", **login)
    with pytest.raises(urllib.error.HTTPError, match="405"):
        server.rest("POST", f"{PAGES}json/counts.json", {})


async def closed(connection: WebSocketClientConnection) -> None:
    """Close a connection, and wait for the other end."""
    connection.close()
    while await asyncio.wait_for(connection.read_message(), 20) is not None:
        pass


@pytest.mark.usefixtures("scheduler")
def test_websocket_is_passed_on_to_pages_of_this_server_alone(server: Server) -> None:
    """With the login in a cookie; a page of another site that has the browser send it is refused."""
    with get(f"{server.url}api/status?token={server.token}") as answer:
        cookie = answer.headers["Set-Cookie"].split(";")[0]
    address = f"{server.url}{PAGES}eventstream".replace("http", "ws", 1)

    async def connect(origin: str) -> None:
        connection = await websocket_connect(HTTPRequest(address, headers={"Cookie": cookie, "Origin": origin}))
        await closed(connection)

    asyncio.run(connect(server.url.rstrip("/")))
    with pytest.raises(HTTPClientError, match="403"):
        asyncio.run(connect("https://example.org"))


def test_scheduler_does_not_learn_who_asked(server: Server) -> None:
    """Neither token nor cookie is passed on; the answer comes as it is."""
    heard: list[str] = []

    def answer() -> None:
        with listening.accept()[0] as asked:
            heard.append(asked.recv(10_000).decode())
            asked.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nyes")

    with socket.socket(socket.AF_UNIX) as listening:
        path = rendezvous.dask_socket(server.runtime, NAME)
        with rendezvous.short(str(path)) as address:
            listening.bind(address)
        listening.listen()
        thread = threading.Thread(target=answer)
        thread.start()
        url = f"{server.url}{rendezvous.DASK}{NAME}/a%20b?x=1&token={server.token}"
        with get(url, Cookie="secret=1", Accept="text/html") as found:
            assert found.read() == b"yes"
        thread.join()
    path.unlink()
    assert heard[0].startswith("GET /a%20b?x=1 HTTP/1.1\r\nHost: localhost\r\n")
    assert "Accept: text/html" in heard[0]
    assert "secret" not in heard[0]
    assert server.token not in heard[0]


def test_sockets_of_killed_schedulers_are_removed(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Not one that somebody listens at, nor a new one."""
    folder = tmp_path_factory.mktemp("run")
    dead, lives, new = (rendezvous.dask_socket(folder, name) for name in ("dead", "lives", "new"))
    with socket.socket(socket.AF_UNIX) as listening:
        for path in (dead, lives, new):
            with socket.socket(socket.AF_UNIX) as short, rendezvous.short(str(path)) as address:
                (listening if path == lives else short).bind(address)
        listening.listen()
        for path in (dead, lives):
            os.utime(path, (0, 0))
        nodes.remove_dead(folder)
    assert set(folder.iterdir()) == {lives, new}


@pytest.mark.usefixtures("scheduler")
def test_plots(server: Server) -> None:
    """Dask's dashboard itself: the page, its scripts, which it finds below its own address, and the plots' stream."""
    pytest.importorskip("bokeh", reason="not run: needs bokeh, which the extra [test] has")
    url = server.url + PAGES
    with get(f"{url}status?token={server.token}") as answer:
        page = answer.read().decode()
    assert "Dask" in page
    scripts = [part.split('"')[0] for part in page.split('src="')[1:]]
    local = [script for script in scripts if "://" not in script]
    assert local
    for script in local:
        assert not script.startswith("/"), script
        with get(f"{url}{script}{'&' if '?' in script else '?'}token={server.token}") as answer:
            assert answer.read()
    token = page.split('"token":"')[1].split('"')[0]

    async def first_word() -> object:
        asked = HTTPRequest(f"{url}status/ws?token={server.token}".replace("http", "ws", 1))
        connection = await websocket_connect(asked, subprotocols=["bokeh", token])
        try:
            return await asyncio.wait_for(connection.read_message(), 20)
        finally:
            await closed(connection)

    assert "ACK" in str(asyncio.run(first_word()))
