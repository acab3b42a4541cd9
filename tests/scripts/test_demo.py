"""The notebooks of the demo that share a GPU: as they are kept, before anybody runs them."""

import ast
import json
from typing import Any

import pytest

from scripts.lib import demo_sharing

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
