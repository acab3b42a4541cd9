"""Parsing of the commands of kernel specs."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.server.rules.launching import ARGUMENT, read

DIRECT = [
    "/usr/bin/python3 -m ipykernel_launcher -f x.json", "python3.14t -m ipykernel_launcher -f x.json",
    "python3.11 -Xfrozen_modules=off -m ipykernel_launcher -f x.json", "python -X dev -W ignore -m ipykernel -f x.json",
    "python.exe -I -m ipykernel_launcher", "pypy3.10 -m ipykernel_launcher -f x.json",
]  # fmt: skip
CHOSEN = [
    "conda run -n other python -m ipykernel_launcher -f x.json",
    "/opt/conda/bin/mamba run --live-stream -p /env python3 -m ipykernel_launcher -f x.json",
    "uv run --with ipykernel python -m ipykernel_launcher -f x.json",
    "env A=b python -m ipykernel_launcher -f x.json", "/usr/bin/env -u A python3.13t -m ipykernel_launcher -f x.json",
    "python -m nb_conda_kernels.runner /conda /conda/envs/x /conda/envs/x/bin/python -m ipykernel_launcher -f x.json",
]  # fmt: skip
SHELL = [
    "python -m ipykernel_launcher -f x.json", "source a/bin/activate && exec python -m ipykernel_launcher -f x.json",
    "module load cuda; A=b conda run -n x python -m ipykernel_launcher -f x.json; echo done",
    "cd /x\nexec /usr/bin/python3 -u -m ipykernel_launcher -f x.json 2>log",
]  # fmt: skip
LEFT = [
    "", "python -m", "python", f"python -m ipykernel_launcher -f x.json {ARGUMENT}", "python -m xpython -f x.json",
    "python -m bash_kernel -m ipykernel_launcher", "python run.py -m ipykernel_launcher", "xpython -f x.json",
    "R --slave -e IRkernel::main() --args x.json", "srun python -m ipykernel_launcher -f x.json",
    "env ssh host python -m ipykernel_launcher -f x.json", "nice docker run i python -m ipykernel_launcher -f x.json",
    "conda run -n x srun python -m ipykernel_launcher", "kernel.sh -f x.json", "bash kernel.sh -m ipykernel_launcher",
    "bash -c", "bash x -c 'python -m ipykernel_launcher'", "bash -c 'srun python -m ipykernel_launcher -f x.json'",
    "bash -c 'python -m ipykernel_launcher; python -m ipykernel_launcher'", "bash -c 'echo -m ipykernel_launcher'",
    "bash -c 'echo \"python -m ipykernel_launcher\"'",
    "bash -c 'python -m ipykernel_launcher_of_mine'", "bash -c 'true; -m ipykernel_launcher'", "-m ipykernel_launcher",
]  # fmt: skip


@pytest.mark.parametrize("text", DIRECT)
def test_python_gets_the_argument(text: str) -> None:
    """Its name may have a version and a letter; options may stand before the module."""
    command = text.split()
    launch = read(command)
    assert launch
    assert launch.guarded() == [*command, ARGUMENT]
    assert launch.direct == command[0]
    assert launch.asking("code") == [*command[: command.index("-m")], "-c", "code"]


@pytest.mark.parametrize("text", CHOSEN)
def test_launchers_pass_the_argument_on(text: str) -> None:
    """The same Python is asked whether it has jupyter_gpu."""
    command = text.split()
    launch = read(command)
    assert launch
    assert launch.guarded() == [*command, ARGUMENT]
    assert launch.direct == ""
    at = len(command) - command[::-1].index("-m") - 1
    assert launch.asking("code") == [*command[:at], "-c", "code"]


@pytest.mark.parametrize("text", SHELL)
def test_shell_command_gets_the_argument(text: str) -> None:
    """The argument comes right after the module; a question has nothing of what follows."""
    launch = read(["/bin/bash", "-lc", text, "name"])
    assert launch
    assert launch.direct == ""
    guarded = text.replace("ipykernel_launcher", f"ipykernel_launcher {ARGUMENT}")
    assert launch.guarded() == ["/bin/bash", "-lc", guarded, "name"]
    assert launch.asking("a b") == ["/bin/bash", "-lc", text[: text.index("-m ipy")] + "-c 'a b'"]


@pytest.mark.parametrize("text", LEFT)
def test_unknown_commands_are_left_alone(text: str) -> None:
    """A question could start one, and an argument could break it."""
    assert read(shlex.split(text)) is None


WORDS = st.sampled_from(
    [
        "python",
        "env",
        "conda",
        "run",
        "-m",
        "ipykernel_launcher",
        "-c",
        "bash",
        "srun",
        "A=b",
        "-X",
        "'",
        "exec python -m ipykernel",
    ]
)


@given(st.lists(WORDS | st.text(max_size=6), max_size=7))
def test_any_command_can_be_read(command: list[str]) -> None:
    """A command that was changed once is not changed again."""
    launch = read(command)
    if launch:
        assert read(launch.guarded()) is None
        assert sum(ARGUMENT in word for word in launch.guarded()) == 1
        assert launch.asking("code")[0] == command[0]
