"""Programs outside every server, as people run them: a message says what they would get, and nothing is taken."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from jupyter_gpu.cli.codes import DONE, UNREACHABLE, USAGE
from tests.kernel.servers import SOFT, Server, await_, serve, serve_soft

pytestmark = pytest.mark.usefixtures("give_back")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run one server for the module."""
    with serve_soft(tmp_path_factory) as running:
        yield running


def python(server: Server, code: str, *before: str, env: dict[str, str] | None = None) -> Any:
    """Run a script of this user that nothing of Jupyter started, as cron or a login shell does."""
    return subprocess.run(
        [*before, sys.executable, "-c", code],
        env=env or server.env, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def wanted(server: Server) -> int:
    """Return the milli that the server requests."""
    return int(server.status()["amounts"]["requested"])


@pytest.mark.parametrize(
    "code", ["gpu.resize(1)", "gpu.release()", "gpu.status()", "with gpu.at_least(1): pass", "gpu.devices"]
)
def test_script_outside_gets_an_explanation(server: Server, code: str) -> None:
    """The error names the server, says that the program is not guarded, and how to connect. Nothing is done."""
    done = python(server, f"from jupyter_gpu import gpu\n{code}")
    said = done.stderr.splitlines()[-1]
    assert said.startswith("jupyter_gpu.model.errors.OutsideServer: This program was not started by a Jupyter server")
    for word in (
        f"One runs here: {server.url} (folder {server.folder})",
        "gpu.connect()",
        "Nothing guards this program",
    ):
        assert word in said
    assert server.token not in done.stderr
    assert wanted(server) == 0


def test_script_connects_explicitly(server: Server) -> None:
    """`gpu.connect()` is enough for the only server, an address for one of several, without its token."""
    code = "from jupyter_gpu import gpu\n{}\nprint(gpu.resize(1).attached)"
    assert python(server, code.format("gpu.connect()")).stdout == "1\n"
    assert python(server, code.format(f"gpu.connect({server.url!r})")).stdout == "1\n"
    assert python(server, code.format(""), env={**server.env, "JUPYTER_GPU_URL": server.url}).stdout == "1\n"
    assert "say which: gpu.connect(url, token)" in python(server, code.format("gpu.connect(token='x')")).stderr


def test_several_servers_are_listed_and_none_chosen(server: Server, tmp_path: Path) -> None:
    """Each is listed, and its address alone selects it."""
    code = "from jupyter_gpu import gpu\ngpu.connect({})\nprint(gpu.status().view.instance)"
    with serve(tmp_path, server.folder / "state", SOFT, env=server.env) as other:
        said = python(server, code.format("")).stderr.splitlines()[-1]
        assert f"{server.url} (folder {server.folder})" in said
        assert f"{other.url} (folder {tmp_path})" in said
        assert "say which" in said
        for one in (server, other):
            assert python(server, code.format(repr(one.url))).stdout.strip() == one.status()["instance"]


def cells(server: Server, *code: str) -> list[Any]:
    """Return what the cells show in a kernel that papermill or another editor starts."""
    new: Any = nbformat.v4
    book = new.new_notebook(cells=[new.new_code_cell(cell) for cell in code])
    NotebookClient(book, timeout=60, allow_errors=True).execute(env=server.env)
    return [cell.outputs for cell in book.cells]


def test_kernel_of_another_editor_connects_explicitly(server: Server) -> None:
    """Its errors and its `gpu` have the same message; with `gpu.connect()` it works, and the slider is shown."""
    shown = cells(
        server,
        "from jupyter_gpu import gpu",
        "gpu.resize(1)",
        "gpu",
        "gpu.connect()",
        "print(gpu.resize(1).attached)",
        "gpu",
    )
    (error,) = [output for output in shown[1] if output.output_type == "error"]
    assert error.ename == "OutsideServer"
    assert "One runs here" in error.evalue
    assert "Nothing guards this program" in " ".join(" ".join(error.traceback).split())
    (line,) = shown[2]
    assert line["data"] == {"text/plain": f"GPU: {error.evalue}"}
    assert shown[4][-1]["text"] == "1\n"
    assert "application/vnd.jupyter.widget-view+json" in shown[5][0]["data"]


def outside(server: Server, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `jupyter gpu …` in a terminal that no server started."""
    return server.cli(*arguments, env={"JUPYTER_GPU_SERVER": ""})


def test_terminal_outside_reads_freely_and_acts_explicitly(server: Server) -> None:
    """`status` reads and names the server; a command that changes something needs --connect or --url."""
    done = outside(server, "status")
    assert (done.returncode, done.stdout.splitlines()[0]) == (DONE, "0 of 4 GPUs attached")
    place = f"{server.url} (folder {server.folder})"
    assert done.stderr == (
        f"Of the server at {place}. This terminal is outside of it; to change its GPUs from here, add --connect.\n"
    )
    for arguments in (["resize", "1"], ["release"]):
        done = outside(server, *arguments)
        assert (done.returncode, done.stdout) == (UNREACHABLE, "")
        assert "jupyter gpu … --connect" in done.stderr
    body = json.loads(outside(server, "resize", "1", "--json").stdout)
    assert body["reason"] == "OutsideServer"
    assert body["details"]["servers"] == [{"url": server.url, "folder": str(server.folder)}]
    assert wanted(server) == 0
    for choice in (["--connect"], ["--url", server.url]):
        done = outside(server, "resize", "1", *choice)
        assert (done.returncode, done.stdout.splitlines()[0], done.stderr) == (DONE, "1 of 4 GPUs attached", "")
    assert outside(server, "status", "--connect", "--url", server.url).returncode == USAGE


STARTED = """
import os, subprocess, sys
program = [sys.executable, "-c", "from jupyter_gpu import gpu; print(gpu.resize(1).attached)"]
env = {{name: value for name, value in os.environ.items() if {} or not name.startswith("JUPYTER_GPU")}}
done = subprocess.run([*{}, *program], env=env, capture_output=True, text=True)
print(done.stdout, done.stderr)
"""


@pytest.mark.parametrize("kept", [True, False], ids=["its variables", "no variable"])
@pytest.mark.parametrize(
    "before", [[], ["setsid", "--wait", "nohup"], ["sh", "-c", '"$0" "$@"; exit'], ["timeout", "50"]]
)
def test_programs_of_a_notebook_belong_to_its_server(server: Server, before: list[str], kept: bool) -> None:
    """Variables show it, or the parents if these are lost, as by sudo."""
    with server.kernel() as kernel:
        assert kernel.run(STARTED.format(kept, before)).split() == ["1"]


DETACHED = """
import os, subprocess, sys, time
env = {k: v for k, v in os.environ.items() if not k.startswith("JUPYTER_GPU")}
code = "import os, time\\nwhile os.getppid() != 1: time.sleep(0.01)\\nfrom jupyter_gpu import gpu\\ngpu.resize(1)"
with open("detached", "w") as out:
    subprocess.run(["sh", "-c", '"$0" -c "$1" & ', sys.executable, code], env=env, stderr=out, start_new_session=True)
"""


def test_detached_program_without_the_variable_is_outside(server: Server) -> None:
    """In a tmux that was started elsewhere nothing shows where it comes from."""
    with server.kernel() as kernel:
        kernel.run(DETACHED)
        path = Path(kernel.run("print(os.path.abspath('detached'))"))
        await_(lambda: path.read_text().endswith("\n") and "Outside" in path.read_text().splitlines()[-1])
        assert "OutsideServer: This program was not started" in path.read_text()
    assert wanted(server) == 0


@pytest.mark.root
def test_container_with_the_same_home_finds_no_server(server: Server) -> None:
    """Servers of the machine do not run there: none is listed, and `gpu.connect()` finds none."""
    for code in ("gpu.status()", "gpu.connect()"):
        done = python(
            server, f"from jupyter_gpu import gpu\n{code}", "unshare", "--pid", "--fork", "--mount-proc", "--kill-child"
        )
        assert done.stderr.splitlines()[-1].startswith(
            "jupyter_gpu.model.errors.ServerUnreachable: No Jupyter server was found"
        )


CONNECTED = """
import sys, time
from jupyter_gpu import gpu
gpu.connect()
print(gpu.status().view.instance, flush=True)
sys.stdin.readline()
try:
    gpu.resize(1)
except Exception as error:
    print(error, flush=True)
sys.stdin.readline()
print(gpu.resize(1).view.instance, flush=True)
"""


def test_connected_program_follows_a_restart(tmp_path: Path) -> None:
    """While the server is away calls say so; afterwards the program finds it again by its folder."""
    (home := tmp_path / "home").mkdir()
    with serve(home, tmp_path / "state", SOFT) as first:
        program = subprocess.Popen(
            [sys.executable, "-c", CONNECTED], env=first.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        with program:
            assert program.stdout
            assert program.stdin
            assert program.stdout.readline().strip() == first.status()["instance"]
            first.process.terminate()
            first.process.wait(30)
            program.stdin.write("\n")
            program.stdin.flush()
            said = program.stdout.readline()
            assert "does not run any more. Start it again in the same folder" in said
            with serve(home, tmp_path / "state", SOFT) as second:
                assert program.communicate("\n", timeout=60)[0].strip() == second.status()["instance"]
