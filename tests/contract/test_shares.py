"""Information about time shares that every backend gives its user: the same tests on each.

On one machine the servers have their arbiter. For the cluster one is beside the stage, as the node plugin has it: it
serves what the stage attaches, and writes the files that the pods see.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jupyter_gpu.backends.base import Backend
from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.share import MAX_SHARES, ShareUse
from jupyter_gpu.model.view import Sample
from jupyter_gpu_node.shares.rules.turns.lease_manager import Terms
from jupyter_gpu_node.shares.server import ArbiterServer, PlacedShare
from jupyter_gpu_node.shares.store import ShareStore

from .conftest import Beside, Make
from .playing import PATIENCE, running

if TYPE_CHECKING:
    from tests.backends_kubernetes.stage import Stage

TOTALS = ("guaranteed", "borrowed", "idle", "overrun", "switching", "waited", "throttled", "lost", "balance", "cap")


@pytest.fixture
def beside() -> Beside:
    """Somebody who hands out turns."""
    return serving


@contextlib.contextmanager
def serving(stage: Stage) -> Iterator[None]:
    """The node's arbiter, in the thread of the stage."""

    async def begin() -> asyncio.Task[None]:
        return asyncio.create_task(follow(stage))

    async def end(task: asyncio.Task[None]) -> None:
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled(), task.exception()

    task = stage.do(begin())
    try:
        yield
    finally:
        stage.do(end(task))


async def follow(stage: Stage) -> None:
    """Serve what is attached, until cancelled."""
    with tempfile.TemporaryDirectory(prefix="jg-") as own:
        server = ArbiterServer(ShareStore(Path(own)), lambda peer, _: f"process {peer.pid} has no business here")
        try:
            while True:
                await server.set(attached(stage))
                await asyncio.sleep(0.02)
        finally:
            await server.close()


def attached(stage: Stage) -> Mapping[str, Mapping[str, PlacedShare]]:
    """By GPU and pod."""
    found: dict[str, dict[str, PlacedShare]] = {}
    for uid, has in stage.attached.items():
        for share in has.shares:
            found.setdefault(share.uuid, {})[uid] = PlacedShare(Terms(share.milli), stage.sockets[uid].path.parent)
    return found


def run(make: Make, play: Callable[[Backend], Awaitable[None]]) -> None:
    """One test: a backend of the kind, started."""

    async def whole() -> None:
        async with running(make()) as backend:
            await play(backend)

    asyncio.run(whole())


async def samples(backend: Backend) -> AsyncGenerator[Sample, None]:
    """One after the other, as whoever looks at the panel has them, until it has seen enough."""
    async with asyncio.timeout(PATIENCE):
        while True:
            yield await backend.sample()
            await asyncio.sleep(0.05)


async def shown(backend: Backend, condition: Callable[[Mapping[str, ShareUse]], object]) -> Mapping[str, ShareUse]:
    """The shares of the first sample for which it is true."""
    async with contextlib.aclosing(samples(backend)) as seen:
        async for sample in seen:
            if condition(sample.shares):
                return sample.shares
    raise AssertionError("no more samples")


def amounts(shares: Mapping[str, ShareUse], milli: int) -> bool:
    """Whether there is one share, of that much."""
    return [share.allocated for share in shares.values()] == [milli]


def sound(share: ShareUse, uuid: str, milli: int) -> None:
    """Every field is within its bounds."""
    assert (share.uuid, share.allocated) == (uuid, milli)
    assert 1 <= share.effective <= 1000
    assert all(getattr(share, name) >= 0 for name in TOTALS)
    assert share.balance <= share.cap
    assert share.expires is None or share.expires >= 0
    assert 0 <= share.sharing < MAX_SHARES
    assert share.period > 0
    assert share.quantum == share.effective * share.period // 1000
    assert share.busy is None or 0 <= share.busy <= 1
    assert share.memory_used is None or share.memory_used >= 0
    assert ShareUse.from_json(share.to_json()) == share


def test_a_share_is_shown_from_when_it_is_attached_until_it_is_given_back(make: Make) -> None:
    """With all of its fields; there is nothing to show before and after."""

    async def play(backend: Backend) -> None:
        assert (await backend.sample()).shares == {}
        (card,) = (await backend.request(Wish(250))).gpus
        (share,) = (await shown(backend, len)).values()
        sound(share, card.gpu.uuid, 250)
        assert share.sharing == 0
        assert (share.guaranteed, share.borrowed, share.waited) == (0, 0, 0)
        sample = await backend.sample()
        assert sample.to_json()["shares"].keys() == {card.gpu.uuid}
        await backend.request(Wish(0))
        assert (await backend.sample()).shares == {}

    run(make, play)


def test_what_nobody_uses_is_saved_up_to_the_cap(make: Make) -> None:
    """The bank of a share that rests grows, and says when the next of it is lost."""

    async def play(backend: Backend) -> None:
        await backend.request(Wish(500))
        (first,) = (await shown(backend, lambda shares: any(one.balance for one in shares.values()))).values()
        assert 0 < first.balance <= first.cap
        assert first.expires is not None
        assert first.expires > 0
        more = await shown(backend, lambda shares: any(one.balance > first.balance for one in shares.values()))
        assert all(one.balance <= one.cap for one in more.values())

    run(make, play)


def test_a_whole_gpu_is_no_share(make: Make) -> None:
    """It is shown as one as soon as it becomes one, with what it is then, and no longer."""

    async def play(backend: Backend) -> None:
        await backend.request(Wish(1000))
        assert (await backend.sample()).shares == {}
        for milli in (500, 250):
            (card,) = (await backend.request(Wish(milli))).gpus
            shares = await shown(backend, partial(amounts, milli=milli))
            sound(shares[card.gpu.uuid], card.gpu.uuid, milli)
        await backend.request(Wish(1000))
        assert (await backend.sample()).shares == {}

    run(make, play)


def test_each_share_of_several_gpus_is_shown(make: Make) -> None:
    """By the uuid of its GPU; a whole one beside a half is not among them."""

    async def play(backend: Backend) -> None:
        view = await backend.request(Wish(1000, each=500))
        shares = await shown(backend, lambda shares: len(shares) == 2)
        assert shares.keys() == {card.gpu.uuid for card in view.gpus}
        for uuid, share in shares.items():
            sound(share, uuid, 500)
        view = await backend.request(Wish(1500))
        halves = {card.gpu.uuid for card in view.gpus if card.milli == 500}
        assert (await shown(backend, lambda shares: shares.keys() == halves)).keys() == halves

    run(make, play)


def test_how_many_others_share_the_gpu_is_shown_and_never_who(make: Make) -> None:
    """Both see one other; when that gives back, none."""

    async def play(first: Backend) -> None:
        async with contextlib.AsyncExitStack() as others:
            backends = [first, *[await others.enter_async_context(running(make())) for _ in range(5)]]
            for backend in backends:  # three GPUs, two halves of each
                await backend.request(Wish(500))
            for backend in backends:
                found = await shown(backend, lambda shares: [one.sharing for one in shares.values()] == [1])
                text = str([one.to_json() for one in found.values()])
                assert not any(other.view().instance in text for other in backends)
            for backend in backends[1:]:
                await backend.request(Wish(0))
                assert (await backend.sample()).shares == {}
            (share,) = (await shown(first, lambda shares: [one.sharing for one in shares.values()] == [0])).values()
            assert share.allocated == 500

    run(make, play)
