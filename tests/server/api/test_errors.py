"""Every error below our prefix is JSON with a reason that programs know and a sentence for people."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest
from jupyter_server.serverapp import ServerApp

from jupyter_gpu.model.errors import from_json
from jupyter_gpu.server.viewers import Viewers
from tests.server.conftest import API, Call


@pytest.mark.parametrize(
    ("method", "path", "code", "reason"),
    [
        ("GET", "nothing", 404, "InvalidRequest"),
        ("GET", "status/more", 404, "InvalidRequest"),
        ("PUT", "nothing", 404, "InvalidRequest"),
        ("PUT", "status", 405, "InvalidRequest"),
        ("DELETE", "status", 405, "InvalidRequest"),
        ("GET", "request", 405, "InvalidRequest"),
        ("POST", "request", 405, "InvalidRequest"),
        ("PUT", "stream", 405, "InvalidRequest"),
        ("GET", "stream", 426, "InvalidRequest"),
    ],
)
async def test_wrong_address_or_method_is_explained(call: Call, method: str, path: str, code: int, reason: str) -> None:
    """The answer has the status code, the reason and a message; 405 lists what is allowed."""
    answer = await call(path, method=method)
    assert (answer.code, answer.body["reason"], answer.body["details"]) == (code, reason, answer.body["details"])
    assert answer.body["message"].endswith((".", ")"))
    assert answer.headers["Content-Type"] == "application/json"
    assert from_json(answer.body).reason == reason
    if code == 405:
        verbs = answer.headers["Allow"].split(", ")
        assert method not in verbs
        assert {"status": "GET", "request": "PUT", "stream": "GET"}[path] in verbs


async def test_unforeseen_error_is_logged_and_hidden_from_the_client(
    call: Call, viewers: Viewers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The answer is 500 without a traceback or the error's text; the log has both."""

    async def fail() -> None:
        raise RuntimeError("secret-of-the-inside")

    monkeypatch.setattr(viewers, "now", fail)
    answer = await call("status")
    assert (answer.code, answer.body["reason"]) == (500, "GpuError")
    assert "secret" not in json.dumps(answer.body)
    assert "Traceback" not in json.dumps(answer.body)
    assert any(record.exc_info and "secret-of-the-inside" in str(record.exc_info[1]) for record in caplog.records)


async def raw(app: ServerApp, head: list[str], pieces: list[bytes]) -> bytes:
    """Send bytes as no HTTP library would, and return what comes back until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", app.port)
    address = "/".join([app.base_url.rstrip("/"), *API, "request"])
    lines = [f"PUT {address} HTTP/1.1", "Host: localhost", f"Authorization: token {app.identity_provider.token}"]
    writer.write("\r\n".join([*lines, "Content-Type: application/json", *head, "", ""]).encode())

    async def send() -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()

    sending = asyncio.create_task(send())
    answer = b""
    try:
        while chunk := await reader.read(65536):
            answer += chunk
    except ConnectionError:
        pass
    await asyncio.gather(sending, return_exceptions=True)
    writer.close()
    return answer


@pytest.fixture
def listening(http_server: object, jp_serverapp: ServerApp) -> ServerApp:
    """Return the address of the listening server."""
    return jp_serverapp


async def test_body_of_10_megabytes_is_refused(put: Call, call: Call) -> None:
    """413 is delivered though the client sends everything first, and the server continues."""
    answer = await put(b'{"gpus": 1, "model": ["' + b"x" * 10_000_000 + b'"]}')
    assert (answer.code, answer.body["reason"]) == (413, "TooLarge")
    assert "16,384 bytes" in answer.body["message"]
    assert (await call("status")).body["requested"] is None


async def test_expect_100_continue_is_refused_before_the_body(listening: ServerApp) -> None:
    """With ``Expect: 100-continue`` the client learns of the refusal before the first byte of the body."""
    answer = await raw(listening, ["Content-Length: 10000000", "Expect: 100-continue"], [])
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"100" not in answer.split(b"\r\n", 1)[0]


async def test_body_that_declares_a_gigabyte_is_refused_at_once(listening: ServerApp) -> None:
    """The server does not wait for a body that it would never read."""
    answer = await asyncio.wait_for(raw(listening, ["Content-Length: 400000000"], [b"{"]), 10)
    assert answer.startswith(b"HTTP/1.1 413 ")


async def test_endless_chunked_body_is_cut_off(listening: ServerApp) -> None:
    """A chunked body that does not end is cut off long before it fills the memory."""
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    answer = await asyncio.wait_for(raw(listening, ["Transfer-Encoding: chunked"], [chunk] * 1000), 20)
    # The client may see only the closed connection: it was still sending. Either way the server did not read on.
    assert answer == b"" or answer.startswith(b"HTTP/1.1 413 ")


async def test_answers_are_not_cached(call: Call) -> None:
    """An answer is true only now."""
    answer = await call("status")
    assert answer.headers["Cache-Control"] == "no-store"
    assert "Etag" not in answer.headers


async def test_client_error_is_one_log_line(put: Call, caplog: pytest.LogCaptureFixture) -> None:
    """A mistake of a client causes no traceback."""
    caplog.clear()
    await put({"gpus": -1})
    assert not [record for record in caplog.records if record.exc_info]
    assert [record for record in caplog.records if "negative" in record.getMessage() and record.levelno == logging.INFO]
