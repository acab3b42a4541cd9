"""Real Jupyter servers in processes of their own, as users start them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient

from jupyter_gpu.common.rendezvous import FILE
from tests.devices import first_minor

from .kernels import Kernel

SOFT = "--GpuExtension.enforcement=soft"
GPUS = 4
SERVER = """
import sys
from jupyter_gpu_node.gpus import simulated
simulated.FIRST_MINOR = int(sys.argv.pop(1))
from jupyter_server.serverapp import main
main()
"""
"""A server whose simulated GPUs are devices that no other program uses."""
LEFT_OUT = ("jupyter_lsp", "jupyter_server_terminals", "jupyterlab", "notebook", "notebook_shim")
"""Extensions of this environment that serve pages and terminals; to load them takes half of a server's start."""


def extensions(*names: str) -> str:
    """Return the value of the option with the extensions of a server: ours and those that are named."""
    return str({**dict.fromkeys(LEFT_OUT, False), **dict.fromkeys(("jupyter_gpu", *names), True)})


def await_(condition: Any, seconds: float = 60) -> Any:
    """Return the first true value of ``condition()``."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise TimeoutError(f"It did not happen within {seconds} seconds.")


@dataclass
class Server:
    """A running server."""

    process: subprocess.Popen[bytes]
    folder: Path
    env: dict[str, str]
    url: str
    token: str

    def rest(self, method: str, path: str, body: Any = None) -> Any:
        """Return the JSON of a REST call."""
        headers = {"Authorization": f"token {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def gpus(self, amount: float) -> None:
        """Request so many GPUs, as the panel does."""
        self.rest("PUT", "jupyter-gpu/api/v1/request", {"gpus": amount})

    def status(self) -> Any:
        """Return the status as the panel sees it."""
        return self.rest("GET", "jupyter-gpu/api/v1/status")

    @property
    def runtime(self) -> Path:
        """Return the folder where the user's servers write what kernels and programs read."""
        return Path(self.env["JUPYTER_RUNTIME_DIR"])

    @property
    def terminal(self) -> dict[str, str]:
        """Return variables of a program in one of the server's terminals; `env` are those of a program elsewhere."""
        return {**self.env, FILE: str(await_(self._file))}

    def _file(self) -> Path | None:
        for path in self.runtime.glob("jupyter-gpu-*.json"):
            with contextlib.suppress(OSError, ValueError):
                if json.loads(path.read_text())["pid"] == self.process.pid:
                    return path
        return None

    def cli(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run `jupyter gpu …` in one of its terminals."""
        command = [sys.executable, "-m", "jupyter_gpu.cli", *arguments]
        env = {**self.terminal, **options.pop("env", {})}
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False, **options)

    @contextlib.contextmanager
    def kernel(self) -> Iterator[Kernel]:
        """Run a kernel that this server starts, as for a notebook."""
        kernel_id = self.rest("POST", "api/kernels", {"name": "python3"})["id"]
        path = self.runtime / f"kernel-{kernel_id}.json"
        client = BlockingKernelClient(connection_file=str(path))
        client.load_connection_file()
        client.start_channels()
        try:
            await_(lambda: is_ready(client))
            yield Kernel(None, client)
        finally:
            client.stop_channels()
            with contextlib.suppress(OSError):
                self.rest("DELETE", f"api/kernels/{kernel_id}")


@contextlib.contextmanager
def serve_soft(folders: pytest.TempPathFactory) -> Iterator[Server]:
    """Run a server in soft mode, with a folder and a state of its own."""
    folder = folders.mktemp("server")
    with serve(folder, folder / "state", SOFT) as running:
        yield running


@contextlib.contextmanager
def serve(
    folder: Path,
    state: Path,
    *arguments: str,
    gpus: int = GPUS,
    env: dict[str, str] | None = None,
    terminals: bool = False,
) -> Iterator[Server]:
    """Run a server with all files below ``folder``, on simulated GPUs in ``state``; or of the user with ``env``."""
    extra = ("jupyter_server_terminals",) if terminals else ()
    env = env or environment(folder)
    command = [sys.executable, "-c", SERVER, str(first_minor()), "--allow-root", "--no-browser", "--ServerApp.port=0"]
    options = [
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.root_dir={folder}",
        f"--ServerApp.jpserver_extensions={extensions(*extra)}",
        f"--GpuExtension.simulated_gpus={gpus}",
        f"--GpuExtension.state_dir={state}",
        *arguments,
    ]
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen([*command, *options], env=env, cwd=folder, stdout=output, stderr=output)
    try:
        info = await_(lambda: _info(process, Path(env["JUPYTER_RUNTIME_DIR"]), log))
        server = Server(process, folder, env, info["url"].replace("localhost", "127.0.0.1"), info["token"])
        await_(lambda: _answers(server))
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def environment(folder: Path) -> dict[str, str]:
    """Return variables of a user who has configured nothing, whose home is ``folder``."""
    for name in ("runtime", "meta"):
        (folder / name).mkdir(exist_ok=True)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "JPY_", "CUDA_", "IPYTHON", "XDG_"))}
    return {
        **kept,
        "HOME": str(folder),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "IPYTHONDIR": str(folder / "ipython"),
        "PYTHONPATH": os.pathsep.join([*_installed(folder / "meta"), *filter(None, sys.path)]),
    }


def _installed(folder: Path) -> list[str]:
    """Add the entry point that an installation would add, if the package runs from its source tree."""
    if metadata.entry_points(group="jupyter_client.kernel_provisioners", name="jupyter-gpu"):
        return []
    about = folder / "jupyter_gpu-0.0.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: jupyter-gpu\nVersion: 0.0.0\n")
    (about / "entry_points.txt").write_text(
        "[jupyter_client.kernel_provisioners]\njupyter-gpu = jupyter_gpu.server.provisioner:GpuProvisioner\n"
    )
    return [str(folder)]


def _info(process: subprocess.Popen[bytes], runtime: Path, log: Path) -> Any:
    if process.poll() is not None:
        raise AssertionError(f"The server ended:\n{log.read_text()}")
    try:
        return json.loads((runtime / f"jpserver-{process.pid}.json").read_text())
    except (FileNotFoundError, ValueError):
        return None


def is_ready(client: BlockingKernelClient) -> bool:
    """Tell whether the kernel answers."""
    try:
        client.wait_for_ready(timeout=20)
    except RuntimeError:  # on a busy machine a late heartbeat counts as death there
        return False
    return True


def _answers(server: Server) -> bool:
    try:
        return bool(server.status())
    except OSError:
        return False
