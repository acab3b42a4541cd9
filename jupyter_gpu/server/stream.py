"""The WebSocket ``<base>/jupyter-gpu/api/v1/stream``: views, history and samples for one browser tab.

A client that reads slowly costs one view and a few samples of memory: a newer view replaces one that was not sent yet,
and the oldest samples are dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable
from typing import Any

from jupyter_core.utils import ensure_async
from jupyter_server.auth.decorator import ws_authenticated
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from tornado import web, websocket

from jupyter_gpu.model import strict
from jupyter_gpu.model.errors import GpuError, InvalidRequest, TooLarge

from .handlers import RESOURCE, BaseHandler
from .viewers import Version, Viewers

MAX_MESSAGE_BYTES = 4096
"""Limit of a message from a client."""
SAMPLES_KEPT = 16
"""The most samples that wait for a slow client."""

_POLICY_VIOLATION, _TRY_AGAIN_LATER, _GOING_AWAY = 1008, 1013, 1001  # RFC 6455 §7.4.1 and the registry after it


class Outbox:
    """The messages to be sent to one client, in order of importance; bounded. No I/O."""

    def __init__(self) -> None:
        self._view: str | None = None
        self._history: str | None = None
        self._samples: deque[str] = deque(maxlen=SAMPLES_KEPT)
        self._version: Version = (-1, 0)
        self._filled = asyncio.Event()

    def put_view(self, version: Version, text: str) -> None:
        """Put a view in place of an older one; an older view than the last is ignored."""
        if version > self._version:
            self._version, self._view = version, text
            self._filled.set()

    def put_history(self, text: str) -> None:
        """Put a history, to be sent after the view; the samples before it are in it."""
        self._history = text
        self._samples.clear()
        self._filled.set()

    def put_sample(self, text: str) -> None:
        """Put a sample, in place of the oldest one if many wait."""
        self._samples.append(text)
        self._filled.set()

    def take(self) -> str | None:
        """Take the next message; ``None`` if there is nothing to send."""
        if self._view is not None:
            text, self._view = self._view, None
        elif self._history is not None:
            text, self._history = self._history, None
        elif self._samples:
            text = self._samples.popleft()
        else:
            self._filled.clear()
            return None
        return text

    async def filled(self) -> None:
        """Wait until there is something to take."""
        await self._filled.wait()


def read_message(message: str | bytes) -> bool:
    """Tell whether the client wants samples: ``{"type":"samples","on":true}`` is its only message.

    Raises `InvalidRequest`.
    """
    try:
        fields = strict.an_object(strict.loads(message, MAX_MESSAGE_BYTES), "message")
        strict.no_unknown(fields, ("type", "on"))
        strict.required(fields, "type", strict.one_of("samples"))
        return strict.required(fields, "on", strict.boolean)
    except strict.OversizeError as error:
        raise TooLarge(str(error)) from None
    except strict.FieldError as error:
        raise InvalidRequest(str(error), field=error.field) from None


class StreamHandler(BaseHandler, WebSocketMixin, websocket.WebSocketHandler, JupyterHandler):
    """One connection; a `Viewer`."""

    auth_resource = RESOURCE
    _joined: Viewers | None = None
    _sender: asyncio.Task[None] | None = None

    @property
    def max_message_size(self) -> int:
        """Frames beyond that end the connection before they are read to their end."""
        return 2 * MAX_MESSAGE_BYTES  # a little more than allowed gets an answer that says so

    @ws_authenticated
    async def get(self, *args: Any, **kwargs: Any) -> None:
        """Check user, rights and origin; then speak WebSocket."""
        allowed = await ensure_async(
            self.authorizer.is_authorized(self, self.current_user, "execute", self.auth_resource)
        )
        if not allowed:
            raise web.HTTPError(403)
        if self.request.headers.get("Upgrade", "").lower() != "websocket":
            self.set_header("Upgrade", "websocket")
            raise web.HTTPError(426)
        if not self.check_origin():
            raise web.HTTPError(403, "the page comes from another site")
        answer: Awaitable[None] | None = super().get(*args, **kwargs)
        if answer is not None:
            await answer

    async def open(self, *args: str, **kwargs: str) -> None:
        """Show the view, the history, and then each change. No message or close is handled before this ends."""
        super().open(*args, **kwargs)  # starts the pings
        self._outbox = Outbox()
        try:
            viewers = self._joined = await self.viewers()
            await viewers.join(self)
        except GpuError as error:
            self._refuse(error, _TRY_AGAIN_LATER)
            return
        self._outbox.put_history(viewers.sampler.history.message())
        self._sender = asyncio.get_running_loop().create_task(self._send())
        viewers.sampler.watch(self, True)

    def on_message(self, message: str | bytes) -> None:
        """Turn samples on or off; anything else ends the connection."""
        try:
            on = read_message(message)
        except InvalidRequest as error:
            self._refuse(error, _POLICY_VIOLATION)
            return
        if self._joined:
            self._joined.sampler.watch(self, on)

    def on_close(self) -> None:
        """Leave, and stop the pings."""
        self._leave()
        if self.ping_callback:
            self.ping_callback.stop()

    def show_view(self, version: Version, text: str) -> None:
        """See `Viewer`."""
        self._outbox.put_view(version, text)

    def show_sample(self, text: str) -> None:
        """See `Viewer`."""
        self._outbox.put_sample(text)

    def end(self) -> None:
        """See `Viewer`."""
        self.close(_GOING_AWAY, "The server is stopping.")

    async def _send(self) -> None:
        """Send one message at a time: the next when the operating system has taken the last."""
        with contextlib.suppress(websocket.WebSocketClosedError):
            while True:
                await self._outbox.filled()
                while (text := self._outbox.take()) is not None:
                    await self.write_message(text)

    def _leave(self) -> None:
        if self._joined:
            self._joined.leave(self)
        if self._sender:
            self._sender.cancel()
        self._joined = self._sender = None

    def _refuse(self, error: GpuError, code: int) -> None:
        self._leave()
        with contextlib.suppress(websocket.WebSocketClosedError):
            self.write_message(strict.dumps({"type": "error", "reason": error.reason, "message": error.message}))
        self.close(code, error.reason)
