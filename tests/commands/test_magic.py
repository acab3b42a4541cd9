"""`%gpu` in a kernel of the server, in one that the server does not know, and its completion."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpu import magic
from jupyter_gpu.cli.options import request
from tests.kernel.kernels import Failed, Kernel
from tests.kernel.servers import SOFT, Server, await_, environment, serve

pytestmark = pytest.mark.usefixtures("give_back")


@pytest.fixture(scope="module")
def kernel(server: Server) -> Iterator[Kernel]:
    """Start a kernel in which nothing was imported or loaded."""
    with server.kernel() as running:
        yield running


def plain(kernel: Kernel, line: str) -> str:
    """Return the text that a cell with the magic shows."""
    kernel.run(line)
    return str(kernel.results[-1]["text/plain"])


def test_magic_shows_resizes_and_releases(server: Server, kernel: Kernel) -> None:
    """Without arguments it shows the status; an amount resizes, with options and variables; release gives all back."""
    assert plain(kernel, "%gpu").startswith("0 of 4 GPUs attached")
    assert "<table>" in (plain(kernel, "%gpu 2"), kernel.results[-1]["text/html"])[1]
    assert server.status()["amounts"]["attached"] == 2000
    kernel.run("half = 0.5")
    assert plain(kernel, "%gpu {half} --memory 2GiB --priority 3").startswith("0.5 of 4")
    assert (server.status()["requested"]["memory"], server.status()["requested"]["priority"]) == (2 * 2**30, 3)
    assert "one time share" in plain(kernel, "%gpu usage")
    assert plain(kernel, "%gpu wait --timeout 5").startswith("0.5 of 4")
    kernel.run("now = %gpu release")
    assert kernel.run("print(now.attached, now.settled)") == "0 True"
    assert "memory" not in server.status()["requested"]
    assert "%gpu 0.5 --memory 20GiB" in kernel.run("%gpu --help")


def test_magic_need_not_wait(server: Server, kernel: Kernel, tmp_path: Path) -> None:
    """--no-wait asks and returns; --timeout ends the wait with our error, and the request stands."""
    with serve(tmp_path, server.folder / "state", SOFT) as other:
        other.gpus(4)
        assert plain(kernel, "%gpu 1 --no-wait").startswith("0 of 1: one when it is free")
        with pytest.raises(Failed) as failed:
            kernel.run("%gpu 1 --timeout 0.2")
        assert failed.value.kind == "NoCapacity"
        assert server.status()["phase"] == "Waiting"
        other.gpus(0)
        await_(lambda: server.status()["phase"] == "Ready")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("%gpu lots", "'lots' is not an amount of GPUs"),
        ("%gpu -1", "negative"),
        ("%gpu 1 --nonsense", "unrecognized arguments: --nonsense. See %gpu?"),
        ("%gpu 1 --topology round", "invalid choice: 'round'"),
        ("%gpu release --memory 3", "'%gpu release' takes no --memory: it goes with an amount"),
        ("%gpu 'half", "cannot be read: No closing quotation"),
    ],
)
def test_invalid_line_is_our_error(kernel: Kernel, line: str, said: str) -> None:
    """It changes nothing."""
    with pytest.raises(Failed) as failed:
        kernel.run(line)
    assert failed.value.kind == "InvalidRequest"
    assert said in failed.value.text


def test_error_is_a_box(kernel: Kernel) -> None:
    """It shows a sentence and the line that the user typed, without a line of IPython's source."""
    kernel.client.execute("x = 1\n%gpu lots")
    while (message := kernel.client.get_iopub_msg(timeout=30))["msg_type"] != "error":
        pass
    text = "\n".join(message["content"]["traceback"])
    assert "Line 2: %gpu lots" in text
    assert "fn(*args" not in text


@pytest.mark.parametrize(
    ("line", "there", "gone"),
    [
        ("%gpu ", {"0", "0.25", "1", "4", "release", "status", "usage", "wait"}, {"5"}),
        ("%gpu re", {"release"}, {"status"}),
        ("%gpu 2 --m", {"--memory", "--model"}, {"--each"}),
        ("%gpu 2 --no-wait --", {"--each", "--timeout"}, {"--no-wait"}),
        ("%gpu 2 --topology ", {"any", "island", "switch"}, {"--each"}),
        ("%gpu 2 --placement ", {"any", "local"}, {"--each"}),
        ("%gpu 2 --memory ", {"20GiB"}, {"--each"}),
        ("%gpu 2 --vendor ", {"amd", "any", "nvidia"}, {"--each"}),
    ],
)
def test_magic_completes(kernel: Kernel, line: str, there: set[str], gone: set[str]) -> None:
    """Tab offers what can come next: amounts that the server has, commands, options, their values."""
    content = kernel.client.complete(line, reply=True, timeout=30)["content"]
    offered = {line[: content["cursor_start"]] + match for match in content["matches"]}
    begin = line[: line.rindex(" ") + 1]
    assert {begin + word for word in there} <= offered
    assert not {begin + word for word in gone} & offered


def test_all_options_are_offered() -> None:
    """The words that are completed are those that are understood."""
    known = {text for action in request()._actions for text in action.option_strings}
    assert known | {"--no-wait", "--timeout"} == set(magic.OPTIONS)
    assert set(magic.VALUES) == set(magic.OPTIONS) - {"--no-wait", "--lendable", "--no-lendable"}


def test_extension_loads_elsewhere(tmp_path: Path) -> None:
    """In an IPython that no server started, `%load_ext jupyter_gpu` loads it; without a server it says so."""
    script = tmp_path / "lines.ipy"
    script.write_text("%load_ext jupyter_gpu\n%gpu\n")
    command = [sys.executable, "-m", "IPython", "--no-banner", "--colors=NoColor", str(script)]
    env = {**environment(tmp_path), "TERM": "dumb"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert "No Jupyter server was found" in done.stdout
    assert "Line 2: %gpu\n" in done.stdout


def test_registering_costs_nothing_at_the_start_of_a_kernel() -> None:
    """It loads nothing but its own module."""
    code = (
        "import sys, logging, json, re, contextlib, pathlib; from jupyter_gpu.kernel.cuda import frameworks, guard\n"
        "before = set(sys.modules)\nfrom jupyter_gpu import magic\n"
        "class Shell:\n    def register_magic_function(self, *a): pass\n    def set_hook(self, *a, **k): pass\n"
        "    input_transformers_cleanup = []\n"
        "magic.register(Shell())\nprint(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], env=os.environ, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['jupyter_gpu.magic']"
