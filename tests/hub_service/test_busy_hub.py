"""A hub that has more to do than it can: what the service does meanwhile, with a real hub and proxy."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cluster.testbed import until
from tests.hub import SECONDS

from .browser import Answer, Program
from .slow_hub import SlowHub, slow_hub
from .test_stream import opened
from .test_stream import token as headers_of
from .world import World

pytestmark = pytest.mark.cluster

AT_ONCE, WAITING = 2, 6
BOUNDS = {"atOnce": AT_ONCE, "waiting": WAITING, "seconds": 2, "staleSeconds": 8}
NEW = {"subject": {"kind": "User", "name": "eve"}, "set": {"max": 1}}


@pytest.fixture(scope="module")
def hub(running: World) -> Iterator[SlowHub]:
    """Return the bridge between the service and the hub; the service has small bounds."""
    good = running.service.api_url
    with slow_hub(running.address) as bridge:
        running.service.api_url = bridge.address
        running.service.restart(hubRequests=BOUNDS, cacheSeconds=1)
        yield bridge
    running.service.api_url = good


@pytest.fixture(autouse=True)
def awake(world: World, hub: SlowHub) -> Iterator[None]:
    """Have the hub answer at once, before each test and after it."""
    hub.seconds, hub.most = 0.0, 0
    yield
    hub.seconds = 0.0
    hub.awake.set()


def me(program: Program) -> Answer:
    """Ask for the own row."""
    return program.gpu("GET", "me")


def table(world: World) -> Answer:
    """Ask for the table of limits, with a token that may see it."""
    return world.limits.gpu("GET", "limits")


def tokens(world: World, count: int, first: int = 0) -> list[Program]:
    """Return programs of as many users, about whom the service has not asked yet."""
    names = [f"busy-{number}" for number in range(first, first + count)]
    world.script.hub_api("POST", "users", {"usernames": names})
    return [world.token(name) for name in names]


def test_crowd_of_new_users_is_answered_or_told_when_to_come_back(world: World, hub: SlowHub) -> None:
    """A few questions are open at once, a few requests wait, and all others get a sentence and a time at once."""
    programs = tokens(world, 40)
    hub.seconds = 0.2
    begun = time.monotonic()
    with ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(me, programs))
    assert time.monotonic() - begun < 10
    statuses = Counter(answer.status for answer in answers)
    assert set(statuses) == {200, 503}
    assert statuses[200] >= WAITING
    assert hub.most <= AT_ONCE
    for answer in answers:
        if answer.status == 503:
            assert answer.headers["Retry-After"] == "2"
            assert answer.json["reason"] == "Unavailable"
            assert "Try again in a few seconds" in answer.json["message"]
    hub.seconds = 0.0
    assert {me(program).status for program in programs} == {200}


def test_requests_with_one_token_are_one_question(world: World, hub: SlowHub) -> None:
    """They do not wait for each other."""
    (program,) = tokens(world, 1, 100)
    hub.seconds = 0.5
    before = hub.asked
    with ThreadPoolExecutor(WAITING) as pool:
        answers = list(pool.map(me, [program] * WAITING))
    assert {answer.status for answer in answers} == {200}
    assert hub.asked - before == 1


def test_reader_is_served_while_the_hub_is_stuck_but_not_for_ever(world: World, hub: SlowHub) -> None:
    """The last answer counts for eight seconds; then, and for a write at once, nothing is done without the hub."""
    assert table(world).status == 200
    known = time.monotonic()
    hub.awake.clear()
    time.sleep(1.1)  # older than an answer that counts in any case
    refused = world.limits.gpu("POST", "limits", NEW)
    assert (refused.status, refused.headers["Retry-After"]) == (503, "2")
    assert "nothing was changed" in refused.json["message"]
    assert table(world).status == 200
    until(lambda: table(world).status == 503, 15, "the last answer to count no more")
    assert 5 < time.monotonic() - known < 14
    hub.awake.set()
    until(lambda: table(world).status == 200, SECONDS)
    assert table(world).json["total"] == 0


def test_revoked_token_ends_in_time_though_the_hub_is_busy(world: World, hub: SlowHub) -> None:
    """Others keep the hub busy all the time; no later than staleSeconds after the last answer the token is out."""
    (program,) = tokens(world, 1, 200)
    crowd = tokens(world, 12, 300)
    assert me(program).status == 200
    known = time.monotonic()
    (found,) = world.script.hub_api("GET", "users/busy-200/tokens")["api_tokens"]
    world.script.hub_api("DELETE", f"users/busy-200/tokens/{found['id']}")
    hub.seconds = 0.4
    ended = False

    def go_on(other: Program) -> None:
        while not ended:
            me(other)

    with ThreadPoolExecutor(12) as pool:
        busy = [pool.submit(go_on, other) for other in crowd]
        try:
            until(lambda: me(program).status != 200, 20, "the token to be refused")
            assert time.monotonic() - known < 8 + 4  # what this machine takes
            for _ in range(10):
                assert me(program).status in (403, 503)
        finally:
            ended = True
        for one in busy:
            one.result()
    hub.seconds = 0.0
    until(lambda: me(program).status == 403, SECONDS)


def test_page_says_that_the_hub_is_busy(world: World, hub: SlowHub) -> None:
    """With a status that programs understand, and a sentence; it works again with the hub."""
    browser = world.browser("bob")
    assert browser.open("/services/gpu/").status == 200
    hub.awake.clear()
    time.sleep(8)
    answer = browser.open("/services/gpu/")
    assert (answer.status, answer.headers["Retry-After"]) == (503, "2")
    assert "Try again in a few seconds" in answer.text
    hub.awake.set()
    until(lambda: browser.open("/services/gpu/").status == 200, SECONDS)


def test_stream_stays_open_while_the_hub_is_stuck(world: World, hub: SlowHub) -> None:
    """The page goes on to be told of changes; it need not ask the hub for that."""
    with opened(world, headers_of(world)) as stream:
        until(lambda: stream.counts, SECONDS)
        hub.awake.clear()
        world.plane.kubectl("create", "-f", "-", stdin=LIMIT)
        until(lambda: stream.counts[-1].get("limits", 0) > stream.counts[0].get("limits", 0), 10)
        assert not stream.ended


def test_unknown_tokens_of_one_address_do_not_take_the_hub_from_others(world: World, hub: SlowHub) -> None:
    """After a few, no more of them are asked about; known users go on."""
    assert table(world).status == 200
    before = hub.asked
    statuses = Counter(me(Program(world.address, f"bogus-{number}")).status for number in range(60))
    assert set(statuses) == {403, 429}
    assert hub.asked - before <= 60 - statuses[429]
    assert statuses[429] > 10
    assert table(world).status == 200


LIMIT = """{"apiVersion": "jupyter-gpu.io/v1alpha1", "kind": "GpuLimit", "metadata": {"name": "told"},
"spec": {"subject": {"kind": "User", "name": "told", "hub": "hub-one"}, "max": 1}}"""
