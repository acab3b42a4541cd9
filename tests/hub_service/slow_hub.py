"""A bridge to a hub that answers few questions about tokens, and none while it is told so."""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class SlowHub(ThreadingHTTPServer):
    """Passes requests on to the hub. Questions about tokens wait, each for ``seconds``, one after another."""

    daemon_threads = True
    request_queue_size = 200

    def __init__(self, hub: str) -> None:
        self.hub = hub
        self.seconds = 0.0
        self.awake = threading.Event()
        """Unset it, and no question about a token is answered."""
        self.awake.set()
        self.asked = 0
        self.open = 0
        self.most = 0
        self._counts = threading.Lock()
        self._turn = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Bridge)

    @property
    def address(self) -> str:
        """The address of its REST."""
        return f"http://127.0.0.1:{self.server_port}/hub/api"

    @contextmanager
    def question(self) -> Iterator[None]:
        """Count a question, and let it wait for its turn."""
        with self._counts:
            self.asked += 1
            self.open += 1
            self.most = max(self.most, self.open)
        try:
            self.awake.wait()
            with self._turn:
                time.sleep(self.seconds)
            yield
        finally:
            with self._counts:
                self.open -= 1


class _Bridge(BaseHTTPRequestHandler):
    server: SlowHub

    def do_GET(self) -> None:
        """Ask the hub, and answer as it does."""
        if self.path != "/hub/api/user":
            self._pass_on()
            return
        with self.server.question():
            self._pass_on()

    def do_POST(self) -> None:
        """Pass on the end of a login."""
        self._pass_on(self.rfile.read(int(self.headers["Content-Length"])))

    def _pass_on(self, data: bytes | None = None) -> None:
        headers = {key: text for key in ("Authorization", "Accept", "Content-Type") if (text := self.headers.get(key))}
        request = urllib.request.Request(self.server.hub + self.path, data, headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                status, body = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                status, body = error.code, error.read()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle_one_request(self) -> None:
        """Do not mind a client that went away."""
        try:
            super().handle_one_request()
        except OSError:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def slow_hub(hub: str) -> Iterator[SlowHub]:
    """Yield a bridge to ``hub`` until the end of the block."""
    with SlowHub(hub) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.awake.set()
            server.shutdown()
            thread.join()
