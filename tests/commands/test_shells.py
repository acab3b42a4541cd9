"""Lines for shells: whatever a value holds, a shell reads exactly that."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpu.cli.environment import outdated, shell_variables
from jupyter_gpu.cli.rules.shells import SHELLS, lines
from jupyter_gpu.common.attached import AttachedGpu, Hint
from jupyter_gpu.common.rules.visible import NAMED_BY, ORDER, OURS, VISIBLE, WANTED, start
from jupyter_gpu.model.errors import InvalidRequest
from tests.kernel.builders import gpu, view

NASTY = r"""a'b"c\d$HOME`id`$(id);!x!1 #{e} \' \\n ~ * """
EVALS = {
    "sh": ["sh", "-c", 'eval "$LINES_OF_IT"; printf %s "$X"; printf "[%s]" "${Y-none}"'],
    "bash": ["bash", "-c", 'eval "$LINES_OF_IT"; printf %s "$X"; printf "[%s]" "${Y-none}"'],
    "zsh": ["zsh", "-c", 'eval "$LINES_OF_IT"; printf %s "$X"; printf "[%s]" "${Y-none}"'],
    "fish": ["fish", "-c", 'eval $LINES_OF_IT; printf %s "$X"; set -q Y; or printf "[none]"'],
    "tcsh": ["tcsh", "-fc", 'eval "$LINES_OF_IT:q"; printenv X | tr -d "\\n"; if (! $?Y) printf "[none]"'],
}
HERE = [shell for shell, command in EVALS.items() if shutil.which(command[0])]


@pytest.mark.parametrize("shell", HERE)
def test_real_shells_read_the_exact_value(shell: str, tmp_path: Path) -> None:
    """Installed shells run nothing in a value, and unset what is to be unset."""
    text = lines({"X": NASTY, "Y": None}, shell)
    env = {"LINES_OF_IT": text, "Y": "there", "HOME": str(tmp_path)}
    done = subprocess.run(EVALS[shell], env=os.environ | env, capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr) == (f"{NASTY}[none]", "")


@settings(max_examples=50)
@given(value=st.text().filter(str.isprintable))
def test_any_value_is_quoted(value: str) -> None:
    """The shell that every machine has reads it back."""
    value = value.encode("utf-8", "ignore").decode()
    done = subprocess.run(["sh", "-c", lines({"X": value}, "sh") + '; printf %s "$X"'], capture_output=True, timeout=30)
    assert done.stdout.decode() == value


def test_syntax_of_each_shell() -> None:
    """It follows their manuals; a semicolon in csh, whose `eval` joins all lines."""
    variables = {"X": "a'!\\", "Y": None}
    assert lines(variables, "sh") == lines(variables, "zsh") == "export X='a'\"'\"'!\\'\nunset Y"
    assert lines(variables, "fish") == "set -gx X 'a\\'!\\\\'\nset -e Y"
    assert lines(variables, "csh") == lines(variables, "tcsh") == "setenv X 'a'\\''\\!\\';\nunsetenv Y;"
    assert json.loads(lines(variables, "json")) == variables
    assert all(lines({}, shell) == "" for shell in SHELLS if shell != "json")


@pytest.mark.parametrize(("name", "value"), [("X", "a\nb"), ("X", "a\x1bb"), ("X Y", "a"), ("X;id", None)])
def test_control_characters_are_refused(name: str, value: str | None) -> None:
    """A line end would begin a command in some shells."""
    with pytest.raises(InvalidRequest, match="cannot be printed"):
        lines({name: value}, "sh")


GPUS = tuple(AttachedGpu(gpu(i).uuid, i, gpu(i).path) for i in range(3))


def test_shell_gets_the_attached_gpus() -> None:
    """Earlier values do not matter; numbers come only with the order that defines them; enforced mode is the same."""
    soft, guarded = (Hint("one", 1, False, GPUS[1:], enforced) for enforced in (False, True))
    both = f"{GPUS[1].uuid},{GPUS[2].uuid}"
    assert shell_variables({}, soft) == {ORDER: "PCI_BUS_ID", VISIBLE: both, OURS: both, WANTED: None}
    assert shell_variables({}, guarded) == shell_variables({}, soft)
    assert shell_variables({NAMED_BY: "index"}, soft)[VISIBLE] == "1,2"
    assert shell_variables({NAMED_BY: "index"}, guarded)[VISIBLE] == "0,1"
    assert shell_variables({NAMED_BY: "index", ORDER: "FASTEST_FIRST"}, soft)[VISIBLE] == both
    assert shell_variables({}, Hint("one", 1, False))[VISIBLE] == ""
    amd = AttachedGpu("GPU-8a5f01c2d3e4b600", 3, "/dev/dri/renderD128", "amd")
    assert shell_variables({}, Hint("one", 1, False, (GPUS[0], amd)))["HIP_VISIBLE_DEVICES"] == "0"
    assert shell_variables({}, Hint("one", 1, True, GPUS)) == {}


def test_outdated_shell_gets_a_hint() -> None:
    """Only a value of ours gives one: not a list of the user's, and not in enforced mode."""
    now = view(1000, simulated=False)
    assert 'eval "$(jupyter gpu env)"' in outdated(now, {VISIBLE: "", OURS: ""}, {})
    assert outdated(now, {VISIBLE: gpu(0).uuid, OURS: gpu(0).uuid}, {}) == ""
    assert outdated(now, {VISIBLE: "2", OURS: ""}, {}) == ""
    assert outdated(now, {}, {}) == ""
    assert outdated(view(1000), {VISIBLE: "", OURS: ""}, {}) == "", "Simulated."


def test_list_inherited_from_the_server_is_narrowed() -> None:
    """A batch system gave it to the server."""
    soft = Hint("one", 1, False, GPUS[1:2])
    site = {VISIBLE: "0,1", ORDER: "PCI_BUS_ID"}
    assert start(site, site, soft) == {VISIBLE: "1", OURS: "1", WANTED: "0,1"}
    assert start({**site, VISIBLE: "2"}, site, soft) == {}
    assert start({}, {}, soft) == {VISIBLE: GPUS[1].uuid, OURS: GPUS[1].uuid, WANTED: None}
    assert start({}, {}, Hint("one", 1, False, GPUS, True)) == {}
