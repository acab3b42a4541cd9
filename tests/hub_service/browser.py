"""A client of the hub and its services: a browser with cookies and the headers that browsers add, or a program."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from http.cookiejar import CookieJar
from typing import Any

from tests.hub import PASSWORD, SECONDS

FETCH = {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Dest": "empty"}
"""Headers of a request by a page's code."""
NAVIGATE = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "none", "Sec-Fetch-Dest": "document"}
"""Headers of a page that a person opens."""


@dataclass(frozen=True)
class Answer:
    """The end of a request."""

    status: int
    headers: Message
    text: str
    url: str

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.text)


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        """Say so."""


class Browser:
    """A browser; ``follow``: whether it follows redirects."""

    def __init__(self, hub: str) -> None:
        self.hub = hub
        self.cookies = CookieJar()
        cookies = urllib.request.HTTPCookieProcessor(self.cookies)
        self._follow = urllib.request.build_opener(cookies)
        self._stay = urllib.request.build_opener(cookies, _Stay)

    def log_in(self, name: str) -> Browser:
        """Log in to the hub by its form."""
        self.open("/hub/login")
        form = {"username": name, "password": PASSWORD, "_xsrf": self.cookie("_xsrf", "/hub/")}
        answer = self.send("POST", "/hub/login", urllib.parse.urlencode(form).encode(), NAVIGATE)
        assert answer.status in (200, 302), answer.text[:2000]
        return self

    def open(self, path: str) -> Answer:
        """Open a page, as a person does."""
        return self.send("GET", path, None, NAVIGATE, follow=True)

    def fetch(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None, *, xsrf: bool = True
    ) -> Answer:
        """Send a request as the service's page does by ``fetch``."""
        own = {**FETCH, **({"X-XSRFToken": self.cookie("_xsrf", "/services/gpu/")} if xsrf else {})}
        data = None if body is None else json.dumps(body).encode()
        kind = {} if body is None else {"Content-Type": "application/json"}
        return self.send(method, path, data, {**own, **kind, **(headers or {})})

    def send(
        self, method: str, path: str, data: bytes | None, headers: Mapping[str, str], *, follow: bool = False
    ) -> Answer:
        """Send a request with these headers and the cookies."""
        return _send(self._follow if follow else self._stay, method, self.hub + path, data, headers)

    def cookie(self, name: str, path: str) -> str:
        """Return the value of a cookie; empty: there is none."""
        return next((item.value or "" for item in self.cookies if (item.name, item.path) == (name, path)), "")


class Program:
    """A program with a token."""

    def __init__(self, hub: str, token: str) -> None:
        self.hub = hub
        self.token = token
        self._opener = urllib.request.build_opener(_Stay)

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        data: bytes | None = None,
    ) -> Answer:
        """Send a request; ``data`` in place of ``body`` as it is."""
        if body is not None:
            data = json.dumps(body).encode()
        kind = {"Content-Type": "application/json"} if data is not None else {}
        own = {"Authorization": f"token {self.token}", **kind, **(headers or {})}
        return _send(self._opener, method, self.hub + path, data, {key: text for key, text in own.items() if text})

    def gpu(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
        """Send a request to the service's REST."""
        return self.send(method, f"/services/gpu/api/v1/{path}", body, headers)

    def hub_api(self, method: str, path: str, body: Any = None) -> Any:
        """Return the answer of the hub's own REST."""
        answer = self.send(method, f"/hub/api/{path}", body)
        assert answer.status < 300, answer.text[:2000]
        return answer.json if answer.text else None


def _send(
    opener: urllib.request.OpenerDirector, method: str, url: str, data: bytes | None, headers: Mapping[str, str]
) -> Answer:
    request = urllib.request.Request(url, data, dict(headers), method=method)
    try:
        with opener.open(request, timeout=SECONDS) as answer:
            return Answer(answer.status, answer.headers, answer.read().decode(), answer.url)
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.headers, error.read().decode(), url)
