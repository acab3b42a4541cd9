"""A real JupyterHub on this machine whose parts speak TLS with certificates of both sides (`internal_ssl`)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from tests.cluster.testbed import until
from tests.cluster.testbed.ports import free
from tests.devices import first_minor
from tests.hub import PASSWORD, PROXY, SECONDS, Person, end_proxy, is_up

from .conftest import Kernel
from .servers import environment, is_ready

SINGLE = """
import sys
from jupyter_gpu_node.gpus import simulated
simulated.FIRST_MINOR = int(sys.argv.pop(1))
from jupyterhub.singleuser import main
main()
"""
CONFIG = """
c = get_config()
c.JupyterHub.internal_ssl = True
c.JupyterHub.internal_certs_location = "{folder}/internal-ssl"
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = {password!r}
c.Authenticator.allow_all = True
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = "{folder}/home"
c.JupyterHub.bind_url = "http://127.0.0.1:{public}"
c.JupyterHub.hub_bind_url = "https://127.0.0.1:{hub}"
c.JupyterHub.db_url = "sqlite:///{folder}/hub.sqlite"
c.JupyterHub.cookie_secret_file = "{folder}/cookie_secret"
c.ConfigurableHTTPProxy.api_url = "https://127.0.0.1:{api}"
c.ConfigurableHTTPProxy.command = [{proxy!r}]
c.ConfigurableHTTPProxy.pid_file = "{folder}/proxy.pid"
c.Spawner.cmd = {command!r}
c.Spawner.args = {arguments!r}
c.Spawner.environment = {environment!r}
c.Spawner.default_url = "/lab"
c.Spawner.start_timeout = c.Spawner.http_timeout = {seconds:.0f}
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Theirs."""
    (home := tmp_path_factory.mktemp("hub") / "home").mkdir()
    return home


@pytest.fixture(scope="module")
def person(home: Path) -> Iterator[Person]:
    """Somebody who is logged in, and whose server runs."""
    assert PROXY.exists(), "configurable-http-proxy is not installed: scripts/test does it."
    folder = home.parent
    public, hub, api = free(3)
    options = {
        "--ServerApp.jpserver_extensions": "{'jupyter_gpu': True}",
        "--GpuExtension.simulated_gpus": "2",
        "--GpuExtension.state_dir": str(folder / "state"),
        "--GpuExtension.enforcement": "soft",
    }
    config = CONFIG.format(
        folder=folder,
        password=PASSWORD,
        public=public,
        hub=hub,
        api=api,
        proxy=str(PROXY),
        command=[sys.executable, "-c", SINGLE, str(first_minor())],
        arguments=["--allow-root", *(f"{name}={value}" for name, value in options.items())],
        environment=environment(home),
        seconds=SECONDS,
    )
    (folder / "jupyterhub_config.py").write_text(config)
    words = [sys.executable, "-m", "jupyterhub", "--config", str(folder / "jupyterhub_config.py")]
    log = folder / "log"
    with log.open("wb") as output, subprocess.Popen(words, cwd=folder, stdout=output, stderr=output) as process:
        try:
            until(lambda: is_up(f"http://127.0.0.1:{public}"), SECONDS, "the hub")
            somebody = Person(f"http://127.0.0.1:{public}", "ann")
            somebody.log_in()
            until(lambda: somebody.ask("GET", "status")["phase"] == "Idle", SECONDS, "the GPUs")
            yield somebody
        except Exception as error:
            raise AssertionError(f"{error}\n{log.read_text()[-6000:]}") from error
        finally:
            process.terminate()  # it ends its proxy and the users' servers
            try:
                process.wait(60)
            finally:
                process.kill()
                end_proxy(folder / "proxy.pid")


@pytest.fixture
def kernel(person: Person, home: Path) -> Iterator[Kernel]:
    """Start a kernel of theirs."""
    made = person.api("POST", "kernels", {"name": "python3"})
    client = BlockingKernelClient(connection_file=str(home / "runtime" / f"kernel-{made['id']}.json"))
    client.load_connection_file()
    client.start_channels()
    try:
        until(lambda: is_ready(client), SECONDS, "the kernel")
        yield Kernel(None, client)
    finally:
        client.stop_channels()
        with contextlib.suppress(AssertionError):
            person.api("DELETE", f"kernels/{made['id']}")


def test_a_kernel_changes_its_gpus_and_the_panel_sees_it(person: Person, kernel: Kernel) -> None:
    """Nobody has configured anything: code comes by the door, the panel through the proxy with its certificate."""
    assert kernel.run("import os; print(os.environ['JUPYTERHUB_SERVICE_URL'].split(':')[0])") == "https"
    assert kernel.run("from jupyter_gpu import gpu; print(gpu.resize(2).attached)") == "2"
    assert person.ask("GET", "status")["amounts"]["attached"] == 2000
    person.ask("PUT", "request", {"gpus": 1})
    until(lambda: kernel.run("print(gpu.status().attached)") == "1", SECONDS, "one GPU")


def test_the_stream_of_the_panel(person: Person) -> None:
    """Through the proxy: the view at once, and each change."""

    async def listen() -> list[int]:
        url = f"{person.hub.replace('http', 'ws', 1)}/user/ann/jupyter-gpu/api/v1/stream"
        stream = await websocket_connect(HTTPRequest(url, headers={"Cookie": person.cookie(url), "Origin": person.hub}))
        seen: list[int] = []
        for amount in (None, 2, 0):
            if amount is not None:
                await asyncio.to_thread(person.ask, "PUT", "request", {"gpus": amount})
            while not seen or (amount is not None and seen[-1] != amount * 1000):
                message = json.loads(await stream.read_message() or "")
                if message["type"] == "view":
                    seen.append(message["view"]["amounts"]["attached"])
        stream.close()
        while await stream.read_message() is not None:  # until the other side has closed it, too
            pass
        return seen

    assert asyncio.run(asyncio.wait_for(listen(), SECONDS))[-1] == 0


LOST = """
import os, subprocess, sys
env = {name: value for name, value in os.environ.items() if not name.startswith("JUPYTER_GPU")}
code = "from jupyter_gpu import gpu; print(gpu.resize(1).attached)"
done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
print(done.stdout, done.stderr)
"""


def test_by_the_hubs_own_variables(kernel: Kernel) -> None:
    """Where ours are lost the hub's lead to the server, though its port lets in the hub and the proxy alone."""
    assert kernel.run(LOST) == "1"
