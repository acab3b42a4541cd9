"""Binder's files, run as by repo2docker: environment, postBuild, start, and every cell of the notebook."""

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import websocket
import yaml

from scripts.lib.lab import Lab, running

ROOT = Path(__file__).parents[2]
BINDER = ROOT / "binder"

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy what git has, as repo2docker does into the image: nothing is built."""
    folder = tmp_path_factory.mktemp("image") / "home"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def image(checkout: Path) -> Path:
    """Create an environment with JupyterLab and run postBuild in it; return its bin folder.

    Packages come from the folder of wheels that the packaging tests use, and jlpm's from its own cache.
    """
    subprocess.run(["bash", "-c", ". scripts/lib/setup.sh && prepare wheelhouse"], cwd=ROOT, check=True)
    venv = checkout.parent / "environment"
    wheels = ROOT / ".cache" / "wheelhouse"
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
    home = Path(os.environ.get("YARN_GLOBAL_FOLDER", Path.home() / ".yarn" / "berry"))
    environment = {
        **os.environ,
        **offline,
        "HOME": str(checkout),
        "YARN_GLOBAL_FOLDER": str(home),
        "PATH": f"{venv}/bin:{os.environ['PATH']}",
    }
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    uv = [sys.executable, "-m", "uv", "pip", "install", "-q", "--python", f"{venv}/bin/python"]  # conda's part
    subprocess.run([*uv, "--no-index", "--find-links", wheels, "jupyterlab"], check=True)
    done = subprocess.run(
        ["binder/postBuild"], cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = re.sub(r"\x1b\[\d*m", "", done.stdout + done.stderr)
    assert "jupyter_gpu enabled" in said
    assert re.search(r"jupyter-gpu v\S+ enabled OK", said), said
    return venv / "bin"


def test_environment_has_the_tools_of_the_build() -> None:
    """It has conda-forge alone, a Python that the package accepts, JupyterLab 4.6, and a Node.js for its builder."""
    environment = yaml.safe_load((BINDER / "environment.yml").read_text())
    assert environment["channels"] == ["conda-forge"]
    wanted = dict(line.split(" ", 1) if " " in line else (line, "") for line in environment["dependencies"])
    assert wanted == {"python": ">=3.11,<3.14", "jupyterlab": ">=4.6,<4.7", "nodejs": ">=22,<23", "pip": ""}


@pytest.mark.parametrize("name", ["postBuild", "start"])
def test_scripts_are_executable(name: str) -> None:
    """Their first line names their interpreter, and their syntax is right."""
    assert os.access(BINDER / name, os.X_OK)
    assert (BINDER / name).read_text().startswith("#!/usr/bin/env bash\n")
    subprocess.run(["bash", "-n", BINDER / name], check=True)


def test_start_execs_the_command() -> None:
    """It sets the configuration, then becomes the server, which gets the signals."""
    command = [
        str(BINDER / "start"),
        sys.executable,
        "-c",
        "import os; print(os.getpid(), os.environ['JUPYTER_CONFIG_PATH'])",
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "JUPYTER_CONFIG_PATH": "/x"}
    ) as run:
        assert run.communicate()[0].split() == [str(run.pid), f"{BINDER}/config:/x"]


def test_post_build_leaves_no_tools(image: Path, checkout: Path) -> None:
    """The image has what runs, not the hundreds of megabytes that built it."""
    assert image.exists()
    assert not list(checkout.rglob("node_modules"))


@pytest.fixture
def lab(image: Path, checkout: Path, tmp_path: Path) -> Iterator[Lab]:
    """Start a visitor's server: without the right to make devices, whose numbers others may use."""
    command = [
        *(["setpriv", "--bounding-set=-mknod", "--inh-caps=-mknod"] if os.geteuid() == 0 else []),
        str(checkout / "binder" / "start"),
        str(image / "jupyter-lab"),
        f"--GpuExtension.state_dir={tmp_path}/gpu",
    ]
    path = {"PATH": f"{image}:{os.environ['PATH']}", "HOME": str(checkout)}
    with running(tmp_path, command=command, environment=path) as server:
        yield server


def test_visitor_gets_simulated_gpus_in_soft_mode(lab: Lab) -> None:
    """A container of Binder has no GPU and no rights; the page says both."""
    view = lab.json("jupyter-gpu/api/v1/status")
    assert view["simulated"] is True
    assert view["mode"] == "soft"
    assert view["total"] == 4000


def test_notebook_runs_from_first_cell_to_last(lab: Lab) -> None:
    """Every cell of the demo runs in a kernel of that server, and the important ones print what they should."""
    text = (BINDER / "demo.ipynb").read_text()
    assert text.count("seconds = 60") == 1
    notebook = json.loads(text.replace("seconds = 60", "seconds = 2"))
    (lab.work / "demo.ipynb").write_text(text)
    said = run_notebook(lab, "demo.ipynb", notebook)
    assert "inside:  3 of 4" in said["at_least"]
    assert "after:   2 of 4" in said["at_least"]
    assert "LimitExceeded: " in said["resize(99)"] or "Infeasible: " in said["resize(99)"]
    assert "demo.ipynb still has it open" in said["os.open"]
    assert "answer 42" in said["seconds ="]
    assert lab.json("jupyter-gpu/api/v1/status")["amounts"]["attached"] == 0


MARKS = ("at_least", "resize(99)", "os.open", "seconds =")


def run_notebook(lab: Lab, path: str, notebook: dict[str, Any]) -> dict[str, str]:
    """Run all code cells in one kernel; return the output of those that contain one of `MARKS`."""
    body = {"path": path, "type": "notebook", "name": path, "kernel": {"name": "python3"}}
    kernel = lab.json("api/sessions", "POST", body)["kernel"]["id"]
    address = urllib.parse.urlsplit(lab.url)
    socket = websocket.create_connection(
        f"ws://{address.netloc}{address.path}api/kernels/{kernel}/channels",
        header=[f"Authorization: token {lab.token}"],
        timeout=60,
    )
    try:
        said = {}
        for number, cell in enumerate(cell for cell in notebook["cells"] if cell["cell_type"] == "code"):
            source = "".join(cell["source"])
            output = run_cell(socket, f"cell-{number}", source)
            said.update({mark: output for mark in MARKS if mark in source and mark not in said})
        return said
    finally:
        socket.close()
        lab.fetch(f"api/kernels/{kernel}", "DELETE")


def run_cell(socket: websocket.WebSocket, name: str, source: str) -> str:
    """Run a cell and return its text outputs; an error in it fails the test with its traceback."""
    header = {"msg_id": name, "msg_type": "execute_request", "username": "", "session": "test", "version": "5.3"}
    content = {"code": source, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
    message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
    socket.send(json.dumps(message))
    said: list[str] = []
    while True:
        answer = json.loads(socket.recv())
        if answer["parent_header"].get("msg_id") != name:
            continue
        content = answer["content"]
        match answer["msg_type"]:
            case "stream":
                said.append(content["text"])
            case "display_data" | "execute_result":
                said.append("".join(content["data"].get("text/plain", "")) + "\n")
            case "error":
                pytest.fail(f"{source}\n\n" + "\n".join(content["traceback"]))
            case "status" if content["execution_state"] == "idle":
                return "".join(said)
