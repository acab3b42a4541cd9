"""A real JupyterHub on this machine whose parts speak TLS with certificates of both sides (`internal_ssl`)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from tests import hub
from tests.cluster.testbed import until
from tests.devices import first_minor
from tests.hub import SECONDS, Person
from tests.kernel.kernels import Kernel
from tests.kernel.servers import environment, extensions, is_ready

SINGLE = """
import sys
from jupyter_gpu_node.gpus import simulated
simulated.FIRST_MINOR = int(sys.argv.pop(1))
from jupyterhub.singleuser import main
main()
"""
CONFIG = """
c.JupyterHub.internal_ssl = True
c.JupyterHub.internal_certs_location = "{folder}/internal-ssl"
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = "{folder}/home"
c.Spawner.cmd = {command!r}
c.Spawner.args = {arguments!r}
c.Spawner.environment = {environment!r}
c.Spawner.default_url = "/lab"
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the home of the users."""
    (home := tmp_path_factory.mktemp("hub") / "home").mkdir()
    return home


@pytest.fixture(scope="module")
def person(home: Path) -> Iterator[Person]:
    """Return a user who is logged in, and whose server runs."""
    folder = home.parent
    options = {
        "--ServerApp.jpserver_extensions": extensions("jupyterlab"),
        "--GpuExtension.simulated_gpus": "2",
        "--GpuExtension.state_dir": str(folder / "state"),
        "--GpuExtension.enforcement": "soft",
    }
    config = CONFIG.format(
        folder=folder,
        command=[sys.executable, "-c", SINGLE, str(first_minor())],
        arguments=["--allow-root", *(f"{name}={value}" for name, value in options.items())],
        environment=environment(home),
    )
    with hub.running(folder, config, scheme="https") as address:
        somebody = Person(address, "ann")
        somebody.log_in()
        until(lambda: somebody.ask("GET", "status")["phase"] == "Idle", SECONDS, "the GPUs")
        yield somebody


@pytest.fixture
def kernel(person: Person, home: Path) -> Iterator[Kernel]:
    """Start a kernel of the user."""
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


def test_kernel_changes_gpus_and_the_panel_follows(person: Person, kernel: Kernel) -> None:
    """Nothing is configured: code uses the local socket, the panel the proxy with its certificate."""
    assert kernel.run("import os; print(os.environ['JUPYTERHUB_SERVICE_URL'].split(':')[0])") == "https"
    assert kernel.run("from jupyter_gpu import gpu; print(gpu.resize(2).attached)") == "2"
    assert person.ask("GET", "status")["amounts"]["attached"] == 2000
    person.ask("PUT", "request", {"gpus": 1})
    until(lambda: kernel.run("print(gpu.status().attached)") == "1", SECONDS, "one GPU")


def test_stream_works_through_the_proxy(person: Person) -> None:
    """It sends the view at once, and each change."""

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


def test_hub_variables_lead_to_the_server(kernel: Kernel) -> None:
    """Without our variables the hub's are enough, though the server's port accepts only the hub and the proxy."""
    assert kernel.run(LOST) == "1"
