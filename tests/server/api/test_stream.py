"""The WebSocket: view on connect, history, samples; slow clients, bad messages, the end."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jupyter_server.serverapp import ServerApp

from jupyter_gpu.model.errors import InvalidRequest, TooLarge
from jupyter_gpu.model.history import MAX_HISTORY_BYTES, SampleHistory
from jupyter_gpu.model.share import ShareUse
from jupyter_gpu.model.view import GpuLoad, Sample, View
from jupyter_gpu.server.app import GpuExtension
from jupyter_gpu.server.stream import MAX_MESSAGE_BYTES, SAMPLES_KEPT, Outbox, StreamHandler, read_message
from jupyter_gpu.server.viewers import Viewers
from tests.server.conftest import Call, Connect


async def until(condition: Any) -> None:
    """Wait until ``condition()``; fail after a minute."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


async def test_stream_begins_with_view_history_samples(connect: Connect, call: Call, put: Call) -> None:
    """A new tab gets these messages in this order, and the same view as REST gives."""
    await put({"gpus": 2})
    before = (await call("status")).body
    stream = await connect()
    first, second, third = await stream.read_kinds("sample")
    assert first == {"type": "view", "view": {**before, "version": first["view"]["version"]}}
    assert second == {"type": "history", "interval": 0.1, "points": []}
    assert third["type"] == "sample"
    assert set(third["sample"]["gpus"]) == {share["uuid"] for share in first["view"]["attached"]["shares"]}
    told = {"utilisation", "memory", "temperature", "power"}
    assert all(set(load) == told for load in third["sample"]["gpus"].values())


async def test_every_change_reaches_every_tab(connect: Connect, put: Call) -> None:
    """Two tabs get the same views, in order."""
    tabs = [await connect(), await connect()]
    for tab in tabs:
        await tab.read_until("view")
    view = (await put({"gpus": 3})).body
    for tab in tabs:
        seen = [await tab.read_until("view")]
        while seen[-1]["view"]["version"] < view["version"]:
            seen.append(await tab.read_until("view"))
        versions = [message["view"]["version"] for message in seen]
        assert versions == sorted(set(versions))
        assert seen[-1]["view"] == view


async def test_later_tab_gets_the_history(connect: Connect, put: Call) -> None:
    """The server keeps the history, so a reload loses nothing."""
    await put({"gpus": 1})
    first = await connect()
    taken = [(await first.read_until("sample"))["sample"] for _ in range(3)]
    history = (await (await connect()).read_until("history"))["points"]
    assert history[: len(taken)] == taken


class TestShortHistory:
    """A history of half a second."""

    @pytest.fixture
    def gpu_config(self) -> dict[str, Any]:
        return {"history": 0.5, "sample_interval": 0.1}

    async def test_oldest_samples_are_dropped(self, connect: Connect) -> None:
        """The history has five points and no more."""
        stream = await connect()
        for _ in range(8):
            await stream.read_until("sample")
        assert len((await (await connect()).read_until("history"))["points"]) == 5


class TestLongHistory:
    """A history of 10,000 samples with eight time shares."""

    @pytest.fixture
    def gpu_config(self) -> dict[str, Any]:
        return {"history": 10_000, "sample_interval": 3600.0}

    async def test_history_is_at_most_a_megabyte_and_encoded_once(
        self, connect: Connect, viewers: Viewers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its size is bounded whatever a sample holds; tabs share one text, and nothing is encoded for it."""
        sampler = viewers.sampler
        monkeypatch.setattr(sampler, "watch", lambda *_: None)  # no sample of its own
        sampler.history = SampleHistory(1.0, 10_000)
        uuids = [f"GPU-{number:032x}" for number in range(8)]
        for second in range(10_000):
            total = second * 10**6
            shares = {u: ShareUse(u, 250, 250, *(total,) * 9, 2**21, None, 3, 100_000, 0.5, "why " * 20) for u in uuids}
            sampler.history.push(Sample(float(second), {u: GpuLoad(50.0, 2**33) for u in uuids}, shares))
        begun = time.perf_counter()
        text = sampler.history.message()
        took = time.perf_counter() - begun
        plain = time.perf_counter()
        json.dumps(json.loads(text))
        assert took < (time.perf_counter() - plain) / 4  # what encoding only these anew would take
        assert len(text) <= MAX_HISTORY_BYTES + 100
        assert sampler.history.message() is text
        for _ in range(2):
            assert (await (await connect()).read_until("history")) == json.loads(text)


async def test_samples_are_taken_once_and_only_for_viewers(
    connect: Connect, viewers: Viewers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no sample before the first viewer and after the last; two viewers cost no more than one."""
    taken = 0
    sample = viewers.backend.sample

    async def counted() -> Any:
        nonlocal taken
        taken += 1
        return await sample()

    monkeypatch.setattr(viewers.backend, "sample", counted)
    await asyncio.sleep(0.3)
    assert taken == 0
    tabs = [await connect(), await connect()]
    seen = [(await tab.read_until("sample"))["sample"]["time"] for tab in tabs for _ in range(3)]
    tabs[0].samples(False)
    tabs[1].samples(False)
    await until(lambda: not viewers.sampler.watched)
    await until(lambda: not viewers.sampler.taking)
    points = [point.sample for point in viewers.sampler.history]
    assert taken == len(points)
    assert set(seen) <= {point.time for point in points}
    after = taken
    await asyncio.sleep(0.3)
    assert taken == after
    assert not viewers.sampler.scheduled
    tabs[1].samples(True)
    await tabs[1].read_until("sample")
    assert taken > after


async def test_first_message_of_a_hidden_tab_is_read(connect: Connect, viewers: Viewers) -> None:
    """It is read before the tab has read a single message."""
    stream = await connect()
    stream.samples(False)
    sampler = viewers.sampler
    await stream.read_until("history")
    await until(lambda: not sampler.watched)


async def test_tab_closed_before_its_first_message_leaves_nothing(
    connect: Connect, viewers: Viewers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No viewer and no timer remain if the tab closes while the server still looks up names."""
    named, found = viewers.named, asyncio.Event()

    async def slow(view: View) -> View:
        await found.wait()
        return await named(view)

    monkeypatch.setattr(viewers, "named", slow)
    stream = await connect()
    await until(lambda: viewers.streams)
    stream.socket.close()
    found.set()
    await until(lambda: not viewers.streams)
    assert not viewers.sampler.watched
    await until(lambda: not viewers.sampler.taking)
    assert not viewers.sampler.scheduled


async def test_toggling_samples_takes_no_extra_ones(connect: Connect, viewers: Viewers) -> None:
    """The interval counts from the last sample."""
    stream = await connect()
    await stream.read_until("sample")
    last = viewers.sampler.taken_at
    for _ in range(50):
        stream.samples(False)
        stream.samples(True)
    await stream.read_until("sample")
    assert viewers.sampler.taken_at - last >= 0.1


async def test_closed_tab_leaves_nothing(connect: Connect, viewers: Viewers) -> None:
    """No viewer and no timer remain."""
    stream = await connect()
    await stream.read_until("sample")
    stream.socket.close()
    await until(lambda: not viewers.streams)
    await until(lambda: not viewers.sampler.taking)
    assert not viewers.sampler.scheduled


async def test_failed_sample_does_not_end_the_stream(
    connect: Connect, put: Call, viewers: Viewers, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """The charts pause, views continue, the log has the error once, and samples come back."""
    backend = viewers.backend
    sample = backend.sample
    failures = 0

    async def failing() -> Any:
        nonlocal failures
        failures += 1
        if failures <= 3:
            raise RuntimeError("no load today")
        return await sample()

    monkeypatch.setattr(backend, "sample", failing)
    stream = await connect()
    await stream.read_until("history")
    await until(lambda: failures >= 2)
    await put({"gpus": 1})
    assert (await stream.read_until("view"))["view"]["requested"]["milli"] == 1000
    await stream.read_until("sample")
    assert len([r for r in caplog.records if r.levelname == "WARNING" and "load of the GPUs" in r.getMessage()]) == 1


@pytest.mark.parametrize(
    "message",
    [
        "",
        "x",
        "[]",
        "{}",
        '{"type":"samples"}',
        '{"type":"samples","on":1}',
        '{"type":"other","on":true}',
        '{"type":"samples","on":true,"more":1}',
        b"\xff",
        json.dumps({"type": "samples", "on": True}).ljust(MAX_MESSAGE_BYTES + 1),
    ],
)
async def test_bad_message_ends_the_connection_with_a_reason(
    connect: Connect, viewers: Viewers, message: str | bytes
) -> None:
    """An error message comes first, then the close with code 1008; nothing is left."""
    stream = await connect()
    await stream.socket.write_message(message, binary=isinstance(message, bytes))
    error = await stream.read_until("error")
    assert set(error) == {"type", "reason", "message"}
    assert error["reason"] in ("InvalidRequest", "TooLarge")
    assert await stream.read() is None
    assert stream.socket.close_code == 1008
    await until(lambda: not viewers.streams)


async def test_huge_message_is_not_read(connect: Connect, viewers: Viewers) -> None:
    """It is refused by its length alone, with code 1009 if the client still reads while it sends."""
    stream = await connect()
    await stream.socket.write_message("x" * 1_000_000)
    while await stream.read() is not None:
        pass
    assert stream.socket.close_code in (1009, None)
    await until(lambda: not viewers.streams)


async def test_stopping_server_closes_with_going_away(connect: Connect, extension: GpuExtension) -> None:
    """Code 1001 tells the tab to try again later."""
    stream = await connect()
    await stream.read_until("history")
    await extension.stop_extension()
    while await stream.read() is not None:
        pass
    assert stream.socket.close_code == 1001


async def slow_client(app: ServerApp) -> socket.socket:
    """Return a WebSocket client that reads nothing after the handshake, with the smallest buffer."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, ("127.0.0.1", app.port))
    head = [
        f"GET {app.base_url}jupyter-gpu/api/v1/stream HTTP/1.1",
        "Host: localhost",
        f"Authorization: token {app.identity_provider.token}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {b64encode(os.urandom(16)).decode()}",
    ]
    await loop.sock_sendall(client, "\r\n".join([*head, "", ""]).encode())
    assert (await loop.sock_recv(client, 12)) == b"HTTP/1.1 101"
    return client


async def test_slow_client_costs_one_view_and_catches_up(put: Call, viewers: Viewers, jp_serverapp: ServerApp) -> None:
    """While it does not read, nothing piles up for it; when it reads again, it gets the latest view."""
    client = await slow_client(jp_serverapp)
    await until(lambda: viewers.streams)
    (handler,) = viewers.streams
    assert isinstance(handler, StreamHandler)
    assert handler.ws_connection is not None
    connection: Any = handler.ws_connection.stream
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    biggest = 0
    for i in range(60):
        last = (await put({"gpus": 1 + i % 2})).body
        biggest = max(biggest, len(connection._write_buffer))
    assert biggest < 3 * len(json.dumps(last))  # one message under way, whatever comes meanwhile
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    received = bytearray()
    version = f'"version":{last["version"]},'.encode()
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(60):
        while version not in received:
            chunk = await loop.sock_recv(client, 65536)
            assert chunk
            received += chunk
    client.close()
    assert received.count(b'"type":"view"') < 40
    await until(lambda: not viewers.streams)


def test_outbox_keeps_the_latest_view_and_the_last_samples() -> None:
    """It is bounded, whatever is put in; the view goes first."""
    outbox = Outbox()
    for i in range(1000):
        outbox.put_sample(f"sample {i}")
        outbox.put_view((i, 0), f"view {i}")
    outbox.put_view((3, 9), "view of the past")
    taken = [outbox.take() for _ in range(SAMPLES_KEPT + 2)]
    assert taken == ["view 999", *(f"sample {i}" for i in range(1000 - SAMPLES_KEPT, 1000)), None]


def test_samples_in_the_history_are_not_sent_twice() -> None:
    """The history replaces the samples that were put before it."""
    outbox = Outbox()
    outbox.put_sample("old")
    outbox.put_history("history with old")
    outbox.put_sample("new")
    assert [outbox.take() for _ in range(3)] == ["history with old", "new", None]


@given(st.one_of(st.text(max_size=50), st.binary(max_size=50)))
def test_any_message_is_read_or_refused(message: str | bytes) -> None:
    """Reading one raises no other error."""
    with pytest.raises(InvalidRequest):
        read_message(message)


def test_client_may_only_switch_samples() -> None:
    """There are two valid messages."""
    assert read_message('{"type":"samples","on":true}') is True
    assert read_message('{"type":"samples","on":false}') is False
    with pytest.raises(TooLarge):
        read_message("x" * (MAX_MESSAGE_BYTES + 1))
