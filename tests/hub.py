"""Real JupyterHubs of this machine, and a person's session with one."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

import yaml
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from tests.cluster.testbed import until
from tests.cluster.testbed.commands import Hopeless
from tests.cluster.testbed.ports import free

PROXY = Path(__file__).parent / "cluster" / "hub" / "node_modules" / ".bin" / "configurable-http-proxy"
PASSWORD = "letmein"
SECONDS = 120.0
PYTHON = "JUPYTER_GPU_TEST_HUB"
"""Variable with the Python of another version of JupyterHub than that of the tests."""
_CONFIG = """
c = get_config()
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = {password!r}
c.Authenticator.allow_all = True
c.JupyterHub.bind_url = "{address}"
c.JupyterHub.hub_bind_url = "{scheme}://{host}:{hub}"
c.JupyterHub.db_url = "sqlite:///{folder}/hub.sqlite"
c.JupyterHub.cookie_secret_file = "{folder}/cookie_secret"
c.ConfigurableHTTPProxy.api_url = "{scheme}://127.0.0.1:{api}"
c.ConfigurableHTTPProxy.command = [{proxy!r}]
c.ConfigurableHTTPProxy.pid_file = "{folder}/proxy.pid"
c.Spawner.start_timeout = c.Spawner.http_timeout = {seconds:.0f}
"""
"""Used by every hub here."""
_VALUES = Path(__file__).parents[1] / "deploy" / "examples" / "z2jh-values.yaml"
"""Values in which the service of limits is configured for a hub."""
_SERVICE = """
import jupyterhub
c.JupyterHub.custom_scopes = {scopes!r}
c.JupyterHub.load_roles = {roles!r}
c.JupyterHub.services = [
    {{**{entry!r}, **({{"timeout": 2}} if jupyterhub.version_info >= (6,) else {{}})}}
]
"""
"""Lists, so that a hub may append to them."""


def limits_service(url: str, token: str) -> str:
    """Return configuration of a hub with the page of GPU limits at ``url``, as the example says it."""
    values = yaml.safe_load(_VALUES.read_text())["hub"]
    entry = {"name": "gpu", **values["services"]["gpu"], "url": url, "api_token": token}
    roles = [{"name": name, **role} for name, role in values["loadRoles"].items()]
    return _SERVICE.format(scopes=values["config"]["JupyterHub"]["custom_scopes"], roles=roles, entry=entry)


class Hub:
    """A hub with its proxy on this machine; it may be killed, paused, and started again with what it has stored."""

    def __init__(self, folder: Path, address: str, port: int, more: Mapping[str, str]) -> None:
        self.address = address
        """The address at which people find it."""
        self.port = port
        """The port at which servers and services find it."""
        self.log = folder / "hub.log"
        self._folder = folder
        self._environment = {**os.environ, **more}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it answers when this returns. What it wrote before into its database and its log stays."""
        words = [
            os.environ.get(PYTHON) or sys.executable,
            "-m",
            "jupyterhub",
            "--config",
            str(_config_file(self._folder)),
        ]
        with self.log.open("ab") as output:
            process = subprocess.Popen(words, cwd=self._folder, env=self._environment, stdout=output, stderr=output)
        self._process = process
        until(lambda: _is_up(self.address, process), SECONDS, "the hub")

    def kill(self) -> None:
        """End it as a crash does; its proxy and the servers that it started go on."""
        assert self._process
        self._process.kill()
        self._process.wait(SECONDS)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """It answers nothing until the end of the block."""
        assert self._process
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def is_asked_by(self, address: str) -> bool:
        """Tell whether a request from an address waits to be read by the paused hub."""
        words = ("ss", "--tcp", "--no-header", "--numeric", "state", "established", "sport", "=", f":{self.port}")
        lines = subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()
        found = [line.split() for line in lines]  # unread and unsent bytes, the address here and there
        return any(int(unread) > 0 and there.rpartition(":")[0] == address for unread, _, _, there in found)

    def stop(self) -> None:
        """End it in order, and with it its proxy and the servers that it started."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(SECONDS)
        finally:
            self._process.kill()
            self._process.wait(SECONDS)
            _end_proxy(self._folder / "proxy.pid")


@contextmanager
def started(
    folder: Path,
    config: str,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    scheme: str = "http",
    public: tuple[str, int] | None = None,
    more: Mapping[str, str] | None = None,
) -> Iterator[Hub]:
    """A hub with its proxy, until the end of the block.

    ``config``: how it starts servers. ``host``, ``port``, ``scheme``: where and how servers find the hub. ``public``:
    where people find it, if others than this machine need to. ``more``: environment.
    """
    assert PROXY.exists(), "configurable-http-proxy is not installed: scripts/test does it."
    own, api = free(2)
    hub = port or free(1, host)[0]
    where, entrance = public or ("127.0.0.1", own)
    address = f"http://{where}:{entrance}"
    ours = _CONFIG.format(
        password=PASSWORD,
        address=address,
        scheme=scheme,
        host=host,
        hub=hub,
        folder=folder,
        api=api,
        proxy=str(PROXY),
        seconds=SECONDS,
    )
    _config_file(folder).write_text(ours + config)
    made = Hub(folder, address, hub, more or {})
    try:
        made.start()
        yield made
    except Exception as error:
        raise AssertionError(f"{error}\n{made.log.read_text()[-6000:]}") from error
    finally:
        made.stop()


@contextmanager
def running(folder: Path, config: str, **more: Any) -> Iterator[str]:
    """A hub with its proxy, until the end of the block; the address where people find it. ``more``: as of `started`."""
    with started(folder, config, **more) as hub:
        yield hub.address


def _config_file(folder: Path) -> Path:
    return folder / "jupyterhub_config.py"


def _end_proxy(file: Path) -> None:
    """End the proxy that a killed hub leaves; a hub that ends in order has removed the file."""
    with suppress(FileNotFoundError, ProcessLookupError, ValueError):
        os.kill(int(file.read_text()), 9)


def _is_up(hub: str, process: subprocess.Popen[bytes]) -> bool:
    """Tell whether the hub at that address answers; raises Hopeless if its process has ended."""
    if process.poll() is not None:
        raise Hopeless(f"The hub ended with status {process.returncode}.")
    with urllib.request.urlopen(f"{hub}/hub/health", timeout=SECONDS) as answer:
        return bool(answer.status == 200)


class Person:
    """A user with a browser. ``server``: the name of the server that it opens, of those that the user may have."""

    def __init__(self, hub: str, name: str, server: str = "") -> None:
        self.hub = hub
        self.name = name
        self._server = server
        self._own = f"/user/{name}/{server}/" if server else f"/user/{name}/"
        self._cookies = CookieJar()
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self._cookies))

    def log_in(self, **options: str) -> None:
        """Log in by the hub's form; the server starts, and the named one, too.

        ``options``: what the person chooses in the form of options, where the hub has one, such as ``profile``.
        """
        self._open("/hub/login")
        self._send("/hub/login", {"username": self.name, "password": PASSWORD})
        if self._server:
            self._open(f"/hub/spawn/{self.name}/{self._server}")
        if options:
            self._send(f"/hub/spawn/{self.name}", options)
        until(self._lab, SECONDS, f"the server of {self.name}", every=0.5)

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the answer of the extension's API in the user's server, as the page in the browser asks it."""
        return self._json(method, f"{self._own}jupyter-gpu/api/v1/{path}", self._own, body)

    def api(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the answer of Jupyter's own API of the user's server."""
        return self._json(method, f"{self._own}api/{path}", self._own, body)

    def run(self, code: str) -> str:
        """Run ``code`` in a new kernel of the person's server, as a page does, and return what it prints."""
        kernel = self.api("POST", "kernels", {"name": "python3"})["id"]
        try:
            return asyncio.run(asyncio.wait_for(self._run(kernel, code), SECONDS))
        finally:
            self.api("DELETE", f"kernels/{kernel}")

    async def _run(self, kernel: str, code: str) -> str:
        url = f"{self.hub.replace('http', 'ws', 1)}{self._own}api/kernels/{kernel}/channels"
        headers = {"Cookie": self.cookie(url), "Origin": self.hub}
        channels = await websocket_connect(HTTPRequest(url, headers=headers))
        request = {
            "channel": "shell",
            "header": {
                "msg_id": "run",
                "msg_type": "execute_request",
                "session": "test",
                "username": "",
                "version": "5.3",
            },
            "parent_header": {},
            "metadata": {},
            "content": {"code": code, "silent": False, "allow_stdin": False, "store_history": False},
        }
        await channels.write_message(json.dumps(request))
        printed, ended = "", False
        while not ended:
            message = json.loads(str(await channels.read_message()))
            if message["parent_header"].get("msg_id") == "run":
                kind, content = message["msg_type"], message["content"]
                assert kind != "error", "\n".join(content["traceback"])
                printed += content["text"] if kind == "stream" else ""
                ended = kind == "status" and content["execution_state"] == "idle"
        channels.close()
        while await channels.read_message() is not None:  # until the other side has closed it, too
            pass
        return printed.strip()

    def cookie(self, url: str) -> str:
        """Return the header that a browser sends to ``url``."""
        request = urllib.request.Request(url.replace("ws", "http", 1))
        self._cookies.add_cookie_header(request)
        return request.get_header("Cookie", "")

    def token(self) -> str:
        """Return a new token with the user's own rights, as the hub's page makes it."""
        return str(self._json("POST", f"/hub/api/users/{self.name}/tokens", "/hub/", {"note": "test"})["token"])

    def stop(self) -> None:
        """Stop the server, as the button of the hub's page does."""
        self._json("DELETE", f"/hub/api/users/{self.name}/server", "/hub/")

    def _json(self, method: str, path: str, cookie: str, body: Mapping[str, Any] | None = None) -> Any:
        request = urllib.request.Request(
            self.hub + path,
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json", "X-XSRFToken": self._xsrf(cookie), "Referer": f"{self.hub}/hub/home"},
            method=method,
        )
        try:
            with self._opener.open(request, timeout=SECONDS) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{method} {path}: {error} {error.read()[:2000]!r}") from error
        return json.loads(text) if text else None

    def _lab(self) -> bool:
        """Whether JupyterLab's page comes; the browser is sent to the hub and back to prove who it is."""
        path = f"{self._own}lab"
        return urllib.parse.urlsplit(self._open(path)).path == path

    def _send(self, path: str, form: Mapping[str, str]) -> None:
        """Send a form of the hub's pages."""
        data = urllib.parse.urlencode({**form, "_xsrf": self._xsrf("/hub/")}).encode()
        with self._opener.open(urllib.request.Request(self.hub + path, data), timeout=SECONDS) as answer:
            answer.read()

    def _open(self, path: str) -> str:
        with self._opener.open(self.hub + path, timeout=SECONDS) as answer:
            answer.read()
            return str(answer.url)

    def _xsrf(self, path: str) -> str:
        return next(cookie.value or "" for cookie in self._cookies if cookie.name == "_xsrf" and cookie.path == path)
