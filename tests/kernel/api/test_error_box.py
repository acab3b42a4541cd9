"""Our errors in a real notebook, a console and a plain Python."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter  # type: ignore[import-untyped,unused-ignore]

from jupyter_gpu.kernel.error_box import box
from jupyter_gpu.model.errors import NoCapacity
from tests.kernel.servers import Server, serve


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run one server for the module."""
    folder = tmp_path_factory.mktemp("server")
    with serve(folder, folder / "state", "--GpuExtension.enforcement=soft") as running:
        yield running


CELLS = [
    "from jupyter_gpu import gpu",
    "wanted = 9\ngpu.resize(wanted)",
    "%tb",
    "import sys; print(sys.last_value.have, len(sys.last_value.__traceback__.tb_frame.f_locals) > 0)",
    "try: gpu.resize(9)\nexcept Exception as error: print('handled', type(error).__name__)",
    "gpu.resize('lots')",
    "1/0",
]


@pytest.fixture(scope="module")
def notebook(server: Server) -> Any:
    """Return what a user's notebook contains after these cells."""
    book = nbformat.v4.new_notebook(  # type: ignore[no-untyped-call]
        cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS]  # type: ignore[no-untyped-call]
    )
    NotebookClient(book, timeout=60, allow_errors=True).execute(env=server.terminal)
    return book


def error_of(cell: Any) -> Any:
    (found,) = [output for output in cell.outputs if output.output_type == "error"]
    return found


def test_box_has_message_advice_state_and_line(notebook: Any) -> None:
    """No line of our own source is shown."""
    error = error_of(notebook.cells[1])
    assert (error.ename, error.evalue[:12]) == ("Infeasible", "Only 4 GPUs ")
    text = "\n".join(error.traceback)
    assert len(text.splitlines()) <= 6
    assert "Only 4 GPUs here can serve this, so it can never be granted. Ask for less." in " ".join(text.split())
    assert "Your server has: 0 of 4 GPUs attached" in text
    assert "Line 2: gpu.resize(wanted)" in text
    assert "jupyter_gpu/" not in text


def test_traceback_is_folded(notebook: Any) -> None:
    """It is in a fold below the box, with the extension's button; `%tb` and code that catches the error get it too."""
    (fold,) = [output for output in notebook.cells[1].outputs if output.output_type == "display_data"]
    assert "<details>" in fold.data["text/html"]
    assert "jupyter_gpu/kernel/api.py" in fold.data["text/html"]
    assert "jupyter-gpu:show-panel" in fold.data["text/html"]
    assert notebook.cells[1].outputs[-1] == fold, "below the error"
    assert "api.py" in "\n".join(error_of(notebook.cells[2]).traceback)
    assert notebook.cells[3].outputs[0].text == "4000 True\n"
    assert notebook.cells[4].outputs[0].text == "handled Infeasible\n"
    assert len(notebook.cells[4].outputs) == 1


def test_wrong_amount_shows_no_state(notebook: Any) -> None:
    """It has nothing to do with the GPUs that the server has."""
    text = "\n".join(error_of(notebook.cells[5]).traceback)
    assert "'lots' is not an amount of GPUs" in text
    assert "You have" not in text


def test_other_errors_look_as_always(notebook: Any) -> None:
    """Nothing is changed for them, and nothing is shown below them."""
    assert "ZeroDivisionError" in "\n".join(error_of(notebook.cells[6]).traceback)
    assert len(notebook.cells[6].outputs) == 1


def test_nbconvert_shows_message_and_fold(notebook: Any) -> None:
    """The button stays hidden there."""
    page, _ = HTMLExporter().from_notebook_node(notebook)  # type: ignore[no-untyped-call]
    assert "never be granted" in page
    assert "The whole traceback" in page
    assert re.search(r"<button[^>]* hidden", page)


def test_console_shows_the_same_lines(server: Server) -> None:
    """IPython in a terminal also says how to see more."""
    code = "from jupyter_gpu import gpu\ngpu.resize(9)\n"
    command = [sys.executable, "-m", "IPython", "--colors=nocolor", "--no-banner", "--simple-prompt"]
    done = subprocess.run(
        command, input=code, env=server.terminal, capture_output=True, text=True, check=False, timeout=60
    )
    assert "Your server has: 0 of 4 GPUs attached" in done.stdout
    assert "%tb shows the whole traceback." in done.stdout
    assert "jupyter_gpu/kernel/api.py" not in done.stdout


def test_plain_python_shows_its_own_traceback(server: Server) -> None:
    """The message is at its end."""
    command = [sys.executable, "-c", "from jupyter_gpu import gpu\ngpu.resize(9)"]
    done = subprocess.run(command, env=server.terminal, capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr.startswith("Traceback (most recent call last)")
    assert done.stderr.splitlines()[-1].startswith("jupyter_gpu.model.errors.Infeasible: Only 4 GPUs here")


def test_long_messages_are_wrapped() -> None:
    """Notes are kept."""
    error = NoCapacity(have=1000, queue=3)
    error.add_note("A note.")
    lines = box(error, "1 of 2", "More.")
    assert max(map(len, lines)) < 110
    assert lines[-3:] == ["  Your server has: 1 of 2", "  A note.", "  More."]
