"""The parts of the slider: messages, attention, requests, language."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.kernel.widget import words
from jupyter_gpu.kernel.widget.attention import Attention
from jupyter_gpu.kernel.widget.request_queue import RequestQueue
from jupyter_gpu.kernel.widget.rules.messages import (
    RequestMessage,
    VisibleMessage,
    answer_message,
    lost_message,
    read_message,
    sample_message,
    saved_line,
    view_message,
)
from jupyter_gpu.model.view import GpuLoad, GpuUser, Sample, View
from tests.kernel.builders import view
from tests.kernel.servers import await_
from tests.model.strategies import views

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["type", "id", "milli", "x"]), inner),
)


@pytest.mark.uncounted(after=50)
@given(ANYTHING)
def test_any_content_from_a_page_is_accepted(content: Any) -> None:
    """Content that is no message is ignored; nothing raises."""
    found = read_message(content)
    assert found is None or isinstance(found, (VisibleMessage, RequestMessage))


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ({"type": "visible"}, VisibleMessage()),
        ({"type": "request", "id": "a", "milli": 1500}, RequestMessage("a", 1500)),
        ({"type": "request", "id": "a" * 65, "milli": 1}, None),
        ({"type": "request", "id": "a", "milli": -1}, None),
        ({"type": "request", "id": "a", "milli": True}, None),
        ({"type": "request", "milli": 1}, None),
        ({"type": "drop"}, None),
    ],
)
def test_message_is_read_wholly_or_not_at_all(content: Any, found: Any) -> None:
    """A field that is missing or of another type makes it no message."""
    assert read_message(content) == found


@pytest.mark.uncounted(after=10)
@given(views)
def test_page_gets_the_whole_view(sent: View) -> None:
    """The message of a view can be read back from its JSON, with nothing lost."""
    message = json.loads(json.dumps(view_message(sent)))
    assert (message["type"], View.from_json(message["view"])) == ("view", sent)


def test_page_gets_samples_errors_and_answers() -> None:
    """Each kind of message has its own type; an answer repeats the id of its request."""
    sample = Sample(5.0, {"GPU-1": GpuLoad(42.0, 2**30)})
    message = json.loads(json.dumps(sample_message(sample)))
    assert (message["type"], Sample.from_json(message["sample"])) == ("sample", sample)
    assert lost_message("Gone.") == {"type": "error", "reason": "ServerUnreachable", "message": "Gone."}
    assert answer_message("a", "Too many.") == {"type": "answer", "id": "a", "error": "Too many."}


@given(st.text(min_size=3), st.integers(1, 2**31 - 1))
def test_saved_line_has_no_names(name: str, pid: int) -> None:
    """Names of processes and notebooks are left out."""
    users = (GpuUser(pid, name, notebook=f"{name}.ipynb"), GpuUser(pid, name))
    with_names = view(0, generation=2, draining=(0,), users=users)
    assert saved_line(with_names) == "GPU: giving back GPU 0…"
    assert saved_line(None) == "GPU: no Jupyter server with jupyter-gpu was found here"


class Clock:
    """A clock that the test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_attention_ends() -> None:
    """A page that sends nothing more gets no messages: they would keep an idle kernel from being culled."""
    clock = Clock()
    attention = Attention(clock)
    assert not attention.held
    attention.seen()
    assert attention.held
    clock.now = 41
    assert not attention.held


def test_attention_lasts_while_a_cell_runs() -> None:
    """The kernel reads no page until the cell ends, so a page that looked at its beginning keeps getting states."""
    clock = Clock()
    attention = Attention(clock)
    attention.seen()
    attention.cell_begins()
    clock.now = 1000
    assert attention.held
    attention.cell_ends()
    clock.now = 1039
    assert attention.held
    clock.now = 1041
    assert not attention.held
    attention.cell_begins()
    assert not attention.held
    attention.seen()  # shown by that very cell
    clock.now = 2000
    assert attention.held


def test_requests_go_one_at_a_time() -> None:
    """The newest of the waiting ones is sent; each is answered once."""
    go = threading.Event()
    made: list[int] = []
    done: list[tuple[int, str]] = []

    def make(milli: int) -> str:
        made.append(milli)
        go.wait(10)
        return "no" if milli == 3 else ""

    requests = RequestQueue(make)
    for milli in (1, 2, 3):
        requests.put(milli, lambda error, milli=milli: done.append((milli, error)))  # type: ignore[misc]
        await_(lambda: made)
    assert requests.pending
    assert done == [(2, "")]
    go.set()
    await_(lambda: len(done) == 3)
    assert made == [1, 3]
    assert done == [(2, ""), (1, ""), (3, "no")]
    assert not requests.pending


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({}, ""),
        ({"LANG": "C.UTF-8"}, ""),
        ({"LANG": "en_GB.UTF-8"}, ""),
        ({"LANG": "de_DE.UTF-8"}, "de_DE"),
        ({"LANG": "de_DE.UTF-8", "LC_ALL": "fr_FR"}, "fr_FR"),
        ({"LANG": "eo"}, "eo"),
    ],
)
def test_language_is_the_kernels_locale(environ: dict[str, str], found: str) -> None:
    """It is found as everywhere else."""
    assert words.language(environ) == found


def test_catalog_is_the_installed_language_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the same as JupyterLab's; a similar one is used if the exact one is missing."""
    folder = tmp_path / "pack_qa_QA" / "locale" / "qa_QA" / "LC_MESSAGES"
    folder.mkdir(parents=True)
    (tmp_path / "pack_qa_QA" / "__init__.py").touch()
    body = {"": {"language": "qa"}, "Try again": ["Noch einmal"], "%1 GPU": "%1 GPU", "Waiting": [""], "x": 3}
    (folder / "jupyter_gpu.json").write_text(json.dumps(body))
    info = tmp_path / "pack_qa_QA-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: pack_qa_QA\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[jupyterlab.languagepack]\nqa_QA = pack_qa_QA\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    wanted = {"Try again": "Noch einmal", "%1 GPU": "%1 GPU"}
    assert words.catalog({"LANG": "qa_QA.UTF-8"}) == wanted
    assert words.catalog({"LANG": "qa_QB.UTF-8"}) == wanted
    assert words.catalog({"LANG": "qb_QB.UTF-8"}) == {}
    assert words.catalog({}) == {}
    (folder / "jupyter_gpu.json").write_text("{")
    assert words.catalog({"LANG": "qa_QA.UTF-8"}) == {}


@pytest.mark.uncounted(after=50)
def test_our_own_translation_is_there_without_a_pack() -> None:
    """Words that it lacks stay English."""
    assert words.catalog({"LANG": "de_CH.UTF-8"})["Release all"] == "Alle zurückgeben"


@given(ANYTHING)
def test_any_catalog_file_is_accepted(body: Any) -> None:
    """A file of a pack may contain anything."""
    found = words.read_catalog(body)
    assert all(isinstance(key, str) and isinstance(value, str) for key, value in found.items())
