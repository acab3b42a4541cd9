"""Tab after `jupyter gpu …` and `jupyter-gpu …`, in every shell that is installed here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_gpu.cli.codes import ERROR
from tests.kernel.servers import Server

BINARIES = Path(sys.executable).parent
ASK = """
source <(jupyter gpu completion bash) || exit 1
COMP_LINE=$1; COMP_POINT=${#COMP_LINE}; COMP_TYPE=9; COMP_WORDS=($COMP_LINE)
$(complete -p "${COMP_WORDS[0]}" | sed 's/.*-F \\([^ ]*\\).*/\\1/') "${COMP_WORDS[0]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""
pytestmark = pytest.mark.skipif(not (BINARIES / "jupyter-gpu").exists(), reason="the package is not installed")


def environment(server: Server) -> dict[str, str]:
    """Return the environment of a shell of the server's user, in which our commands are found."""
    return {**server.env, "PATH": f"{BINARIES}:{os.environ['PATH']}"}


def offered(server: Server, line: str) -> list[str]:
    """Return what a real bash offers after that line."""
    command = ["bash", "--norc", "--noprofile", "-c", ASK, "bash", line]
    done = subprocess.run(command, env=environment(server), capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return [word.strip() for word in done.stdout.splitlines() if word.strip()]


@pytest.mark.parametrize("command", ["jupyter gpu", "jupyter-gpu"])
def test_bash(server: Server, command: str) -> None:
    """Commands, options, what an option can be, and amounts that the server has; files are not offered."""
    assert {"status", "resize", "release", "watch", "wait", "usage", "completion"} <= set(
        offered(server, f"{command} ")
    )
    assert offered(server, f"{command} rel") == ["release"]
    assert set(offered(server, f"{command} resize --m")) == {"--memory", "--model"}
    assert set(offered(server, f"{command} resize 2 --topology ")) == {"any", "island", "switch"}
    assert {"0", "0.25", "1", "4"} <= set(offered(server, f"{command} resize "))
    assert offered(server, f"{command} resize 2 --memory ") == []
    assert set(offered(server, f"{command} completion ")) == {"bash", "zsh", "fish"}


def test_jupyter_itself(server: Server) -> None:
    """Other commands of Jupyter are completed, too: this takes nothing away from `jupyter`."""
    assert {"gpu", "server"} <= set(offered(server, "jupyter "))


def test_no_server(server: Server, tmp_path: Path) -> None:
    """Where no server answers, what only it knows is not offered, and Tab says nothing on the terminal."""
    alone = Server(server.process, tmp_path, {**server.env, "JUPYTER_RUNTIME_DIR": str(tmp_path)}, "", "")
    assert [word for word in offered(alone, "jupyter gpu resize ") if not word.startswith("-")] == []
    assert offered(alone, "jupyter gpu stat") == ["status"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells(server: Server, shell: str) -> None:
    """The printed script names both commands; where the shell is installed it reads it without a word."""
    text = server.cli("completion", shell).stdout
    assert re.search(r"\bjupyter-gpu\b", text)
    assert re.search(r"\bjupyter\b(?!-)", text)
    if shutil.which(shell):
        begin = "autoload -Uz compinit && compinit -D\n" if shell == "zsh" else ""
        done = subprocess.run(
            [shell], input=begin + text, env=environment(server), capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_without_argcomplete(server: Server, tmp_path: Path) -> None:
    """Where that package is missing it is said, and what to do."""
    (tmp_path / "argcomplete.py").write_text("raise ImportError")
    path = os.pathsep.join([str(tmp_path), server.env["PYTHONPATH"]])
    done = server.cli("completion", "bash", env={"PYTHONPATH": path})
    assert (done.returncode, "pip install argcomplete" in done.stderr) == (ERROR, True)
