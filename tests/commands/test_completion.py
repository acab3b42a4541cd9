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
    """Return the environment of a shell of the server's user that finds our commands."""
    return {**server.env, "PATH": f"{BINARIES}:{os.environ['PATH']}"}


def offered(server: Server, line: str) -> list[str]:
    """Return what a real bash offers after that line."""
    command = ["bash", "--norc", "--noprofile", "-c", ASK, "bash", line]
    done = subprocess.run(command, env=environment(server), capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return [word.strip() for word in done.stdout.splitlines() if word.strip()]


@pytest.mark.parametrize("command", ["jupyter gpu", "jupyter-gpu"])
def test_bash_completes(server: Server, command: str) -> None:
    """It offers commands, options, their values, and amounts that the server has, but no files."""
    assert {"status", "resize", "release", "watch", "wait", "usage", "completion"} <= set(
        offered(server, f"{command} ")
    )
    assert offered(server, f"{command} rel") == ["release"]
    assert set(offered(server, f"{command} resize --m")) == {"--memory", "--model"}
    assert set(offered(server, f"{command} resize --vendor ")) == {"nvidia"}
    assert set(offered(server, f"{command} resize 2 --topology ")) == {"any", "island", "switch"}
    assert {"0", "0.25", "1", "4"} <= set(offered(server, f"{command} resize "))
    assert offered(server, f"{command} resize 2 --memory ") == []
    assert set(offered(server, f"{command} completion ")) == {"bash", "zsh", "fish"}


def test_jupyter_itself_still_completes(server: Server) -> None:
    """Other commands of Jupyter are completed, too."""
    assert {"gpu", "server"} <= set(offered(server, "jupyter "))


def test_completion_without_a_server_is_silent(server: Server, tmp_path: Path) -> None:
    """Values that only the server knows are not offered, and Tab prints nothing on the terminal."""
    alone = Server(server.process, tmp_path, {**server.env, "JUPYTER_RUNTIME_DIR": str(tmp_path)}, "", "")
    assert [word for word in offered(alone, "jupyter gpu resize ") if not word.startswith("-")] == []
    assert offered(alone, "jupyter gpu stat") == ["status"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_read_the_script(server: Server, shell: str) -> None:
    """The printed script names both commands; an installed shell reads it without output."""
    text = server.cli("completion", shell).stdout
    assert re.search(r"\bjupyter-gpu\b", text)
    assert re.search(r"\bjupyter\b(?!-)", text)
    if shutil.which(shell):
        begin = "autoload -Uz compinit && compinit -D\n" if shell == "zsh" else ""
        done = subprocess.run(
            [shell], input=begin + text, env=environment(server), capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_missing_argcomplete_is_reported(server: Server, tmp_path: Path) -> None:
    """The message tells what to do."""
    (tmp_path / "argcomplete.py").write_text("raise ImportError")
    path = os.pathsep.join([str(tmp_path), server.env["PYTHONPATH"]])
    done = server.cli("completion", "bash", env={"PYTHONPATH": path})
    assert (done.returncode, "pip install argcomplete" in done.stderr) == (ERROR, True)
