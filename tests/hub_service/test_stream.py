"""The live connection of a page."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from tests.cluster.testbed import until
from tests.hub import SECONDS

from .browser import FETCH
from .world import HUB, World

pytestmark = pytest.mark.cluster

EVENTS = "/services/gpu/api/v1/events"


class Stream:
    """One connection, and what came on it so far; a thread reads it."""

    def __init__(self, address: str, headers: Mapping[str, str]) -> None:
        host, port = urlsplit(address).netloc.split(":")
        self.counts: list[dict[str, int]] = []
        self.ended = False
        self._socket = socket.create_connection((host, int(port)), SECONDS)
        self._lines = self._socket.makefile("rb")
        words = [f"GET {EVENTS} HTTP/1.1", f"Host: {host}:{port}", *(f"{key}: {text}" for key, text in headers.items())]
        self._socket.sendall("\r\n".join([*words, "", ""]).encode())
        self.status = int(self._lines.readline().split()[1])
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while (line := self._lines.readline()) and line != b"0\r\n":  # the last chunk
            if line.startswith(b"data: "):
                self.counts.append(json.loads(line[6:]))
        self.ended = True

    def close(self) -> None:
        """Close it, as a page that is left."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        self._lines.close()
        self._socket.close()


@contextmanager
def opened(world: World, headers: Mapping[str, str]) -> Iterator[Stream]:
    """Open the stream with these headers until the end of the block."""
    stream = Stream(world.address, headers)
    try:
        yield stream
    finally:
        stream.close()


def token(world: World) -> dict[str, str]:
    """Return the headers of a program that may read."""
    return {"Authorization": f"token {world.limits.token}"}


def test_changes_are_told_at_once(world: World) -> None:
    """The first message is the state, later ones say which tables to ask for."""
    with opened(world, token(world)) as stream:
        assert stream.status == 200
        until(lambda: stream.counts, SECONDS)
        before = stream.counts[-1].get("limits", 0)
        world.limits.gpu("POST", "limits", {"subject": {"kind": "User", "name": "ann", "hub": HUB}, "set": {"max": 1}})
        until(lambda: stream.counts[-1].get("limits", 0) > before, 5)


def test_page_reads_it_with_its_cookie_and_header(world: World) -> None:
    """A browser's ``EventSource`` sends no header, and gets nothing."""
    browser = world.browser("root")
    cookies = "; ".join(f"{item.name}={item.value}" for item in browser.cookies if item.path == "/services/gpu/")
    session = next(item.value for item in browser.cookies if item.name == "jupyterhub-session-id")
    headers = {**FETCH, "Cookie": f"{cookies}; jupyterhub-session-id={session}"}
    with opened(world, headers) as stream:
        assert stream.status == 403
    with opened(world, {**headers, "X-XSRFToken": browser.cookie("_xsrf", "/services/gpu/")}) as stream:
        assert stream.status == 200
        until(lambda: stream.counts, SECONDS)


def test_others_are_told_of_their_own_row_only(world: World) -> None:
    """A user learns of a change of the own limit, and not that somebody else's has changed."""
    bob = world.token("bob")
    with opened(world, {"Authorization": f"token {bob.token}"}) as stream:
        until(lambda: stream.counts == [{"me": 1}], SECONDS)
        for name in ("ann", "bob"):
            subject = {"kind": "User", "name": name, "hub": HUB}
            made = world.limits.gpu("POST", "limits", {"subject": subject, "set": {"max": 1}})
            world.until_known(made.json["object"])
        until(lambda: len(stream.counts) > 1, 5)
        assert stream.counts == [{"me": 1}, {"me": 2}]


def test_pages_are_limited_and_closed_ones_make_room(world: World) -> None:
    """A user who opens too many gets an error that says so."""
    world.service.restart(pages=2)
    try:
        with opened(world, token(world)) as first, opened(world, token(world)) as second:
            assert (first.status, second.status) == (200, 200)
            refused = world.limits.gpu("GET", "events")
            assert (refused.status, refused.headers["Retry-After"] is not None) == (429, True)

        def reopened() -> bool:
            with opened(world, token(world)) as stream:
                return stream.status == 200

        until(reopened, SECONDS)
    finally:
        world.service.restart(pages=500)


def test_service_that_ends_closes_the_stream(world: World) -> None:
    """The page notices at once, and asks the next one."""
    with opened(world, token(world)) as stream:
        until(lambda: stream.counts, SECONDS)
        assert world.service.stop() == 0
        until(lambda: stream.ended, 10)
    world.service.start()
