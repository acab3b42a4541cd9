"""Reservations over REST on a real server, and what becomes of them when things go wrong."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jupyter_server.serverapp import ServerApp

from jupyter_gpu.backends.base import Listener
from jupyter_gpu.kernel.blocks import owner as this_process
from jupyter_gpu.model.annotations import Requested, Wish, record
from jupyter_gpu.model.errors import BackendUnavailable, Infeasible, InvalidRequest, StaleGeneration
from jupyter_gpu.model.reservation import MAX_RESERVATIONS, Reservation, ReservationOwner, WishChange, resolve
from jupyter_gpu.model.view import View
from jupyter_gpu.server import reservations as module
from jupyter_gpu.server.reservation_owners import ProcessOwners, find
from jupyter_gpu.server.reservations import Reservations
from tests.kernel.builders import view as make_view
from tests.server.conftest import Answer, Call, Connect, Fetch

JSON = {"Content-Type": "application/json"}
HERE = this_process()


@pytest.fixture
def hold(call: Call) -> Call:
    """Send ``PUT reservations/<key>``."""

    async def hold(key: str, milli: int, owner: ReservationOwner = HERE, **more: Any) -> Answer:
        body = {"milli": milli, "owner": owner.to_json(), **more}
        return await call(f"reservations/{key}", method="PUT", body=json.dumps(body).encode(), headers=dict(JSON))

    return hold


async def given_back(call: Call, key: str, requested: int) -> None:
    """Give a reservation back, and wait for the request without it: a busy server may answer before that is written."""
    answer = await call(f"reservations/{key}", method="DELETE")
    assert answer.code == 200
    async with asyncio.timeout(60):
        while answer.body["amounts"]["requested"] != requested:
            answer = await call("status")


async def test_reservation_raises_the_request_until_it_ends(call: Call, put: Call, hold: Call) -> None:
    """It raises the request, code does not lower it, and its end does; the view shows it."""
    await put({"gpus": 1, "memory": "1GiB"})
    answer = await hold("a", 2000)
    assert answer.code == 200
    assert answer.body["requested"] == {"generation": 2, "milli": 2000, "memory": 2**30, "base": 1000}
    assert [c["message"] for c in answer.body["conditions"] if c["type"] == "Held"]
    assert (await put({"gpus": 0})).body["amounts"]["attached"] == 2000
    await given_back(call, "a", 0)
    assert (await call("reservations/a", method="DELETE")).code == 200


async def test_notice_names_the_notebooks_that_hold_reservations(
    call: Call, hold: Call, connect: Connect, jp_fetch: Fetch, jp_serverapp: ServerApp
) -> None:
    """Equal names are distinguished by path, processes by number; tabs are updated even if the request stays."""
    owners = []
    for folder in ("one", "two"):
        body = {"path": f"{folder}/train.ipynb", "name": "", "type": "notebook", "kernel": {"name": "python3"}}
        session = json.loads((await jp_fetch("api", "sessions", method="POST", body=json.dumps(body))).body)
        manager: Any = jp_serverapp.kernel_manager.get_kernel(session["kernel"]["id"])
        owners.append(owner_of(manager.provisioner.pid))
    stream = await connect()
    await hold("a", 2000, owners[0])
    await hold("b", 2000, owners[1])

    async def notice(*starts: str) -> None:
        async with asyncio.timeout(60):
            while (message := await stream.read_until("view")) is not None:
                texts = [c["message"] for c in message["view"]["conditions"] if c["type"] == "Held"]
                if texts and texts[0].startswith(starts):
                    return

    await notice("one/train.ipynb (2 GPUs) and two/train.ipynb (2 GPUs) hold 2 GPUs together")
    await call("reservations/a", method="DELETE")
    await notice("two/train.ipynb holds 2 GPUs while it needs them (gpu.at_least, jupyter gpu run)")
    await hold("c", 2000)
    await call("reservations/b", method="DELETE")
    await notice(f"process {HERE.pid} holds 2 GPUs")
    answer = await call("reservations/c", method="DELETE")
    assert answer.body["conditions"] == (await call("status")).body["conditions"]


def owner_of(pid: int) -> ReservationOwner:
    """Return process ``pid`` of this pid namespace as an owner."""
    started = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return HERE._replace(pid=pid, started=started)


async def test_refused_reservation_holds_nothing(call: Call, hold: Call) -> None:
    """Too large amounts, bad bodies and processes whose end would not be noticed are refused."""
    ended = HERE._replace(started=HERE.started + 1)
    unseen = HERE._replace(namespace=1)
    for answer, code, reason in [
        (await hold("a", 9000), 422, "Infeasible"),
        (await hold("b", 1000, more=1), 400, "InvalidRequest"),
        (await hold("c", 1000, ended), 400, "InvalidRequest"),
        (await hold("d", 1000, unseen), 400, "InvalidRequest"),
        (await hold("e", 1000, unseen._replace(kernel="unknown")), 400, "InvalidRequest"),
        (await call("reservations/f", method="PUT", body=b"{}"), 415, "InvalidRequest"),
        (await call("reservations/g.h", method="PUT", body=b"{}"), 404, "InvalidRequest"),
    ]:
        assert (answer.code, answer.body["reason"]) == (code, reason), answer.body
    assert (await call("status")).body["requested"] is None


async def test_reservation_given_back_before_it_arrives_never_begins(call: Call, hold: Call) -> None:
    """Its client has stopped waiting for it."""
    assert (await call("reservations/a", method="DELETE")).code == 200
    answer = await hold("a", 1000)
    assert (answer.code, answer.body["details"]["field"]) == (400, "key")
    assert (await call("status")).body["amounts"]["requested"] == 0


async def test_slider_overrules_larger_reservations(call: Call, put: Call, hold: Call) -> None:
    """Reservations that need more are over, and their blocks learn it; the others stay."""
    await hold("a", 3000)
    await hold("b", 1000)
    assert (await put({"gpus": 1, "overrule": True})).body["amounts"]["requested"] == 1000
    answer = await call("reservations/a", method="DELETE")
    assert (answer.code, answer.body["reason"]) == (409, "StaleGeneration")
    assert (await put({"gpus": 0})).body["amounts"]["requested"] == 1000
    await given_back(call, "b", 0)


@pytest.mark.root
async def test_owner_in_an_inner_pid_namespace_is_found(hold: Call, call: Call) -> None:
    """Its pid is another process here; it is found all the same, and its end is noticed."""
    code = (
        "from jupyter_gpu.kernel.blocks import owner; import json; "
        "print(json.dumps(owner().to_json()), flush=True); input()"
    )
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as inner:
        assert inner.stdout
        owner = ReservationOwner.from_json(json.loads(inner.stdout.readline()))
        assert owner.pid < 10
        found = find(owner)
        assert found is not None
        assert Path(f"/proc/{found.pid}/cmdline").read_bytes().endswith(b"input()\0")
        assert (await hold("a", 1000, owner)).code == 200
        inner.communicate(b"\n")
    for _ in range(500):
        if (await call("status")).body["amounts"]["requested"] == 0:
            return
        await asyncio.sleep(0.02)
    raise AssertionError("nobody noticed")


class Kernels:
    """A kernel manager whose kernels run elsewhere."""

    def __init__(self) -> None:
        self.restarted: list[Callable[[], None]] = []

    def list_kernel_ids(self) -> list[str]:
        return ["k", "other"]

    def add_restart_callback(self, kernel: str, callback: Callable[[], None], event: str) -> None:
        self.restarted.append(callback)


@pytest.mark.parametrize("how", ["shutdown", "restart", "dead"])
async def test_end_of_a_remote_kernel_is_noticed(how: str) -> None:
    """The server does not see its process, so its manager reports its end, and only its own."""
    heard: list[Any] = []
    kernels = Kernels()
    ends = ProcessOwners(kernels, SimpleNamespace(add_listener=lambda schema_id, listener: heard.append(listener)))
    there = ReservationOwner(5, 6, 1, "k")
    await ends.check(there)
    await ends.check(there._replace(pid=7))
    over: list[ReservationOwner] = []
    ends.watch([there, HERE], over.append)
    await heard[0](None, "", {"action": "interrupt", "kernel_id": "k"})
    await heard[0](None, "", {"action": "restart", "kernel_id": "other"})
    assert not over
    if how == "dead":
        kernels.restarted[1]()
    else:
        await heard[0](None, "", {"action": how, "kernel_id": "k"})
    assert over == [there]


class Fake:
    """A backend whose answers and failures the test sets."""

    def __init__(self, wish: Wish | None = None) -> None:
        self.requested = Requested(1, wish) if wish else None
        self.failing = 0
        self.asked = 0
        self.listeners: list[Listener] = []
        self.between: Callable[[], None] | None = None

    def view(self) -> View:
        return replace(make_view(0), requested=self.requested)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def write(self, wish: Wish) -> None:
        self.requested = record(self.requested, wish)
        for listener in tuple(self.listeners):
            listener(self.view())

    async def request(self, wish: Wish | WishChange, generation: int | None = None) -> View:
        self.asked += 1
        await asyncio.sleep(0)
        if self.failing:
            self.failing -= 1
            raise BackendUnavailable("away")
        after = resolve(wish, self.requested)
        if after.milli > 4000:
            raise Infeasible(have=4000)
        self.write(after)
        if self.between:
            job, self.between = self.between, None
            job()
        return self.view()


class Watched:
    """Owners that end when the test says so."""

    def __init__(self) -> None:
        self.ended: Callable[[ReservationOwner], None] = lambda _: None
        self.owners: frozenset[ReservationOwner] = frozenset()

    async def check(self, owner: ReservationOwner) -> None:
        await asyncio.sleep(0)

    def pid_of(self, owner: ReservationOwner) -> int | None:
        return None

    def watch(self, owners: Iterable[ReservationOwner], ended: Callable[[ReservationOwner], None]) -> None:
        self.owners, self.ended = frozenset(owners), ended


def desk(backend: Fake) -> tuple[Reservations, Watched]:
    watched = Watched()
    return Reservations(backend, watched), watched  # type: ignore[arg-type]


async def reaches(backend: Fake, milli: int) -> None:
    for _ in range(1000):
        if backend.requested and backend.requested.milli == milli:
            return
        await asyncio.sleep(0.005)
    raise AssertionError(backend.requested)


async def test_giving_back_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the backend is away when a block ends, its GPUs are given back when the backend is there again."""
    monkeypatch.setattr(module, "RETRY", 0.01)
    backend = Fake(Wish(1000))
    reservations, watched = desk(backend)
    await reservations.begin(Reservation("a", 2000, HERE))
    backend.failing = 3
    await reservations.end("a")
    await reaches(backend, 1000)
    assert watched.owners == frozenset()
    reservations.stop()
    assert not backend.listeners


async def test_restarted_server_falls_back_to_the_base(monkeypatch: pytest.MonkeyPatch) -> None:
    """The earlier request stands with its base; no reservation is known, so what reservations held is given back."""
    backend = Fake(Wish(3000, memory=7, base=1000))
    reservations, _ = desk(backend)
    await reaches(backend, 1000)
    assert backend.requested
    assert backend.requested.wish == Wish(1000, memory=7)
    reservations.stop()


async def test_request_written_elsewhere_ends_the_reservation() -> None:
    """A request written by `kubectl annotate` wins, and the reservation is over."""
    backend = Fake()
    reservations, _ = desk(backend)
    await reservations.begin(Reservation("a", 2000, HERE))
    backend.write(Wish(1000))
    assert backend.requested
    assert backend.requested.wish == Wish(1000)
    with pytest.raises(StaleGeneration, match="taken back in the panel"):
        await reservations.end("a")
    assert backend.requested.wish == Wish(1000)


async def test_reservation_is_requested_again_after_a_concurrent_change() -> None:
    """Another request came right after the answer."""
    backend = Fake()
    reservations, _ = desk(backend)
    backend.between = lambda: backend.write(Wish(500))
    view = await reservations.begin(Reservation("a", 2000, HERE))
    assert view.requested
    assert view.requested.wish == Wish(2000, base=500)


async def test_reservation_given_back_while_it_begins_is_over() -> None:
    """Its client was interrupted: it ends as if it had never begun, and giving back waits for that."""
    backend = Fake()
    reservations, _ = desk(backend)
    beginning = asyncio.ensure_future(reservations.begin(Reservation("a", 2000, HERE)))
    await asyncio.sleep(0)
    await reservations.end("a")
    assert not backend.requested or backend.requested.milli == 0
    with pytest.raises(InvalidRequest, match="given back before it began"):
        await beginning


async def test_refused_reservation_does_not_affect_others() -> None:
    """A reservation that can never be granted is refused, and others continue."""
    backend = Fake()
    reservations, watched = desk(backend)
    with pytest.raises(Infeasible):
        await reservations.begin(Reservation("a", 5000, HERE))
    await reservations.request(lambda _: Wish(1000), None)
    assert backend.requested
    assert backend.requested.wish == Wish(1000)
    assert watched.owners == frozenset()


async def test_end_of_a_process_ends_all_its_reservations() -> None:
    """Reservations of other processes stay; a reservation of the process that is just beginning is over as well."""
    backend = Fake()
    reservations, watched = desk(backend)
    other = HERE._replace(pid=1)
    await reservations.begin(Reservation("a", 2000, HERE))
    await reservations.begin(Reservation("b", 3000, HERE))
    await reservations.begin(Reservation("c", 1000, other))
    assert (await reservations.begin(Reservation("c", 1000, other))).requested
    watched.ended(HERE)
    await reaches(backend, 1000)
    assert watched.owners == {other}


async def test_number_of_reservations_is_limited() -> None:
    """A faulty program does not fill the server."""
    reservations, _ = desk(Fake())
    for number in range(MAX_RESERVATIONS):
        await reservations.begin(Reservation(str(number), 1, HERE))
    with pytest.raises(InvalidRequest, match="no more may"):
        await reservations.begin(Reservation("more", 1, HERE))
