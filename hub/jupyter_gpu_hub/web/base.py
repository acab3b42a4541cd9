"""The base of all handlers: the visitor, the hub's check against other sites, security headers, errors.

``xsrf_cookies`` of tornado stays unset: tornado would check before it is known whether a token or a cookie identifies
the visitor. `HubOAuth` makes the check for cookies; it wants the header ``X-XSRFToken`` for each request of a page's
code, reads included.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
import time
from collections.abc import Mapping
from http.client import responses
from types import TracebackType
from typing import Any

from tornado import web

from jupyter_gpu.model import strict
from jupyter_gpu.model.message import gettext, translated
from jupyter_gpu_hub.login import HubOAuthenticated, Login
from jupyter_gpu_hub.rules import access, browser
from jupyter_gpu_hub.rules.access import Visitor
from jupyter_gpu_hub.rules.rate import RateLimiter
from jupyter_gpu_hub.rules.refusals import Refusal, of_status
from jupyter_gpu_hub.rules.translation import Language
from jupyter_gpu_hub.state import results
from jupyter_gpu_hub.state.language_packs import Languages
from jupyter_gpu_hub.state.site import Site

_log = logging.getLogger(__name__)

HUB_AUTH = "hub_auth"
"""Keys of the application's settings: the `Login`, ..."""
LIMITER = "rate_limiter"
"""... the `RateLimiter` of requests, ..."""
STRANGERS = "rate_limiter_of_strangers"
"""... that of tokens which the hub does not know, by address, ..."""
EDITS = "edits"
"""... whether this service may change limits at all, ..."""
SITE = "site"
"""... the `Site`, ..."""
LANGUAGES = "languages"
"""... and the `Languages` that there are."""

HUB_PAUSE = 5.0
"""Seconds after which it is worth asking again while the hub is away."""
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-cache",  # keep it if you like, but ask whether it still is so
}


class Handler(HubOAuthenticated, web.RequestHandler):  # type: ignore[misc] # the hub's library has no types
    """A request of a visitor whom the hub knows."""

    visitor: Visitor
    _begun = 0.0

    def initialize(self) -> None:
        """Use the one instance of the hub's login."""
        self.hub_auth = self.settings[HUB_AUTH]

    def set_default_headers(self) -> None:
        """Set headers for answers and errors alike."""
        set_headers(self)
        set_language(self)

    async def prepare(self) -> None:
        """Identify the visitor. A write asks the hub itself: a token may have been revoked a second ago."""
        self._begun = asyncio.get_running_loop().time()
        if self.request.method not in verbs(type(self)):
            raise of_status(405)
        browser.check(self.request.method or "", self.request.headers, self.request.host)
        self._check_rate(self._client())
        token = self.hub_auth.get_token(self)
        if token and not self.hub_auth.knows(token, self.hub_auth.get_session_id(self)):
            self._check_rate(f"address {self.request.remote_ip}", STRANGERS, take=False)
        model = await self.hub_auth.get_user(self, sync=False)
        # Once it is set the library does not ask again, which would block everybody meanwhile.
        self.current_user = model
        if token and model is None:
            self._check_rate(f"address {self.request.remote_ip}", STRANGERS)
        found = access.visitor(model, self.hub_auth.access_scopes) if model else None
        if found and self.request.method not in browser.READS:
            self._check_header()
            found = await self.ask_hub()
        if found is None:
            self.refuse_stranger()
        else:
            self.visitor = found

    @property
    def site(self) -> Site:
        """Return what the service knows."""
        found: Site = self.settings[SITE]
        return found

    @property
    def language(self) -> Language:
        """Return the language of the answer."""
        return language_of(self)

    async def ask_hub(self, *, anew: bool = True) -> Visitor | None:
        """Return the visitor as the hub describes the token since the request came; not ``anew``: as it did lately."""
        auth: Login = self.hub_auth
        token, session = auth.get_token(self), auth.get_session_id(self)
        model = await auth.user_for_token(token, use_cache=not anew, session_id=session, since=self._begun)
        return access.visitor(model, auth.access_scopes) if isinstance(model, Mapping) else None

    def query(self) -> dict[str, str]:
        """Return the query; raises `FieldError` for a name that is there twice or text that is no UTF-8."""
        found = {}
        for name, values in self.request.query_arguments.items():
            if len(values) > 1:
                raise strict.FieldError(gettext("The field %1 is there twice.", repr(strict.printable(name, 60))), name)
            try:
                found[name] = values[0].decode()
            except UnicodeDecodeError:
                raise strict.FieldError(
                    gettext("%1 is no UTF-8 text.", repr(strict.printable(name, 60))), name
                ) from None
        return found

    def _check_header(self) -> None:
        """Require the header of a cookie's visitor, whatever the browser calls the request."""
        if getattr(self, "_token_authenticated", False):
            return
        if self.request.headers.get("X-XSRFToken", "") != text_of(self.xsrf_token):
            raise Refusal(403, gettext("The header 'X-XSRFToken' is missing, or out of date: load the page again."))

    def refuse_stranger(self) -> None:
        """Refuse somebody whom the hub does not know, or who may not use this service; a page can log in anew."""
        raise of_status(403, loggedIn=self.current_user is not None)

    def _client(self) -> str:
        """Return the key of the bucket that this request is taken from: its token, else its address."""
        token = self.hub_auth.get_token(self)
        if not token:
            return f"address {self.request.remote_ip}"
        return "token " + hashlib.sha256(token.encode(errors="replace")).hexdigest()

    def _check_rate(self, client: str, which: str = LIMITER, *, take: bool = True) -> None:
        limiter: RateLimiter = self.settings[which]
        if wait := limiter.wait(client, time.monotonic(), take=take):
            raise Refusal(429, gettext("Too many requests; ask again in %1 s.", f"{wait:.1f}"), retry_after=wait)

    # --- errors -------------------------------------------------------------------------------------------------------

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer for the exception in ``kwargs["exc_info"]``."""
        refusal = refusal_of(status_code, kwargs.get("exc_info", (None, None, None))[1])
        self.set_status(refusal.status)
        set_retry_after(self, refusal)
        if refusal.status == 405:
            self.set_header("Allow", ", ".join(verbs(type(self))))
        self.write_refusal(refusal)

    def write_refusal(self, refusal: Refusal) -> None:
        """Send the error as JSON."""
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(translated(refusal.to_json(), self.language.words)))

    def log_exception(
        self, typ: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Log one line for what is no mistake of ours, a traceback for what is."""
        if isinstance(value, Refusal) and value.status == 503:
            _log.debug("%s %s: %s", self.request.method, self.request.path, value)  # the login tells of all together
        elif isinstance(value, results.REFUSED):
            _log.info("%s %s: %s", self.request.method, self.request.path, value)
        else:
            super().log_exception(typ, value, tb)


_unimplemented = web.RequestHandler._unimplemented_method  # noqa: SLF001 - by which tornado knows them


def verbs(handler: type[web.RequestHandler]) -> list[str]:
    """Return the methods that a handler understands."""
    return [verb for verb in handler.SUPPORTED_METHODS if getattr(handler, verb.lower()) is not _unimplemented]


def set_headers(handler: web.RequestHandler) -> None:
    """Set the headers of every answer: what a page may load and be shown in, and not which server this is."""
    for name, value in _HEADERS.items():
        handler.set_header(name, value)
    handler.set_header("Content-Security-Policy", policy(getattr(handler.settings.get(HUB_AUTH), "hub_host", "")))
    handler.clear_header("Server")


def language_of(handler: web.RequestHandler) -> Language:
    """Return the language for a request: the one that the hub has chosen, or the one that the browser likes best."""
    languages: Languages = handler.settings[LANGUAGES]
    return languages.liked(handler.request.headers.get("Accept-Language", ""))


def set_language(handler: web.RequestHandler) -> None:
    """Set the headers that tell caches and browsers of the language."""
    handler.set_header("Content-Language", language_of(handler).tag)
    handler.set_header("Vary", "Accept-Language")


def set_retry_after(handler: web.RequestHandler, refusal: Refusal) -> None:
    """Set the header with the seconds after which it is worth asking again, where they are known."""
    if refusal.retry_after:
        handler.set_header("Retry-After", str(math.ceil(refusal.retry_after)))


def policy(hub: str) -> str:
    """Return what pages may load: scripts of this service only, looks and pictures of the hub as well.

    ``hub``: the hub's own address where it is another site than this service, else empty. Bootstrap has its small
    pictures, such as the tick of a check box, inside of its style sheet.
    """
    also = f" {hub}" if hub else ""
    return (
        f"default-src 'self'; style-src 'self'{also}; font-src 'self'{also}; img-src 'self' data:{also}; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
    )


def log_request(handler: web.RequestHandler) -> None:
    """Log a request in one line, without its query, which may hold a token."""
    failed = handler.get_status() >= 500 and handler.get_status() != 503
    level = logging.ERROR if failed else logging.DEBUG
    took = 1000 * handler.request.request_time()
    _log.log(level, "%d %s %s %.1f ms", handler.get_status(), handler.request.method, handler.request.path, took)


def refusal_of(status: int, error: BaseException | None) -> Refusal:
    """Return what to answer for an exception; ``status``: what tornado would answer."""
    if isinstance(error, web.HTTPError):
        # The hub's library raises 500 when the hub does not answer, or refuses the service's own token.
        hub = status >= 500
        if hub:
            return of_status(503, retry_after=HUB_PAUSE)
        return of_status(status, error.log_message or responses.get(status, ""))
    return results.refusal_of(error)


def text_of(token: Any) -> str:
    """Return the value of the header `X-XSRFToken`, which tornado has as bytes."""
    return token.decode(errors="replace") if isinstance(token, bytes) else str(token)
