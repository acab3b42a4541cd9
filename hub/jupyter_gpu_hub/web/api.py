"""The base of the REST handlers: JSON in, JSON out, a limit on the body, rights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tornado import web

from jupyter_gpu.model import strict
from jupyter_gpu.model.message import gettext, translated
from jupyter_gpu_hub.rules.refusals import Refusal, of_status

from .base import EDITS, Handler

MAX_BODY = 64 * 1024
"""Bytes of an ordinary body."""


class ApiHandler(Handler):
    """A REST handler. It never redirects: a program can't log in, and a page's code would follow in circles."""

    most = MAX_BODY
    """Bytes that a body may have."""

    def get_login_url(self) -> str:
        """Refuse instead: ask for it again once the visitor has logged in."""
        raise of_status(403)

    def body(self) -> Mapping[str, Any]:
        """Return the JSON object of the body; raises `FieldError`."""
        return strict.an_object(strict.loads(self.request.body, self.most), "The body")

    def answer(self, body: Any, status: int = 200) -> None:
        """Send ``body`` as JSON, in the visitor's language; tornado adds an ETag and answers 304 to one who has it."""
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        words = self.language.words
        self.finish(json.dumps(translated(body, words) if words else body, ensure_ascii=False))

    def need_reader(self) -> None:
        """Refuse a visitor who may not see what others have."""
        if not self.visitor.may_read:
            raise Refusal(
                403, gettext("Only people who look after GPU limits may see this. Your own are at 'api/v1/me'.")
            )

    def need_editor(self) -> None:
        """Refuse a visitor who may not change limits."""
        if not self.visitor.may_edit:
            raise Refusal(
                403, gettext("You may not change limits: that takes the scope custom:gpu:limits, or a hub admin.")
            )
        if not self.settings[EDITS]:
            raise Refusal(403, gettext("Limits are changed elsewhere here (the chart's hub.edit is off)."))

    def user(self) -> str:
        """Return the name of the user; refuses services, which have no limits."""
        if not self.visitor.is_user:
            raise Refusal(403, gettext("This is a token of a service, which has no GPUs and no limit of its own."))
        return self.visitor.name


class NothingHere(ApiHandler):
    """The answer at an address that there is not."""

    async def prepare(self) -> None:
        """Answer so to every client."""
        raise web.HTTPError(404)
