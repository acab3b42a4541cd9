"""The slider in a cell: its JavaScript, and what it does where it must ask the kernel."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

import jupyter_gpu
from jupyter_gpu.client import Call, Client
from jupyter_gpu.kernel import Gpu
from jupyter_gpu.model.errors import LimitExceeded
from jupyter_gpu.model.view import User, View
from jupyter_gpu.widget import GpuWidget, read_wish

from .builders import view
from .servers import await_

SCRIPT = Path(jupyter_gpu.__file__).with_name("widget.js")


def test_pure_parts_in_node(tmp_path: Path) -> None:
    """Wishes in order, addresses, headers, labels; the module has no syntax error and imports nothing."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("not run: needs Node")
    module = tmp_path / "widget.mjs"
    shutil.copy(SCRIPT, module)
    test = Path(__file__).with_name("widget.test.mjs")
    env = {**os.environ, "WIDGET": str(module)}
    done = subprocess.run([node, "--test", str(test)], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "import " not in SCRIPT.read_text().replace("module for anywidget", "")


class Script(Client):
    """A server of which the answers are given."""

    def __init__(self, *answers: View | Exception) -> None:
        super().__init__()
        self.answers = list(answers)
        self.calls: list[Call] = []

    def send(self, call: Call) -> View:
        self.calls.append(call)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_wish_through_the_kernel() -> None:
    """A page that does not know its server sets `wish`; the kernel asks, answers, and follows until it is so."""
    client = Script(view(2000, attached=0, version=2, position=1), view(2000, version=3))
    widget = GpuWidget(Gpu(client))
    widget.wish = {"sequence": 1, "milli": 2000}
    await_(lambda: widget.view.get("version") == 3)
    assert widget.answer == {"sequence": 1, "error": ""}
    assert client.calls[0].body == {"milli": 2000, "overrule": True}
    assert widget.view["sentence"] == "2 of 4 GPUs attached"
    for thread in threading.enumerate():
        if thread.name == "jupyter-gpu-widget":
            thread.join(10)
    widget.close()


def test_refusal_through_the_kernel() -> None:
    """What the server refuses arrives as a sentence."""
    widget = GpuWidget(Gpu(Script(LimitExceeded(limit=1000))))
    widget.wish = {"sequence": 4, "milli": 9000}
    await_(lambda: widget.answer["sequence"] == 4)
    assert widget.answer["error"].startswith("Your server's limit is 1 GPU,")
    widget.close()


@pytest.mark.parametrize(
    "wish",
    [
        None,
        {},
        {"sequence": 1},
        {"sequence": "1", "milli": 1},
        {"sequence": 1, "milli": -1},
        {"sequence": 1, "milli": True},
    ],
)
def test_anything_may_come_from_a_page(wish: Any) -> None:
    """What is no wish is left out."""
    assert read_wish(wish) is None


def test_saved_state_names_nobody() -> None:
    """A saved notebook holds amounts, and no process or other notebook."""
    user = User(4711, "python", kernel="k-1", notebook="secret-project.ipynb")
    widget = GpuWidget(Gpu(Script(view())))
    widget.show(view(0, generation=2, draining=(0,), users=(user,)))
    state = {name: value for name, value in widget.get_state().items() if name != "view"}
    assert "secret-project" not in str(state)
    assert set(widget.view) == {"instance", "version", "simulated", "limit", "steps", "amounts", "sentence"}
    widget.close()


def test_keyboard_in_a_notebook() -> None:
    """JupyterLab's shortcuts leave the keys of the slider alone only if the attribute is on the input itself."""
    text = SCRIPT.read_text()
    start = text.index("<input")
    assert 'data-lm-suppress-shortcuts="true"' in text[start : text.index(">", start)]
