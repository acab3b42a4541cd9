"""``jupyter gpu watch``: the GPUs of a server, live. `watch_view` has the layout, `screen` the terminal. Two threads
ask the server, one for each change and one for the load; the main thread shows the answers. Without a terminal there is
one line for each change, and no load.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from . import codes, options

if TYPE_CHECKING:
    from queue import SimpleQueue

    from jupyter_gpu.kernel.client import Client
    from jupyter_gpu.kernel.follower import ViewFollower
    from jupyter_gpu.model.errors import GpuError
    from jupyter_gpu.model.view import Sample, View

    News = View | Sample | GpuError | None
    """None: it is to be drawn again."""
    Inbox = SimpleQueue[News]

_INTERVAL = 1.0
"""Seconds between two samples of the load."""


def add(commands: options.Commands) -> None:
    """Add the command."""
    watch = options.command(
        commands,
        "watch",
        "show the GPUs live, until Ctrl-C",
        parents=[options.server(), options.output("print each change as a line of JSON")],
        epilog="On a terminal it fills the window. Into a pipe or a file it writes a line for each change. NO_COLOR "
        "switches colours off.",
    )
    watch.set_defaults(run=_watch, reads_only=True)


def _watch(given: argparse.Namespace) -> int:
    from queue import SimpleQueue

    from jupyter_gpu.kernel.client import get_status
    from jupyter_gpu.kernel.follower import ViewFollower

    client = options.client(given)
    first = client.send(get_status())  # where there is no server, say so and end
    follower = ViewFollower(lambda: client)
    inbox: Inbox = SimpleQueue()
    inbox.put(first)
    _start(lambda: _bring_views(follower, first, inbox))
    try:
        if sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and not given.json:
            _start(lambda: _bring_samples(client, inbox))
            _fill(client.server.url, inbox, sys.stdout)
        else:
            _write(inbox, as_json=given.json)
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        follower.end()
    return codes.DONE


def _start(work: Callable[[], None]) -> None:
    threading.Thread(target=work, daemon=True).start()


def _bring_views(follower: ViewFollower, first: View, inbox: Inbox) -> None:
    for new in follower.views(first):
        inbox.put(new)


def _bring_samples(client: Client, inbox: Inbox) -> None:
    from jupyter_gpu.model.errors import GpuError

    while True:
        with contextlib.suppress(GpuError):  # why the server is away, the other thread says
            inbox.put(client.sample())
        time.sleep(_INTERVAL)


def _write(inbox: Inbox, *, as_json: bool) -> None:
    """Write a line for each change, as long as the output is open."""
    said = ""
    while not _is_deaf():
        new = _next(inbox)
        text = said if new is None else _told(new, as_json=as_json)
        if text != said:
            print(text if as_json else f"{time.strftime('%H:%M:%S')}  {text}", flush=True)
            said = text


def _is_deaf() -> bool:
    """Tell whether the reader of a pipe has gone, as `head` does; the next change may be hours away."""
    import select

    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _told(new: News, *, as_json: bool) -> str:
    import json

    from jupyter_gpu.cli.rules.watch_view import change
    from jupyter_gpu.model.errors import GpuError
    from jupyter_gpu.model.sentence import sentence
    from jupyter_gpu.model.view import View

    if isinstance(new, GpuError):
        return json.dumps(new.to_json(), ensure_ascii=False) if as_json else str(new)
    assert isinstance(new, View)
    return json.dumps({**new.to_json(), "sentence": sentence(new)}, ensure_ascii=False) if as_json else change(new)


def _fill(url: str, inbox: Inbox, out: TextIO) -> None:
    """Show the screen until Ctrl-C."""
    from jupyter_gpu.cli.rules import watch_view
    from jupyter_gpu.common import screen
    from jupyter_gpu.model.errors import GpuError
    from jupyter_gpu.model.view import View

    view: View | None = None
    sample: Sample | None = None
    lost, shown = "", ""
    with screen.taken(out, lambda: inbox.put(None)):
        while True:
            new = _next(inbox)
            if isinstance(new, GpuError):
                lost = f"{new} It is tried again."
            elif isinstance(new, View):
                view, lost = new, ""
            elif new is not None:
                sample = new
            else:
                shown = ""
            assert view is not None  # it was put in first
            clock = time.strftime("%H:%M:%S")
            rows = watch_view.lines(f"GPUs of {url}", clock, view, sample, lost, screen.style(out))
            text = "\x1b[H" + "\x1b[K\r\n".join(rows) + "\x1b[K\x1b[J"
            if text != shown:
                out.write(text)
                out.flush()
                shown = text


def _next(inbox: Inbox) -> News:
    """Wait for news, a second at most, as the clock goes on while the server is away."""
    from queue import Empty

    try:
        return inbox.get(timeout=_INTERVAL)
    except Empty:
        return None
