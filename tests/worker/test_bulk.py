"""Large values between a notebook and a worker's kernel: by TLS, and what ends it."""

from __future__ import annotations

import os
import signal
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.remote import calls, certificates, codec, output
from jupyter_gpu.remote.bulk import BulkClient, Transfer, TransferBroken
from jupyter_gpu.remote.codec import Chunk
from jupyter_gpu.remote.connection import Connection, Listener
from jupyter_gpu.remote.errors import CannotSend, WorkerLost
from jupyter_gpu.worker import bulk
from jupyter_gpu.worker.bulk import BulkServer
from tests.remote.spaces import Grid, space
from tests.worker.pods import free_ports
from tests.worker.strangers import overheard, received

MB = 1024**2
LARGE = 64 * MB
GRID = Grid(bytearray(b"grid") * (LARGE // 4))


class Seen:
    """The progress of transfers; ``act`` is called once, in the middle of one."""

    def __init__(self, act: Any = None) -> None:
        self.moved: list[tuple[int, int]] = []
        self.memory = 0
        self._act = act

    def listener(self) -> Listener:
        """Return the listener for a request."""
        return Listener(progress=self._see)

    def _see(self, transfer: Transfer) -> None:
        self.moved.append((transfer.moved, transfer.total))
        self.memory = max(self.memory, resident("self"))
        if self._act is not None and 0 < transfer.moved < transfer.total:
            act, self._act = self._act, None
            act()


def resident(pid: int | str, field: str = "VmRSS") -> int:
    """Return the bytes of memory that a process has, or had at most (VmHWM)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def prepared(value: Any) -> list[Chunk]:
    """Return a value as it is pushed, as ``data``."""
    here = space(data=value)
    return codec.chunks(here, found := codec.measure(here, {"data"}), found.pickled)


def said(connection: Connection, expression: str) -> str:
    """Return what the worker prints of an expression."""
    texts: list[str] = []
    listener = Listener(lambda message: texts.append(message["content"].get("text", "")))
    assert connection.run(f"print({expression})", listener)["content"]["status"] == "ok"
    return "".join(texts).strip()


@pytest.fixture(scope="module")
def warm(kept: Connection) -> Connection:
    """Return a kernel that can load what is sent here."""
    assert kept.run(f"import sys, os; sys.path.insert(0, {str(Path.cwd())!r}); import tests.remote.spaces")["content"]
    return kept


def test_large_value_there_and_back(warm: Connection) -> None:
    """With progress, into memory that can be written, without a copy at either end."""
    pid = int(said(warm, "os.getpid()"))
    before, seen = (resident("self"), resident(pid, "VmHWM")), Seen()
    assert warm.push(prepared(GRID), seen.listener()) == {}
    assert [one for one, _ in seen.moved] == sorted(one for one, _ in seen.moved)
    assert seen.moved[-1][0] == seen.moved[-1][1] > LARGE
    assert seen.memory - before[0] < LARGE // 4
    assert resident(pid, "VmHWM") - before[1] < LARGE * 1.25
    warm.run("memoryview(data.data)[0:1] = b'G'")
    chunks, failed, large = warm.pull(["data"], seen.listener())
    back = space()
    assert (codec.load(back, chunks), failed, large) == ({}, {}, [])
    assert bytes(memoryview(back["data"].data)[:8]) == b"Gridgrid"
    assert memoryview(back["data"].data)[1:] == memoryview(GRID.data)[1:]
    memoryview(back["data"].data)[0] = 0


class Peaks:
    """The most memory that this process and another have, from now on."""

    def __init__(self, pid: int) -> None:
        self._before = {one: self._begin(one) for one in (os.getpid(), pid)}

    def __call__(self, field: str = "VmHWM") -> list[int]:
        """Return the bytes beyond what each had."""
        return [resident(pid, field) - before for pid, before in self._before.items()]

    def _begin(self, pid: int) -> int:
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # VmHWM begins anew
        return resident(pid)


def test_gigabyte_as_argument_and_result(warm: Connection) -> None:
    """An array is once at each end, and nothing of it is left there; an interrupt ends it in the middle."""
    here = space("def same(grid): return grid\n")
    size, pid = 1024 * MB, int(said(warm, "os.getpid()"))
    prepared = calls.prepare(here, here["same"], [Grid(bytearray(size))]).chunks
    peaks = Peaks(pid)
    result = calls.perform(warm, here, prepared)
    assert len(result.data) == size
    assert max(peaks()) < 1.05 * size
    assert peaks("VmRSS")[1] < 0.1 * size
    with pytest.raises(KeyboardInterrupt):
        calls.perform(warm, here, prepared, Seen(lambda: os.kill(os.getpid(), signal.SIGINT)).listener())
    assert peaks("VmRSS")[1] < 0.1 * size
    assert said(warm, "'on'") == "on"


def test_bytes_in_a_pickle_are_copied_once(warm: Connection) -> None:
    """They are copied when they are loaded; and neither end keeps what it does not use, until it is collected."""
    here = space("def same(data): return data\n")
    pid = int(said(warm, "os.getpid()"))
    peaks = Peaks(pid)
    prepared = calls.prepare(here, here["same"], [bytes(LARGE)]).chunks
    assert calls.perform(warm, here, prepared) == bytes(LARGE)
    assert peaks()[1] < 2.3 * LARGE
    assert peaks()[0] < 3.3 * LARGE
    del prepared
    assert max(peaks("VmRSS")) < 0.3 * LARGE


@pytest.mark.parametrize("room", [256, 32])
def test_worker_without_room_says_so(connection: Connection, room: int) -> None:
    """Nothing is called, and the kernel goes on; also where there is not even room for a connection by TLS."""
    here = space("def same(data): return data\n")
    connection.run("import resource; pages = int(open('/proc/self/statm').read().split()[0])")
    connection.run(f"resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + {room * MB}, resource.RLIM_INFINITY))")
    prepared = calls.prepare(here, here["same"], [Grid(bytearray(512 * MB))]).chunks
    with pytest.raises(CannotSend, match=r"broke: Cannot allocate memory|has not enough memory for 512 MiB"):
        calls.perform(connection, here, prepared)
    assert said(connection, "'on'") == "on"


def test_small_value_needs_no_certificate(connection: Connection) -> None:
    """It goes with its message, also back and after a large one."""
    assert connection.push(prepared(b"small")) == {}
    assert connection.pull(["data"])[0][0].names == ("data",)
    assert not connection._bulk.is_open
    connection.run("data = bytes(20_000_000)")
    assert len(connection.pull(["data"])[0][0].stream) > 20_000_000  # the first large one of all
    assert connection._bulk.is_open
    connection.run("data = b'small'")
    assert len(connection.pull(["data"])[0][0].stream) < 100
    connection.run("data = bytes(20_000_000)")
    assert len(connection.pull(["data"])[0][0].stream) > 20_000_000
    assert connection.pull(["data"], limit=1000)[2] == ["data"]


def test_interrupt_ends_a_transfer(warm: Connection) -> None:
    """In both directions; the kernel, its values and the connection can be used."""
    warm.run("data = 1")
    with pytest.raises(KeyboardInterrupt):
        warm.push(prepared(GRID), Seen(warm.interrupt).listener())
    assert said(warm, "data") == "1"
    assert warm.push(prepared(GRID)) == {}
    with pytest.raises(KeyboardInterrupt):
        warm.pull(["data"], Seen(lambda: os.kill(os.getpid(), signal.SIGINT)).listener())
    assert len(warm.pull(["data"])[0][0].buffers[0]) == LARGE


def test_connection_that_breaks_is_a_plain_error(warm: Connection) -> None:
    """In the middle: an error that names it, and nothing is bound. At rest: a new one is opened."""

    def cut() -> None:
        assert warm._bulk.socket is not None
        socket.socket.shutdown(warm._bulk.socket, socket.SHUT_RDWR)

    assert warm.push(prepared(GRID)) == {}
    warm.run("data.data = b'old'")
    with pytest.raises(CannotSend, match="The connection for large objects to the worker on this machine broke"):
        warm.push(prepared(GRID), Seen(cut).listener())
    assert said(warm, "data.data") == "b'old'"
    assert warm.push(prepared(GRID)) == {}
    with pytest.raises(CannotSend, match="broke"):
        warm.pull(["data"], Seen(cut).listener())
    assert warm.push(prepared(GRID)) == {}
    cut()
    assert warm.push(prepared(GRID)) == {}


def test_kernel_killed_in_a_transfer(connection: Connection) -> None:
    """It is lost, at once."""
    pid = int(said(connection, "__import__('os').getpid()"))
    with pytest.raises(WorkerLost):
        connection.push(prepared(GRID), Seen(lambda: os.kill(pid, signal.SIGKILL)).listener())


def ended(stranger: socket.socket) -> None:
    """Wait for the end of a connection, which is an error here; what it is told before counts for nothing."""
    stranger.settimeout(5)
    while stranger.recv(1000):
        pass
    raise ConnectionResetError("it was closed")


def test_stranger_is_refused() -> None:
    """Without a certificate, with another one, without TLS: the peer that comes after them is connected."""
    ours, strange = certificates.make(), certificates.make()
    server = BulkServer()
    port, text = server.listen("127.0.0.1", ours.der)
    theirs = certificates.read_certificate(text, "certificate")
    nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    nobody.check_hostname, nobody.verify_mode = False, ssl.CERT_NONE
    for context in (certificates.context(strange, theirs, server=False), nobody):
        with (
            context.wrap_socket(socket.create_connection(("127.0.0.1", port))) as stranger,
            pytest.raises(OSError, match=r"."),  # an alert
        ):
            ended(stranger)
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
        with pytest.raises(OSError, match=r"."):
            ended(stranger)
    with socket.create_connection(("127.0.0.1", port)):  # says nothing
        client = BulkClient()
        client.connect("127.0.0.1", port, ours, theirs)
    assert client.socket is not None
    client.socket.setblocking(True)
    client.socket.sendall((1).to_bytes(4) + (5).to_bytes(8) + b"hello")
    assert [bytes(part) for part in server.receive()] == [b"hello"]
    with pytest.raises(OSError, match=r"."):
        socket.create_connection(("127.0.0.1", port), 1).recv(1)
    client.close()
    server.close()


def test_what_was_overheard_opens_nothing() -> None:
    """The bytes of an earlier transfer, sent again, and the certificate that it was made with."""
    old, new, client = certificates.make(), certificates.make(), BulkClient()
    server = BulkServer()

    def connected(own: certificates.Certificate, port: int, text: str) -> bool:
        client.connect("127.0.0.1", port, own, certificates.read_certificate(text, "certificate"))
        assert client.socket is not None
        client.socket.setblocking(True)
        client.socket.sendall((1).to_bytes(4) + (5).to_bytes(8) + b"hello")
        return [bytes(part) for part in server.receive()] == [b"hello"]

    port, text = server.listen("127.0.0.1", old.der)
    with overheard(port) as (through, sent):
        assert connected(old, through, text)
        client.close()
        server.close()
    for peer in (old, new):
        port, text = server.listen("127.0.0.1", peer.der)
        with socket.create_connection(("127.0.0.1", port), 20) as again:
            again.sendall(b"".join(sent))
            assert b"hello" not in received(again)
        if peer is new:
            theirs = certificates.read_certificate(text, "certificate")
            context = certificates.context(old, theirs, server=False)
            raw = socket.create_connection(("127.0.0.1", port))
            with context.wrap_socket(raw) as stranger, pytest.raises(OSError, match=r"."):
                ended(stranger)
        assert connected(peer, port, text)
    client.close()
    server.close()


def test_peer_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """Is not waited for longer than that, and its port is closed."""
    monkeypatch.setattr(bulk, "PATIENCE", 0.1)
    server = BulkServer()
    port, _ = server.listen("127.0.0.1", certificates.make().der)
    with pytest.raises(TransferBroken, match="did not connect"):
        server.receive()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), 1)
    with pytest.raises(TransferBroken, match="no connection"):
        server.send([b"x"])


def test_progress_is_a_line(
    warm: Connection, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that takes long, and one that is written again."""
    warm.push(prepared(GRID), Listener(progress=output.Progress()))
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(output, "PATIENCE", 1e-9)
    monkeypatch.setattr(output, "EACH", 0)
    warm.push(prepared(GRID), Listener(progress=output.Progress()))
    lines = capsys.readouterr().err.split("\r")
    assert lines[-1].startswith("Sent 67 of 67 MB, ")
    assert lines[-1].endswith(" MB/s\n")
    assert "\n" not in "".join(lines[:-1])


def test_where_no_connection_is_possible_it_goes_the_slower_way(
    warm: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And none is tried again. The last test of this module."""
    tries = []

    def refused(*_: object) -> None:
        tries.append(1)
        raise ConnectionRefusedError

    monkeypatch.setattr(BulkClient, "connect", refused)
    warm._bulk.close()
    for _ in range(2):
        assert warm.push(prepared(Grid(bytearray(17 * MB)))) == {}
        assert len(warm.pull(["data"])[0][0].buffers[0]) == 17 * MB
    assert tries == [1]


def test_one_port_for_all_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take turns: one whose peer does not come holds it for a while."""
    monkeypatch.setattr(bulk, "TURN", 0.1)
    port, peer = free_ports(), certificates.read_certificate(certificates.make().text, "peer")
    first, second = BulkServer(), BulkServer()
    assert first.listen("127.0.0.1", peer, port)[0] == port
    with pytest.raises(OSError, match="in use"):
        second.listen("127.0.0.1", peer, port)
    first.close()
    assert second.listen("127.0.0.1", peer, port)[0] == port
    second.close()
