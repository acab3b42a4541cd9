"""One leader: whatever happens, never two at once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from jupyter_gpu.kube import Kube, LeaderLease, LeaseTimes, kubeconfig
from jupyter_gpu.kube.rules import paths
from tests.cluster.testbed import ControlPlane
from tests.kube.conftest import Through

pytestmark = pytest.mark.cluster

SECONDS = 60.0
TIMES = {"duration": 4.0, "renew": 2.0, "retry": 0.3}


class Leaders:
    """The present leader; two at once fail the test."""

    def __init__(self) -> None:
        self.now: list[str] = []
        self.history: list[str] = []
        self.most = 0

    def lead(self, name: str) -> Callable[[], Awaitable[None]]:
        """Return a leader's work: nothing, until it is stopped."""

        async def leading() -> None:
            self.now.append(name)
            self.history.append(name)
            self.most = max(self.most, len(self.now))
            try:
                await asyncio.sleep(3600)
            finally:
                self.now.remove(name)

        return leading

    async def until(self, name: str) -> None:
        """Wait until that one leads."""
        async with asyncio.timeout(SECONDS):
            while self.now != [name]:
                await asyncio.sleep(0.02)


@asynccontextmanager
async def standing(lease: LeaderLease, lead: Callable[[], Awaitable[None]]) -> AsyncIterator[asyncio.Task[None]]:
    """A candidate, until the end of the block."""
    task = asyncio.create_task(lease.run(lead))
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def candidate(kube: Kube, name: str, identity: str, **times: float) -> LeaderLease:
    """Return a candidate with short times."""
    return LeaderLease(kube, "default", name, identity, LeaseTimes(**{**TIMES, **times}))


def run(plane: ControlPlane, play: Callable[[Kube], Awaitable[None]]) -> None:
    """Run a test with a client that is not disturbed."""

    async def whole() -> None:
        async with Kube(kubeconfig(plane.kubeconfig)) as kube:
            await play(kube)

    asyncio.run(whole())


def test_one_of_two_leads_and_the_other_follows_at_once(plane: ControlPlane) -> None:
    """A candidate that ends in order gives the lease back: the next need not wait for its expiry."""

    async def play(kube: Kube) -> None:
        leaders = Leaders()
        one, two = candidate(kube, "hand-over", "one"), candidate(kube, "hand-over", "two")
        async with standing(two, leaders.lead("two")):
            await leaders.until("two")
            async with standing(one, leaders.lead("one")):
                async with asyncio.timeout(SECONDS):
                    while one.holder != "two":
                        await asyncio.sleep(0.02)
                await asyncio.sleep(1)
                assert (one.leading, two.leading, one.holder) == (False, True, "two")
        async with standing(one, leaders.lead("one")):
            await leaders.until("one")
        assert leaders.history == ["two", "one"]
        spec = (await kube.get(paths.lease("default", "hand-over")))["spec"]
        assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("", 1)

    run(plane, play)


def test_leader_that_loses_contact_stops_before_the_next_begins(plane: ControlPlane, through: Through) -> None:
    """Its connections stall without a word: it stops by its own clock, then the other takes over; it may lead again."""

    async def play(kube: Kube) -> None:
        leaders = Leaders()
        async with through() as (shaky, proxy):
            one, two = candidate(shaky, "contact", "one"), candidate(kube, "contact", "two")
            async with standing(one, leaders.lead("one")):
                await leaders.until("one")
                async with standing(two, leaders.lead("two")):
                    proxy.stall()
                    await leaders.until("two")
                    assert not one.leading
                    proxy.flow()
                    await asyncio.sleep(1)
                    assert leaders.now == ["two"]
                await leaders.until("one")
        assert (leaders.history[0], leaders.history[-1], leaders.most) == ("one", "one", 1)

    run(plane, play)


def test_short_break_keeps_the_leader(plane: ControlPlane, through: Through) -> None:
    """A renewal that fails is tried again while there is time; one whose answer was lost is recognised as ours."""

    async def play(kube: Kube) -> None:
        leaders = Leaders()
        async with through() as (shaky, proxy):
            one = candidate(shaky, "break", "one", duration=40, renew=30)
            async with standing(one, leaders.lead("one")):
                await leaders.until("one")
                for _ in range(12):
                    await asyncio.sleep(0.13)
                    proxy.cut()
                assert leaders.now == ["one"]
        assert leaders.history == ["one"]

    run(plane, play)


def test_lease_taken_away_ends_the_lead(plane: ControlPlane) -> None:
    """Another holder is written or the lease is removed: the leader stops at once, and stands again."""

    async def play(kube: Kube) -> None:
        leaders = Leaders()
        path = paths.lease("default", "taken")
        async with standing(candidate(kube, "taken", "one"), leaders.lead("one")):
            await leaders.until("one")
            await kube.patch(path, {"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 1}})
            async with asyncio.timeout(SECONDS):
                while leaders.now:
                    await asyncio.sleep(0.02)
            assert (await kube.get(path))["spec"][
                "holderIdentity"
            ] == "thief"  # a leader that lost it does not give it away
            await leaders.until("one")
            await kube.delete(path)
            async with asyncio.timeout(SECONDS):
                while len(leaders.history) < 3:
                    await asyncio.sleep(0.02)
        assert leaders.most == 1

    run(plane, play)


def test_end_of_the_leader_ends_the_election(plane: ControlPlane) -> None:
    """A mistake of the leader is raised, and the lease is free."""

    async def play(kube: Kube) -> None:
        async def bad() -> None:
            raise ZeroDivisionError

        async def good() -> None:
            return

        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(candidate(kube, "result", "one").run(bad), SECONDS)
        await asyncio.wait_for(candidate(kube, "result", "two").run(good), SECONDS)
        assert (await kube.get(paths.lease("default", "result")))["spec"]["holderIdentity"] == ""

    run(plane, play)


def test_leader_that_does_not_stop_is_ended_by_force(plane: ControlPlane, through: Through) -> None:
    """The process ends as a last resort, before another may lead."""

    async def play() -> None:
        aborted = asyncio.Event()

        async def stubborn() -> None:
            while not aborted.is_set():
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(3600)

        def abort() -> None:
            aborted.set()
            leading.cancel()

        leading: asyncio.Task[None]

        async def lead() -> None:
            nonlocal leading
            task = asyncio.current_task()
            assert task is not None
            leading = task
            await stubborn()

        async with through() as (shaky, proxy):
            lease = LeaderLease(shaky, "default", "stubborn", "one", LeaseTimes(2, 1, 0.2), abort)
            async with standing(lease, lead):
                async with asyncio.timeout(SECONDS):
                    while not lease.leading:
                        await asyncio.sleep(0.02)
                    proxy.stall()
                    await aborted.wait()
                    proxy.flow()

    asyncio.run(play())


@pytest.mark.parametrize("times", [{"renew": 15}, {"retry": 10}, {"retry": 0}, {"duration": 1}])
def test_times_that_allow_two_leaders_are_refused(times: dict[str, float]) -> None:
    """The leader must stop before another may begin."""
    with pytest.raises(ValueError, match="retry < renew < duration"):
        LeaseTimes(**times)
