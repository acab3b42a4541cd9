"""The live connection of a page: server-sent events that say which tables changed.

The browser's ``EventSource`` cannot send the header that the hub's check wants, so pages read the stream by
``fetch``; the format is the same (https://html.spec.whatwg.org/multipage/server-sent-events.html).
"""

from __future__ import annotations

import asyncio
import json
import time

from tornado import web
from tornado.iostream import StreamClosedError

from jupyter_gpu.model import strict
from jupyter_gpu.model.message import gettext
from jupyter_gpu_hub.rules.people import UserRow
from jupyter_gpu_hub.rules.refusals import Refusal
from jupyter_gpu_hub.state.feed import TooManyPages

from .api import ApiHandler

BEAT = 20.0
"""Seconds of silence after which a comment is sent: proxies close what is silent for a minute."""


class EventsHandler(ApiHandler):
    """The stream of one page. It ends when the visitor's right does."""

    _changed: asyncio.Event | None = None
    _sent: dict[str, int] | None = None
    _own: UserRow | None = None
    _own_count = 0
    _checked = 0.0

    def on_connection_close(self) -> None:
        """Wake up, and find that the page is gone."""
        if self._changed:
            self._changed.set()

    async def get(self) -> None:
        """Send the counts of changes at once and after each change, until the page is closed."""
        strict.no_unknown(self.query(), ())
        try:
            with self.site.feed.listen(self.visitor.label) as event:
                self._changed, self._checked = event, time.monotonic()
                self.set_header("Content-Type", "text/event-stream")
                self.set_header("Cache-Control", "no-store")
                self.set_header("X-Accel-Buffering", "no")  # nginx would keep it back
                async for counts in self.site.feed.news(event, BEAT):
                    if time.monotonic() - self._checked >= BEAT and not await self._still_allowed():
                        return
                    await self._send(None if counts is None else self._visible(counts))
        except TooManyPages:
            raise Refusal(429, gettext("Too many pages follow the changes now; close some."), retry_after=30) from None
        except StreamClosedError:
            return

    async def _send(self, counts: dict[str, int] | None) -> None:
        """Send counts, unless they are those that were sent last; ``None``: say that the service is still there."""
        if counts is None:
            self.write(": still here\n\n")
        elif counts != self._sent:
            self._sent = counts
            self.write(f"event: changed\ndata: {json.dumps(counts)}\n\n")
        await self.flush()

    def _visible(self, counts: dict[str, int]) -> dict[str, int]:
        """Return the counts that the visitor may know, with ``me``: changes of the visitor's own row."""
        own = self.site.user(self.visitor.name) if self.visitor.is_user else None
        if own != self._own:
            self._own = own
            self._own_count += 1
        return {**(counts if self.visitor.may_read else {}), "me": self._own_count}

    async def _still_allowed(self) -> bool:
        """Tell whether the visitor may still see what the stream tells of; not if that can't be found out."""
        self._checked = time.monotonic()
        try:
            visitor = await self.ask_hub(anew=False)
        except (Refusal, web.HTTPError):
            return False
        return visitor is not None and (visitor.may_read or not self.visitor.may_read)
