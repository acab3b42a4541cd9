"""The notebooks of the demo as they are kept, before anybody runs them; what its check makes of what it saw."""

import ast
import json
from typing import Any

import pytest

from scripts.lib import demo_other_node, demo_sharing
from scripts.lib.demo_notebooks import gpu_work

CODE = "code"


def notebook(name: str) -> dict[str, Any]:
    """Return one of the notebooks."""
    found: dict[str, Any] = json.loads((demo_sharing.NOTEBOOKS / f"{name}.ipynb").read_text())
    return found


@pytest.mark.parametrize("name", demo_sharing.NAMES)
def test_notebooks_have_no_outputs(name: str) -> None:
    """No results are in the repository, and each cell is valid Python."""
    cells = [cell for cell in notebook(name)["cells"] if cell["cell_type"] == CODE]
    assert cells
    for cell in cells:
        assert (cell["outputs"], cell["execution_count"]) == ([], None)
        ast.parse("".join(cell["source"]))


@pytest.mark.parametrize("name", demo_sharing.NAMES)
def test_notebooks_name_the_kernel_with_the_gpu(name: str) -> None:
    """Another kernel has neither Numba nor the driver."""
    assert notebook(name)["metadata"]["kernelspec"]["name"] == demo_sharing.KERNEL


def test_training_length_can_be_changed() -> None:
    """The check writes another number into it."""
    cells = ["".join(cell["source"]) for cell in notebook("training")["cells"]]
    assert sum(f"seconds = {demo_sharing.TRAINING_SECONDS}" in cell for cell in cells) == 1


def test_notebooks_import_only_numba_and_gpu() -> None:
    """They use nothing of the simulated GPU."""
    for name in demo_sharing.NAMES:
        source = "\n".join("".join(cell["source"]) for cell in notebook(name)["cells"] if cell["cell_type"] == CODE)
        imported = {node.module for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)}
        assert imported == {"jupyter_gpu", "numba"}


GROUPS = {"GPU-a": {1: "/node2/pod7/x"}, "GPU-b": {1: "/node2/pod7/x", 2: "/node2/pod7/y"}}
RAN = {"GPU-a": 100, "GPU-b": 2000}


@pytest.mark.parametrize(
    ("groups", "ran", "words"),
    [
        (GROUPS, RAN, []),
        ({}, {}, ["0 GPUs of the other node were used, and not two"]),
        (GROUPS, {**RAN, "GPU-a": 99}, ["a GPU ran fewer than 100 kernels"]),
        ({**GROUPS, "GPU-c": {1: "/node2/pod7/x"}}, RAN, ["a GPU of another node was open, too"]),
        ({**GROUPS, "GPU-a": {3: "/node2/pod8/x"}}, RAN, ["a process that is not of the worker had a GPU open"]),
        ({**GROUPS, "GPU-a": {3: "/node1/pod7/x"}}, RAN, ["a process that is not of the worker had a GPU open"]),
    ],
)
def test_work_on_the_other_node_is_judged(
    groups: dict[str, dict[int, str]], ran: dict[str, int], words: list[str]
) -> None:
    """Only work of the worker, on two GPUs of that node, passes."""
    assert demo_other_node.problems(groups, ran, ("pod7", "node2")) == words


def test_notebook_of_the_other_node() -> None:
    """It has no results, and its work writes to the folder where the check looks."""
    text = (demo_other_node.FILES / demo_other_node.NOTEBOOK).read_text()
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == CODE]
    assert all((cell["outputs"], cell["execution_count"]) == ([], None) for cell in cells)
    assert gpu_work.BOARDS.name == demo_other_node.BOARDS
