"""Access: authentication, authorisation, XSRF and origin, on every verb of every handler."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import urlencode

import pytest
from jupyter_server.auth import Authorizer, User
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.serverapp import ServerApp
from tornado.httpclient import HTTPClientError
from tornado.web import RequestHandler
from traitlets.config import Config

from jupyter_gpu.common.later import Later
from jupyter_gpu.server.app import GpuExtension
from tests.server.conftest import Answer, Call, Connect, Fetch

NOBODY = {"Authorization": ""}
STRANGER = {"Authorization": "token 0123456789abcdef"}
JSON = {"Content-Type": "application/json"}


def asked(settings: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the questions that the authorizer of this server has been asked."""
    questions: list[tuple[str, str]] = settings.setdefault("asked_of_the_authorizer", [])
    return questions


class Granting(Authorizer):
    """An authorizer that allows some actions, and records its questions."""

    granted: tuple[str, ...] = ()

    def is_authorized(self, handler: JupyterHandler, user: User, action: str, resource: str) -> bool:
        """See the base class."""
        asked(handler.settings).append((action, resource))
        return action in self.granted


class Reader(Granting):
    """An authorizer that allows only reading."""

    granted = ("read",)


class Spectator(Granting):
    """An authorizer that allows reading and the stream."""

    granted = ("read", "execute")


@pytest.mark.parametrize("headers", [NOBODY, STRANGER], ids=["no token", "wrong token"])
@pytest.mark.parametrize(
    "path", ["status", "sample", "usage", "workers", "doctor", "request", "reservations/a", "stream", "nothing", ""]
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "POST", "PATCH", "DELETE"])
async def test_anonymous_request_is_refused(call: Call, path: str, method: str, headers: dict[str, str]) -> None:
    """Every verb of every path answers an unknown user 403 as JSON, and reveals nothing."""
    answer = await call(path, method=method, headers={**headers, **JSON})
    assert answer.code == 403
    assert method == "HEAD" or answer.body["reason"] == "NotPermitted"


class TestOldDefault:
    """A server that lets anybody reach handlers without checks, as servers do by default."""

    @pytest.fixture
    def server_config(self) -> dict[str, Any]:
        return {"allow_unauthenticated_access": True}

    @pytest.mark.parametrize(
        ("method", "path"), [("GET", "status"), ("PUT", "request"), ("GET", "x"), ("GET", "stream")]
    )
    async def test_anonymous_request_is_refused(self, call: Call, method: str, path: str) -> None:
        """Our handlers check the user themselves."""
        answer = await call(path, method=method, headers={**NOBODY, **JSON})
        assert (answer.code, answer.body["reason"]) == (403, "NotPermitted")


@pytest.mark.parametrize("headers", [NOBODY, STRANGER], ids=["no token", "wrong token"])
async def test_anonymous_stream_is_refused(connect: Connect, headers: dict[str, str]) -> None:
    """The handshake of an unknown user is refused."""
    with pytest.raises(HTTPClientError) as error:
        await connect(headers=headers)
    assert error.value.code == 403


async def test_stream_of_another_site_is_refused(
    connect: Connect, jp_fetch: Fetch, jp_serverapp: ServerApp, jp_http_port: int
) -> None:
    """Browsers send cookies with a WebSocket of any page, so the page's origin is checked."""
    host = f"127.0.0.1:{jp_http_port}"  # as in the login: the cookie's name has it
    cookie = {**NOBODY, "Cookie": (await log_in(jp_fetch, jp_serverapp)).header, "Host": host}
    with pytest.raises(HTTPClientError) as error:
        await connect(headers={**cookie, "Origin": "https://elsewhere.example"})
    assert error.value.code == 403
    own = await connect(headers={**cookie, "Origin": f"http://{host}"})
    message = await own.read()
    assert message is not None
    assert message["type"] == "view"


async def test_request_of_another_site_is_refused(call: Call, jp_fetch: Fetch, jp_serverapp: ServerApp) -> None:
    """REST checks the origin too. With a token the client is a program and not a page, so only a cookie is sent."""
    cookie = await log_in(jp_fetch, jp_serverapp)
    answer = await call("status", headers={**NOBODY, "Cookie": cookie.header, "Origin": "https://elsewhere.example"})
    assert answer.code == 404


class Cookies:
    """The cookies that a browser has after the login page."""

    def __init__(self, jar: SimpleCookie) -> None:
        self.header = "; ".join(f"{name}={morsel.value}" for name, morsel in jar.items())
        self.xsrf = jar["_xsrf"].value


async def log_in(fetch: Fetch, app: ServerApp) -> Cookies:
    """Log in through the real login page, as a browser does."""
    jar: SimpleCookie = SimpleCookie()
    page = await fetch("login", headers=dict(NOBODY))
    for line in page.headers.get_list("Set-Cookie"):
        jar.load(line)
    form = {"password": app.identity_provider.token, "_xsrf": jar["_xsrf"].value}
    cookie = "; ".join(f"{name}={morsel.value}" for name, morsel in jar.items())
    answer = await fetch(
        "login",
        method="POST",
        body=urlencode(form),
        headers={**NOBODY, "Cookie": cookie, "Content-Type": "application/x-www-form-urlencoded"},
        follow_redirects=False,
        raise_error=False,
    )
    assert answer.code == 302
    for line in answer.headers.get_list("Set-Cookie"):
        jar.load(line)
    return Cookies(jar)


async def put_with(call: Call, headers: dict[str, str]) -> Answer:
    """Send a PUT as a browser with cookies sends it."""
    return await call("request", method="PUT", body=b'{"gpus": 1}', headers={**NOBODY, **JSON, **headers})


async def test_cookie_needs_xsrf_header_to_write(call: Call, jp_fetch: Fetch, jp_serverapp: ServerApp) -> None:
    """A cookie alone may read; to change something a page must send the XSRF header."""
    cookies = await log_in(jp_fetch, jp_serverapp)
    assert (await call("status", headers={**NOBODY, "Cookie": cookies.header})).code == 200
    bare = await put_with(call, {"Cookie": cookies.header})
    assert (bare.code, bare.body["reason"]) == (403, "NotPermitted")
    assert "_xsrf" in bare.body["message"]
    wrong = await put_with(call, {"Cookie": cookies.header, "X-XSRFToken": "0" * 32})
    assert wrong.code == 403
    assert (await call("status")).body["requested"] is None
    right = await put_with(call, {"Cookie": cookies.header, "X-XSRFToken": cookies.xsrf})
    assert (right.code, right.body["amounts"]["requested"]) == (200, 1000)


class TestReader:
    """An authorizer that allows only reading."""

    @pytest.fixture
    def server_config(self) -> dict[str, Any]:
        return {"authorizer_class": Reader}

    async def test_get_is_allowed(self, call: Call, jp_serverapp: ServerApp) -> None:
        """GET is the action read, of the resource jupyter_gpu."""
        assert (await call("status")).code == 200
        assert asked(jp_serverapp.web_app.settings) == [("read", "jupyter_gpu")]
        assert (await call("sample")).code == 200
        assert asked(jp_serverapp.web_app.settings) == [("read", "jupyter_gpu")] * 2

    async def test_put_is_refused(self, put: Call, call: Call, jp_serverapp: ServerApp) -> None:
        """PUT is the action write; nothing is changed."""
        answer = await put({"gpus": 1})
        assert (answer.code, answer.body["reason"]) == (403, "NotPermitted")
        assert asked(jp_serverapp.web_app.settings) == [("write", "jupyter_gpu")]
        assert (await call("status")).body["requested"] is None

    async def test_stream_is_refused(self, connect: Connect, jp_serverapp: ServerApp) -> None:
        """The stream is the action execute."""
        with pytest.raises(HTTPClientError) as error:
            await connect()
        assert error.value.code == 403
        assert asked(jp_serverapp.web_app.settings) == [("execute", "jupyter_gpu")]


class TestSpectator:
    """An authorizer that allows reading and the stream."""

    @pytest.fixture
    def server_config(self) -> dict[str, Any]:
        return {"authorizer_class": Spectator}

    async def test_stream_is_allowed(self, connect: Connect, put: Call) -> None:
        """A user with the right to execute may open the stream, though not write."""
        message = await (await connect()).read()
        assert message is not None
        assert message["type"] == "view"
        assert (await put({"gpus": 1})).code == 403


VERBS = [verb.lower() for verb in RequestHandler.SUPPORTED_METHODS]


def our_handlers(extension: GpuExtension) -> list[type[RequestHandler]]:
    """Return the handlers of all routes that the extension has registered; for a stand-in, the handler behind it."""
    return [found.meant() if issubclass(found, Later) else found for _, found in extension.handlers]


async def test_every_verb_is_authenticated_and_authorized(extension: GpuExtension) -> None:
    """A new verb must be decorated: both checks are found by what they wrap."""
    seen = 0
    for handler in our_handlers(extension):
        assert vars(handler).get("auth_resource", handler.auth_resource) == "jupyter_gpu"  # type: ignore[attr-defined]
        for verb in VERBS:
            method = vars(handler).get(verb)
            if method is None:
                continue
            seen += 1
            source = inspect.getsource(inspect.unwrap(method))
            if verb == "get" and handler.__name__ == "StreamHandler":
                assert "@ws_authenticated" in source
                assert 'is_authorized(self, self.current_user, "execute", self.auth_resource)' in source
            else:
                assert "@web.authenticated" in source
                assert "@authorized" in source
            assert not getattr(method, "__allow_unauthenticated", False)
    assert seen == 13


def test_server_inspection_finds_no_unchecked_handler(
    jp_configurable_serverapp: Callable[..., ServerApp], jp_server_config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    """The server's own inspection, made when access without a login is forbidden, lists none of our handlers."""
    jp_configurable_serverapp(config=jp_server_config)
    warned = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert not [text for text in warned if "jupyter_gpu" in text or "jupyter-gpu" in text]
