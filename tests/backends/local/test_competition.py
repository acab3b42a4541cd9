"""Several servers at once that want and give back at random, while their kernels open what they can."""

import random
import time

import pytest

from jupyter_gpu.backends.local.records.store import Contents, StateStore

from .stage import PATIENCE, Stage, wait_for

pytestmark = pytest.mark.root

SERVERS, SECONDS = 4, 4.0
AMOUNTS = (0, 0, 250, 500, 1000, 1000, 1500, 2000, 3000)


def held(found: Contents) -> dict[str, dict[str, int]]:
    """Milli of each GPU by pod: the most of allocated, attached and draining."""
    result: dict[str, dict[str, int]] = {}
    for uid, entry in found.entries.items():
        record = entry.record
        shares = [*(record.allocated.shares if record.allocated else ())]
        if record.attached:
            shares += [*record.attached.shares, *(item.share for item in record.attached.draining)]
        for share in shares:
            pods = result.setdefault(share.uuid, {})
            pods[uid] = max(pods.get(uid, 0), share.milli)
    return result


def check(found: Contents) -> int:
    """The rules that hold at every instant, seen under the lock; how much is held."""
    assert not found.damaged
    everything = held(found)
    for uuid, pods in everything.items():
        assert sum(pods.values()) <= 1000, f"{uuid} is held more than once: {pods}"
    return sum(sum(pods.values()) for pods in everything.values())


def test_no_gpu_is_ever_owned_twice_and_in_the_end_all_are_free(stage: Stage) -> None:
    """Random resizes of real processes with devices open and closed; records and opens are checked all the time."""
    chance = random.Random(20261121)
    servers = [stage.server() for _ in range(SERVERS)]
    kernels = [stage.kernel(server) for server in servers]
    store = StateStore(stage.state)
    paths, uuids = stage.paths, stage.uuids
    open_in: dict[int, str] = {}
    busy = [False] * SERVERS
    checks, most = 0, 0
    begin = time.monotonic()
    while time.monotonic() < begin + SECONDS or checks <= 20 or most < 2500:  # the latter come late on a busy machine
        assert time.monotonic() < begin + PATIENCE, f"{checks} checks, {most} milli at most"
        number = chance.randrange(SERVERS)
        if busy[number]:
            servers[number].answer()
        servers[number].tell("request", milli=chance.choice(AMOUNTS))
        busy[number] = True
        number = chance.randrange(SERVERS)
        if number in open_in:
            kernels[number].ask("close", path=open_in.pop(number))
        elif kernels[number].ask("open", path=(path := chance.choice(paths))) == "":
            open_in[number] = path
        with store.locked() as session:
            found = session.read()
            most = max(most, check(found))
            # Under the lock no server changes its rules: what can be opened now must be what is recorded.
            for server, kernel in zip(servers, kernels, strict=True):
                uid = server.uid
                can = {uuid for uuid, yes in zip(uuids, kernel.ask("tries", paths=paths), strict=True) if yes}
                may = {uuid for uuid, pods in held(found).items() if uid in pods}
                assert can <= may, f"{uid} opens what it does not hold"
        checks += 1
    for server, pending in zip(servers, busy, strict=True):
        if pending:
            server.answer()
    for number, path in open_in.items():
        kernels[number].ask("close", path=path)
    for server in servers:
        server.ask("request", milli=0)
    for server in servers:
        server.ask("until", phase="Idle")
    assert servers[0].ask("request", milli=3000)["phase"] == "Ready"


def test_queue_is_served_in_order(stage: Stage) -> None:
    """Five servers wait for one GPU each time it comes free; none overtakes and none is forgotten."""
    holder = stage.server()
    holder.ask("request", milli=3000)
    waiting = [stage.server() for _ in range(5)]
    for place, server in enumerate(waiting, 1):
        assert server.ask("request", milli=1000)["allocated"]["position"] == place
    holder.ask("request", milli=0)
    for server in waiting[:3]:
        server.ask("until", phase="Ready")
    assert [server.ask("view")["phase"] for server in waiting[3:]] == ["Waiting"] * 2
    wait_for(lambda: waiting[3].ask("view")["allocated"]["position"] == 1, "the line to move up")
    waiting[1].ask("request", milli=0)
    waiting[3].ask("until", phase="Ready")
    waiting[0].kill()
    waiting[4].ask("until", phase="Ready")
