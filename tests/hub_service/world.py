"""A real hub with the service beside it, and a real API server that knows limits."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from jupyter_gpu.common import faults
from tests import hub
from tests.cluster.testbed import ControlPlane, control_plane, until
from tests.cluster.testbed.ports import free
from tests.hub import SECONDS

from .browser import Browser, Program

ROOT = Path(__file__).parents[2]
CRDS = ROOT / "deploy" / "chart" / "jupyter-gpu" / "crds"
HUB = "hub-one"
"""The hub's name."""
LIMITS = "/apis/jupyter-gpu.io/v1alpha1/gpulimits"
CONFIG = """
c.Authenticator.admin_users = {{"root"}}
c.JupyterHub.pid_file = "{folder}/hub.pid"
c.JupyterHub.redirect_to_server = False
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = "{folder}/home-{{username}}"
c.Spawner.cmd = [{python!r}, {server!r}]
c.Spawner.server_token_scopes = ["users:activity!user", "access:servers!server", "access:services!service=gpu"]
c.JupyterHub.allow_named_servers = True
c.JupyterHub.load_groups = {{
    "ml": {{"users": ["ann", "bob"], "properties": {{}}}},
    "gpu-admins": {{"users": ["ann"], "properties": {{}}}},
    "gpu-readers": {{"users": ["rita"], "properties": {{}}}},
}}
c.JupyterHub.services[0].update({more!r})
c.JupyterHub.services += [
    {{"name": "script", "api_token": {script!r}}},
    {{"name": "limits", "api_token": {limits!r}}},
]
c.JupyterHub.load_roles += [
    {{"name": "gpu-admins", "groups": ["gpu-admins"], "scopes": ["custom:gpu:limits", "access:services!service=gpu"]}},
    {{"name": "gpu-readers", "groups": ["gpu-readers"], "scopes": ["custom:gpu:limits:read"]}},
    {{"name": "script", "services": ["script"], "scopes": ["admin:users", "admin:groups", "admin:servers", "tokens"]}},
    {{"name": "limits", "services": ["limits"], "scopes": ["custom:gpu:limits", "access:services!service=gpu"]}},
]
"""
SERVER = '''
"""A user's server that writes down its token, and answers any request."""
import os
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import urlsplit

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

name = os.environ["JUPYTERHUB_SERVER_NAME"] or "main"
Path(f"token-{name}").write_text(os.environ["JUPYTERHUB_API_TOKEN"])
HTTPServer(("127.0.0.1", urlsplit(os.environ["JUPYTERHUB_SERVICE_URL"]).port), Handler).serve_forever()
'''


class Service:
    """The service as a process of its own, which a test may stop and start."""

    def __init__(self, world: World, port: int, token: str, settings: Mapping[str, Any]) -> None:
        self._world = world
        self.port = port
        self._token = token
        self.api_url = f"{world.address}/hub/api"
        """Address at which the service finds the hub."""
        self.settings = dict(settings)
        self.process: subprocess.Popen[bytes] | None = None
        self.output = world.folder / "service.out"
        self.log = world.folder / "service.log"
        self.crash_at = world.folder / "crash-at"
        """File that names the point at which the process dies (`faults`)."""

    def environment(self) -> dict[str, str]:
        """Return the variables that the chart sets."""
        parts = {
            "API_TOKEN": self._token,
            "API_URL": self.api_url,
            "BASE_URL": "/",
            "CLIENT_ID": "service-gpu",
            "SERVICE_NAME": "gpu",
            "SERVICE_PREFIX": "/services/gpu/",
            "SERVICE_URL": f"http://127.0.0.1:{self.port}",
        }
        crash = {faults.VARIABLE: f"@{self.crash_at}"}
        return {**os.environ, **crash, **{f"JUPYTERHUB_{name}": text for name, text in parts.items()}}

    def start(self) -> None:
        """Start it; it is ready when this returns."""
        file = self._world.folder / "settings.json"
        file.write_text(json.dumps({"hub": HUB, **self._world.store(), **self.settings}))
        words = [sys.executable, "-m", "jupyter_gpu_hub", "--settings", str(file)]
        with self.output.open("ab") as output, self.log.open("ab") as log:
            self.process = subprocess.Popen(words, env=self.environment(), stdout=output, stderr=log)
        try:
            until(self._ready, SECONDS, "the service")
        except Exception as error:
            raise AssertionError(f"{error}\n{self.log.read_text()[-4000:]}") from error

    def stop(self) -> int:
        """Stop it in order; return its exit status."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(SECONDS)

    def kill(self) -> None:
        """Stop it at once."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(SECONDS)

    def restart(self, **settings: Any) -> None:
        """Stop it and start it with these settings beside those that it has."""
        self.stop()
        self.settings |= settings
        self.start()

    def audit(self) -> list[dict[str, Any]]:
        """Return the lines of its standard output."""
        return [json.loads(line) for line in self.output.read_text().splitlines()]

    def _ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, "it ended"
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=5) as answer:
            return bool(answer.status == 200)


@dataclass
class World:
    """The hub, the service and the API server."""

    plane: ControlPlane
    folder: Path
    address: str = ""
    """The address at which users find the hub."""
    script: Program = field(init=False)
    """A program that administers the hub and holds no scope of limits."""
    limits: Program = field(init=False)
    """A program that may change limits."""
    service: Service = field(init=False)

    def store(self) -> dict[str, Any]:
        """Return the settings of the service that say where limits are."""
        return {"kubeconfig": str(self.plane.kubeconfig)}

    def browser(self, name: str) -> Browser:
        """Return a browser that is logged in to the hub and to the service."""
        made = Browser(self.address).log_in(name)
        made.open("/services/gpu/")
        return made

    def token(self, name: str, scopes: list[str] | None = None) -> Program:
        """Return a program with a token of a user; ``scopes``: those of the user unless they are given."""
        body = {"expires_in": 3600, **({"scopes": scopes} if scopes else {})}
        made = self.script.hub_api("POST", f"users/{name}/tokens", body)
        return Program(self.address, made["token"])

    def server_token(self, name: str, server: str = "") -> Program:
        """Start a server of a user, unless it runs; return a program that runs in it."""
        path = f"users/{name}/servers/{server}" if server else f"users/{name}/server"
        file = self.folder / f"home-{name}" / f"token-{server or 'main'}"
        if not self._runs(name, server):
            file.unlink(missing_ok=True)
            self.script.hub_api("POST", path)
            until(file.exists, SECONDS, f"the server of {name}")
            until(lambda: self._runs(name, server), SECONDS, f"the server of {name} to be ready")
        return Program(self.address, file.read_text())

    def stop_server(self, name: str, server: str = "") -> None:
        """Stop a server of a user."""
        path = f"users/{name}/servers/{server}" if server else f"users/{name}/server"
        self.script.hub_api("DELETE", path, {} if server else None)
        until(lambda: not self._runs(name, server), SECONDS, f"the server of {name} to stop")

    def kube(self, method: str, path: str, body: Any = None) -> Any:
        """Return the API server's answer to an administrator."""
        words = {"GET": "get", "POST": "create", "DELETE": "delete", "PUT": "replace"}[method]
        more = ["-f", "-"] if body is not None else []
        text = self.plane.kubectl(words, "--raw", path, *more, stdin=None if body is None else json.dumps(body))
        return json.loads(text)

    def put_limit(self, name: str, **more: Any) -> dict[str, Any]:
        """Create a limit as kubectl does; ``metadata`` beside its name and the ``spec``."""
        metadata = {"name": name, **more.pop("metadata", {})}
        body = {"apiVersion": "jupyter-gpu.io/v1alpha1", "kind": "GpuLimit", "metadata": metadata, "spec": more}
        made: dict[str, Any] = self.kube("POST", LIMITS, body)
        self.until_known(name)
        return made

    def limit(self, name: str) -> dict[str, Any]:
        """Return the object of a limit."""
        found: dict[str, Any] = self.kube("GET", f"{LIMITS}/{name}")
        return found

    def until_known(self, name: str, version: str = "") -> None:
        """Wait until the service knows a limit, in that version."""
        until(lambda: self._knows(name, version), SECONDS, f"the service to know {name}")

    def clear(self) -> None:
        """Remove all limits, and wait until the service has noticed."""
        self.plane.kubectl("delete", "gpulimits.jupyter-gpu.io", "--all", "--wait=false")
        until(lambda: self.limits.gpu("GET", "limits").json["total"] == 0, SECONDS, "no limits")

    def _knows(self, name: str, version: str) -> bool:
        answer = self.limits.gpu("GET", f"limits/{name}")
        return answer.status == 200 and version in ("", answer.json["version"])

    def _runs(self, name: str, server: str) -> bool:
        servers = self.script.hub_api("GET", f"users/{name}?include_stopped_servers")["servers"]
        return bool(servers.get(server, {}).get("ready"))


W = TypeVar("W", bound=World)


@contextmanager
def running(folder: Path, *, config: str = "", more: Mapping[str, Any] | None = None) -> Iterator[World]:
    """Yield the world until the end of the block. ``config``: of the hub; ``more``: of its service."""
    with control_plane(folder=folder / "plane") as plane:
        plane.kubectl("apply", "-f", CRDS)
        plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        with joined(World(plane, folder), config=config, more=more, settings={"write": True}) as world:
            yield world


@contextmanager
def joined(
    world: W, *, config: str = "", more: Mapping[str, Any] | None = None, settings: Mapping[str, Any] | None = None
) -> Iterator[W]:
    """Yield a world with its hub and service, until the end of the block; ``settings``: of the service."""
    folder = world.folder
    tokens = {name: secrets.token_hex(16) for name in ("token", "script", "limits")}
    (port,) = free(1)
    server = folder / "user_server.py"
    server.write_text(SERVER)
    text = hub.limits_service(f"http://127.0.0.1:{port}", tokens["token"])
    text += CONFIG.format(folder=folder, python=sys.executable, server=str(server), more=more or {}, **tokens)
    with hub.running(folder, text + config) as world.address:
        address = world.address
        world.script, world.limits = Program(address, tokens["script"]), Program(address, tokens["limits"])
        rate = {"perSecond": 1000, "burst": 10000}
        quick = {"mirrorSeconds": 0.5, "usersSeconds": 0.5, "rate": rate, "serverRate": rate}
        world.service = Service(world, port, tokens["token"], {**quick, **(settings or {})})
        world.service.start()
        for name in ("ann", "bob", "rita", "root"):
            if world.script.send("GET", f"/hub/api/users/{name}").status == 404:
                world.script.hub_api("POST", f"users/{name}")
        try:
            yield world
        finally:
            world.service.kill()
