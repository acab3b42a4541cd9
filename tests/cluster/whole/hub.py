"""A real JupyterHub with KubeSpawner on this machine, configured by the example, and a person's session with it."""

from __future__ import annotations

import json
import os
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

from tests.cluster.testbed import until
from tests.cluster.testbed.ports import free
from tests.cluster.whole.world import SECONDS, World

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "deploy" / "examples" / "jupyterhub_config.py"
PROXY = ROOT / "tests" / "cluster" / "hub" / "node_modules" / ".bin" / "configurable-http-proxy"
ACCOUNT = "hub"
VERBS = ["get", "list", "watch", "create", "patch", "delete"]
RIGHTS = [
    {"apiGroups": [""], "resources": ["pods", "persistentvolumeclaims", "secrets", "services"], "verbs": VERBS},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["get", "list", "watch"]},
]
"""What KubeSpawner needs in the namespace of the users' pods."""
PASSWORD = "letmein"
EAGER = "eager"
"""This user's server starts with a GPU."""
BEFORE = """
c = get_config()
c.KubeSpawner.volumes = {"home": {"name": "home", "emptyDir": {}}}
c.KubeSpawner.volume_mounts = [{"name": "home", "mountPath": "/home/jovyan"}]
"""
"""What a hub says about its users' homes; the example comes after it."""
OWN = """
import sys
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = {password!r}
c.Authenticator.allow_all = True
c.JupyterHub.spawner_class = "kubespawner.KubeSpawner"
c.JupyterHub.bind_url = "http://127.0.0.1:{public}"
c.JupyterHub.hub_bind_url = "http://{host}:{hub}"
c.JupyterHub.hub_connect_url = "http://{host}:{hub}"
c.JupyterHub.db_url = "sqlite:///{folder}/hub.sqlite"
c.JupyterHub.cookie_secret_file = "{folder}/cookie_secret"
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{api}"
c.ConfigurableHTTPProxy.command = [{proxy!r}]
c.ConfigurableHTTPProxy.pid_file = "{folder}/proxy.pid"
c.KubeSpawner.namespace = {namespace!r}
c.KubeSpawner.image = {image!r}
c.KubeSpawner.node_selector = {{"kubernetes.io/hostname": {node!r}}}
c.KubeSpawner.delete_grace_period = 1
c.Spawner.start_timeout = c.Spawner.http_timeout = {seconds:.0f}

def _eager(spawner):
    if spawner.user.name == {eager!r}:
        spawner.extra_annotations = {{"jupyter-gpu.io/requested": "1"}}

c.Spawner.pre_spawn_hook = _eager
"""
"""What differs on this machine from a hub in the cluster."""


@contextmanager
def running(world: World, folder: Path, image: str, node: str) -> Iterator[str]:
    """The hub with its proxy, until the end of the block; where people find it."""
    assert PROXY.exists(), "configurable-http-proxy is not installed: scripts/test does it."
    host = world.cluster.network.service
    public, api = free(2)
    (hub,) = free(1, host)
    own = OWN.format(
        password=PASSWORD,
        public=public,
        host=host,
        hub=hub,
        api=api,
        folder=folder,
        proxy=str(PROXY),
        namespace=world.namespace,
        image=image,
        node=node,
        seconds=SECONDS,
        eager=EAGER,
    )
    config, log = folder / "jupyterhub_config.py", folder / "hub.log"
    config.write_text(BEFORE + EXAMPLE.read_text() + own)
    environment = {**os.environ, "KUBECONFIG": str(_kubeconfig(world, folder))}
    words = [sys.executable, "-m", "jupyterhub", "--config", str(config)]
    with (
        log.open("wb") as output,
        subprocess.Popen(words, cwd=folder, env=environment, stdout=output, stderr=output) as process,
    ):
        try:
            until(lambda: urllib.request.urlopen(f"http://127.0.0.1:{public}/hub/health"), SECONDS, "the hub")
            yield f"http://127.0.0.1:{public}"
        except Exception as error:
            raise AssertionError(f"{error}\n{log.read_text()[-6000:]}") from error
        finally:
            process.terminate()  # it ends its proxy and the users' servers
            try:
                process.wait(SECONDS)
            finally:
                process.kill()
                _end_proxy(folder / "proxy.pid")


def _end_proxy(file: Path) -> None:
    """Where a hub was killed its proxy would stay; a hub that ends in order has removed the file."""
    with suppress(FileNotFoundError, ProcessLookupError, ValueError):
        os.kill(int(file.read_text()), 9)


def _kubeconfig(world: World, folder: Path) -> Path:
    """The hub's own account, which has the rights that a hub needs and no others."""
    kinds = ("serviceaccount", "role", "rolebinding")
    world.kubectl("delete", "--ignore-not-found", *(f"{kind}/{ACCOUNT}" for kind in kinds))  # of an earlier attempt
    world.kubectl("create", "serviceaccount", ACCOUNT)
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": ACCOUNT, "namespace": world.namespace},
        "rules": RIGHTS,
    }
    world.kubectl("create", "-f", "-", stdin=json.dumps(role))
    world.kubectl(
        "create", "rolebinding", ACCOUNT, f"--role={ACCOUNT}", f"--serviceaccount={world.namespace}:{ACCOUNT}"
    )
    config = json.loads(world.cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": world.kubectl("create", "token", ACCOUNT, "--duration=1h").strip()}
    path = folder / "kubeconfig"
    path.touch(mode=0o600)
    path.write_text(json.dumps(config))
    return path


class Person:
    """Somebody with a browser."""

    def __init__(self, hub: str, name: str) -> None:
        self.hub = hub
        self.name = name
        self._cookies = CookieJar()
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self._cookies))

    def log_in(self) -> None:
        """By the hub's form; the server starts."""
        self._open("/hub/login")
        form = {"username": self.name, "password": PASSWORD, "_xsrf": self._xsrf("/hub/")}
        request = urllib.request.Request(f"{self.hub}/hub/login", urllib.parse.urlencode(form).encode())
        self._opener.open(request, timeout=SECONDS).read()
        until(self._lab, SECONDS, f"the server of {self.name}", every=0.5)

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """What the API of the extension in the person's server answers, as the page in the browser asks it."""
        own = f"/user/{self.name}/"
        return self._json(method, f"{own}jupyter-gpu/api/v1/{path}", own, body)

    def stop(self) -> None:
        """As the button of the hub's page."""
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
            raise AssertionError(f"{method} {path}: {error} {error.read()[:2000]!r}") from error
        return json.loads(text) if text else None

    def _lab(self) -> bool:
        """Whether JupyterLab's page comes; the browser is sent to the hub and back to prove who it is."""
        path = f"/user/{self.name}/lab"
        return urllib.parse.urlsplit(self._open(path)).path == path

    def _open(self, path: str) -> str:
        with self._opener.open(self.hub + path, timeout=SECONDS) as answer:
            answer.read()
            return str(answer.url)

    def _xsrf(self, path: str) -> str:
        return next(cookie.value or "" for cookie in self._cookies if cookie.name == "_xsrf" and cookie.path == path)
