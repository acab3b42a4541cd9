"""Traits and messages of the slider, with a server of which the answers are given."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import ipywidgets
import pytest
import traitlets

from jupyter_gpu.kernel.client import Call, Client
from jupyter_gpu.kernel.widget import GpuWidget
from jupyter_gpu.model.errors import GpuError, LimitExceeded, ServerUnreachable
from jupyter_gpu.model.view import GpuUser, Sample, View
from tests.kernel.builders import view
from tests.kernel.servers import await_


class Server(Client):
    """A server that answers each question with its state, after at most 50 ms; requests change the state."""

    def __init__(self, now: View | GpuError) -> None:
        super().__init__()
        self.now = now
        self.calls: list[Call] = []
        self.sample_now = Sample(1.0, {}, {})
        self.gate: Callable[[], object] = lambda: None

    def exchange(self, call: Call) -> Any:
        return _Exchange(self, call)

    def send(self, call: Call) -> View:
        return self.answer(call)

    def answer(self, call: Call) -> View:
        if call.method == "PUT":
            assert call.body is not None
            self.calls.append(call)
            self.gate()
            if isinstance(self.now, View):
                if call.body["milli"] > self.now.limit:
                    raise LimitExceeded(limit=self.now.limit)
                self.now = view(call.body["milli"], version=self.now.version + 1, instance=self.now.instance)
        if isinstance(self.now, GpuError):
            raise self.now
        return self.now


class _Exchange:
    def __init__(self, server: Server, call: Call) -> None:
        self.server, self.call = server, call
        self.aborted = threading.Event()

    def run(self) -> View:
        now = self.server.now
        end = time.monotonic() + 0.05
        while self.server.now is now and time.monotonic() < end and not self.aborted.is_set():
            time.sleep(0.005)
        return self.server.answer(self.call)

    def ask(self, _: object) -> Sample:
        return self.server.sample_now

    def abort(self) -> None:
        self.aborted.set()


@pytest.fixture
def make() -> Iterator[Callable[[Server], GpuWidget]]:
    """Make a slider that ends with the test."""
    made: list[GpuWidget] = []

    def one(server: Server) -> GpuWidget:
        made.append(GpuWidget(lambda: server))
        return made[-1]

    yield one
    for widget in made:
        widget.close()
    for thread in threading.enumerate():
        if thread.name.startswith("jupyter-gpu-"):
            thread.join(10)


def messages(widget: GpuWidget, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return what is sent to pages from now on."""
    sent: list[Any] = []
    monkeypatch.setattr(widget, "send", lambda content, buffers=None: sent.append(json.loads(json.dumps(content))))
    return sent


def test_setting_value_sends_a_request(make: Any) -> None:
    """It asks as the slider does; the result is in the other traits."""
    server = Server(view())
    widget = make(server)
    await_(lambda: widget.limit == 4)
    widget.value = 2
    await_(lambda: widget.attached == 2)
    assert [call.body for call in server.calls] == [{"milli": 2000, "overrule": True}]
    assert (widget.phase, widget.sentence, widget.error) == ("Ready", "2 of 4 GPUs attached", "")
    assert widget.value == 2


def test_value_follows_other_changes(make: Any) -> None:
    """A change made elsewhere reaches `observe`, and no request is sent."""
    server = Server(view())
    widget = make(server)
    seen: list[tuple[str, float]] = []
    widget.observe(lambda change: seen.append((change["name"], change["new"])), ["value", "attached"])
    server.now = view(500, version=2)
    await_(lambda: widget.attached == 0.5)
    assert seen == [("value", 0.5), ("attached", 0.5)]
    assert server.calls == []


def test_refused_value_is_reset(make: Any) -> None:
    """The error gives the reason."""
    server = Server(view(1000))
    widget = make(server)
    await_(lambda: widget.attached == 1)
    widget.value = 9
    await_(lambda: widget.error)
    assert widget.error.startswith("Your server's limit is 4 GPUs")
    await_(lambda: widget.value == 1)
    widget.value = 2
    await_(lambda: widget.attached == 2)
    await_(lambda: not widget.error)


def test_value_does_not_jump_back_during_a_request(make: Any) -> None:
    """An older state does not move a linked slider; the newest of several requests wins."""
    server = Server(view())
    widget = make(server)
    await_(lambda: widget.limit == 4)
    go = threading.Event()
    server.gate = lambda: go.wait(10)
    values: list[float] = []
    widget.observe(lambda change: values.append(change["new"]), "value")
    widget.value = 1
    await_(lambda: server.calls)
    widget.value = 2
    widget.value = 3
    server.now = view(500, version=5)
    await_(lambda: widget.attached == 0.5)
    assert widget.value == 3
    go.set()
    await_(lambda: widget.attached == 3)
    assert [call.body["milli"] for call in server.calls if call.body] == [1000, 3000]
    assert values == [1, 2, 3]


@pytest.mark.parametrize("value", ["lots", -1, float("nan"), 1 / 3])
def test_invalid_value_is_refused(make: Any, value: Any) -> None:
    """It is refused where it is set, and no request is sent."""
    server = Server(view())
    widget = make(server)
    with pytest.raises(traitlets.TraitError):
        widget.value = value
    assert widget.value == 0
    assert server.calls == []


def test_other_traits_are_read_only(make: Any) -> None:
    """Neither code nor a page sets what only the server knows."""
    widget = make(Server(view(1000)))
    await_(lambda: widget.attached == 1)
    for name in ("attached", "limit", "phase", "sentence", "error"):
        with pytest.raises(traitlets.TraitError):
            setattr(widget, name, 3)
    widget.set_state({"attached": 3, "_instance": "other", "sentence": "all fine"})
    assert (widget.attached, widget.get_state()["_instance"], widget.sentence) == (1, "one", "1 of 4 GPUs attached")


def test_link_goes_both_ways(make: Any) -> None:
    """`widgets.link` works."""
    server = Server(view())
    widget = make(server)
    await_(lambda: widget.limit == 4)
    other = ipywidgets.FloatText()
    ipywidgets.link((other, "value"), (widget, "value"))
    other.value = 2
    await_(lambda: widget.attached == 2)
    server.now = view(0, version=9)
    await_(lambda: other.value == 0)


def test_missing_server_is_reported_and_found_later(make: Any) -> None:
    """The slider works as soon as there is one."""
    server = Server(ServerUnreachable("No Jupyter server was found that has jupyter-gpu."))
    widget = make(server)
    await_(lambda: widget.error.startswith("No Jupyter server"))
    assert (widget.phase, widget.sentence) == ("", "")
    assert "no Jupyter server with jupyter-gpu" in widget._repr_mimebundle_()[0]["text/plain"]
    server.now = view(1000)
    await_(lambda: widget.attached == 1)
    assert widget.error == ""


def test_page_works_through_the_kernel(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reports that it looks, gets states again and again, and its requests are answered by name."""
    server = Server(view())
    widget = make(server)
    await_(lambda: widget.limit == 4)
    sent = messages(widget, monkeypatch)
    time.sleep(0.2)
    assert sent == [], "nobody looks"
    widget.receive(widget, {"type": "visible"}, [])
    assert sent[0]["type"] == "view"
    await_(lambda: len(sent) > 3)
    widget.receive(widget, {"type": "request", "id": "a", "milli": 2000}, [])
    answer = await_(lambda: [one for one in sent if one["type"] == "answer"])
    assert answer == [{"type": "answer", "id": "a", "error": ""}]
    assert any(one["type"] == "view" and one["view"]["amounts"]["attached"] == 2000 for one in sent)
    widget.receive(widget, {"type": "request", "id": "b", "milli": 9000}, [])
    refused = await_(lambda: [one for one in sent if one.get("id") == "b"])
    assert refused[0]["error"].startswith("Your server's limit is 4 GPUs")
    server.now = ServerUnreachable("It does not answer.")
    lost = await_(lambda: [one for one in sent if one["type"] == "error"])
    assert lost[0]["message"] == "It does not answer."


def test_page_gets_time_shares_through_the_kernel(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does as long as it looks; whole GPUs have none."""
    server = Server(view(1000))
    widget = make(server)
    await_(lambda: widget.attached == 1)
    sent = messages(widget, monkeypatch)
    widget.receive(widget, {"type": "visible"}, [])
    await_(lambda: len(sent) > 3)
    assert {one["type"] for one in sent} == {"view"}
    server.now = view(500, version=2)
    await_(lambda: any(one["type"] == "sample" for one in sent))


def test_saved_state_has_no_names(make: Any) -> None:
    """A saved notebook contains amounts: no process, no other notebook, no address, no error."""
    user = GpuUser(4711, "python", kernel="k-1", notebook="secret-project.ipynb")
    server = Server(view(0, generation=2, draining=(0,), users=(user,)))
    widget = make(server)
    await_(lambda: "secret-project" in widget.sentence)
    data, _ = widget._repr_mimebundle_()
    saved = ipywidgets.Widget.get_manager_state()["state"]
    text = json.dumps([data, saved])
    assert data["text/plain"] == "GPU: giving back GPU 0…"
    for word in ("secret-project", "4711", "k-1"):
        assert word not in text
    server.now = ServerUnreachable("The Jupyter server at http://127.0.0.1:8888/ does not answer.")
    await_(lambda: widget.error)
    data, _ = widget._repr_mimebundle_()
    assert "127.0.0.1" not in json.dumps([data, ipywidgets.Widget.get_manager_state()["state"]])


def test_closed_slider_stops_following(make: Any) -> None:
    """It no longer asks the server."""
    others = set(threading.enumerate())
    widget = make(Server(view()))
    await_(lambda: widget.limit == 4)
    (follower,) = (one for one in set(threading.enumerate()) - others if one.name == "jupyter-gpu-widget")
    widget.close()
    follower.join(5)
    assert not follower.is_alive()
