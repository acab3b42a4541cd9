"""Messages of a worker in a notebook: a real kernel of a notebook, a real worker, and a client in the page's place."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import KernelManager

SETUP = """
from jupyter_gpu.remote.connection import Connection
from jupyter_gpu.remote.local_worker import LocalWorker
from jupyter_gpu.remote.relay import Relay
worker = LocalWorker()
connection = Connection(worker.address, "k", "/")
relay = Relay(get_ipython().kernel, connection)
def there(code):
    return connection.run(code, relay.listener())["content"]["status"]
"""


class Page:
    """A client of a notebook's kernel."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def run(self, code: str, **options: Any) -> list[dict[str, Any]]:
        """Run a cell; return its messages on the iopub channel, without its own state and input."""
        seen: list[dict[str, Any]] = []
        reply = self.client.execute_interactive(code, timeout=60, output_hook=seen.append, **options)
        assert reply["content"]["status"] == "ok", reply["content"]
        parent = reply["parent_header"]["msg_id"]
        assert all(message["parent_header"]["msg_id"] == parent for message in seen)
        return [message for message in seen if message["msg_type"] not in ("status", "execute_input")]

    def there(self, code: str, **options: Any) -> list[dict[str, Any]]:
        """Do the same for code in the worker."""
        return self.run(f"_ = there({code!r})", **options)

    def said(self, code: str, **options: Any) -> str:
        """Run a cell; return what it printed: a line may come in two messages."""
        return printed(self.run(code, **options))

    def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait for a message on the iopub channel."""
        end = time.monotonic() + 30
        while time.monotonic() < end:
            message: dict[str, Any] = self.client.get_iopub_msg(timeout=30)
            if wanted(message):
                return message
        raise AssertionError("no such message came")


def printed(shown: list[dict[str, Any]]) -> str:
    """Return the text of the messages of streams."""
    return "".join(message["content"]["text"] for message in shown if message["msg_type"] == "stream")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """Start a notebook's kernel with a worker."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(env={**environ, "IPYTHONDIR": str(tmp_path_factory.mktemp("ipython"))})
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        page = Page(client)
        page.run(SETUP)
        yield page
        page.run("relay.close(); connection.close(); worker.close()")
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()


def test_output_is_that_of_the_cell(page: Page) -> None:
    """Text, displays and their updates, with the notebook's cell as parent; errors of the worker are kept back."""
    shown = page.there(
        "from IPython.display import display, HTML\nprint('text')\n"
        "handle = display(HTML('<b>1</b>'), display_id='d')\nhandle.update(HTML('<b>2</b>'))\n1 / 0"
    )
    assert [message["msg_type"] for message in shown] == ["stream", "display_data", "update_display_data"]
    assert shown[0]["content"]["text"] == "text\n"
    assert shown[2]["content"]["transient"] == {"display_id": "d"}


def test_result_has_the_number_of_the_notebook_cell(page: Page) -> None:
    """Not that of the worker."""
    (shown,) = page.there("6 * 7")
    number = int(page.said("print(get_ipython().displayhook.prompt_count)"))
    assert shown["content"]["data"] == {"text/plain": "42"}
    assert shown["content"]["execution_count"] == number - 1


def test_own_output_comes_first(page: Page) -> None:
    """Text that the cell printed here before is shown before."""
    shown = page.run("print('here', end=''); _ = there('print(\"there\")'); print('here again')")
    assert printed(shown) == "herethere\nhere again\n"


def test_buffers_and_metadata_arrive(page: Page) -> None:
    """Widgets send their data so."""
    shown = page.there(
        "import comm\none = comm.create_comm(target_name='t', data={'a': 1}, metadata={'m': 2}, buffers=[b'xyz'])"
    )
    assert [message["msg_type"] for message in shown] == ["comm_open"]
    assert shown[0]["content"]["data"] == {"a": 1}
    assert shown[0]["metadata"]["m"] == 2
    assert [bytes(buffer) for buffer in shown[0]["buffers"]] == [b"xyz"]


def test_click_goes_to_the_worker(page: Page) -> None:
    """A message of the page runs the widget's code there; what it sets comes back."""
    code = (
        "import ipywidgets\nslider = ipywidgets.IntSlider()\n"
        "twice = ipywidgets.IntText()\n"
        "slider.observe(lambda change: setattr(twice, 'value', change.new * 2), 'value')"
    )
    opened = {
        message["content"]["data"]["state"]["_model_name"]: message["content"]["comm_id"]
        for message in page.there(code)
        if message["msg_type"] == "comm_open"
    }
    data = {"method": "update", "state": {"value": 21}, "buffer_paths": []}
    content = {"comm_id": opened["IntSliderModel"], "data": data}
    client = page.client
    client.shell_channel.send(client.session.msg("comm_msg", content))
    answer = page.until(
        lambda message: message["msg_type"] == "comm_msg" and message["content"]["comm_id"] == opened["IntTextModel"]
    )
    assert answer["content"]["data"]["state"] == {"value": 42}


def test_click_while_a_call_uses_the_kernel(page: Page, tmp_path: Path) -> None:
    """The notebook's cells go on; the clicks arrive after the call, in their order."""
    page.there("import comm\nheard = []\none = comm.create_comm(target_name='t')")
    name = page.there("one.on_msg(lambda message: heard.append(message['content']['data']))\nprint(one.comm_id)")
    mark = tmp_path / "on"
    wait = f"import os, time\nwhile not os.path.exists({str(mark)!r}): time.sleep(.01)\nheard.append('call')"
    page.run(f"import threading; busy = threading.Thread(target=there, args=({wait!r},)); busy.start()")
    client = page.client
    for number in (1, 2):
        content = {"comm_id": printed(name).strip(), "data": number}
        client.shell_channel.send(client.session.msg("comm_msg", content))
    assert page.said("print(busy.is_alive())") == "True\n"
    mark.touch()
    page.run("busy.join()\nwhile relay._waiting: import time; time.sleep(.01)")
    assert printed(page.there("print(heard)")) == "['call', 1, 2]\n"


def test_comms_that_end(page: Page) -> None:
    """Closed there, there is no proxy here any more; closed by the page, the worker hears of it."""
    page.there("import comm\nfirst, second = (comm.create_comm(target_name='t') for _ in range(2))")
    page.there("closed = []\nsecond.on_close(closed.append)\nfirst.close()")
    first, second = printed(page.there("print(first.comm_id)\nprint(second.comm_id)")).split()
    known = "print([name in get_ipython().kernel.comm_manager.comms for name in {}])"
    assert page.said(known.format((first, second))) == "[False, True]\n"
    client = page.client
    client.shell_channel.send(client.session.msg("comm_close", {"comm_id": second, "data": {}}))
    assert printed(page.there("print(len(closed))")) == "1\n"
    assert page.said(known.format((first, second))) == "[False, False]\n"


def test_input_is_asked_of_the_page(page: Page) -> None:
    """And refused there where the page cannot be asked."""

    def answer(message: dict[str, Any]) -> None:
        page.client.input("Ann" if message["content"]["prompt"] == "name? " else "?")

    shown = page.there("print(input('name? '))", allow_stdin=True, stdin_hook=answer)
    assert printed(shown).endswith("Ann\n")
    assert page.said("print(there('input()'))", allow_stdin=False) == "error\n"
