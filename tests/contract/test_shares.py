"""The information about time shares that every backend gives its user: the same tests on each.

On one machine the servers have their arbiter. For the cluster one runs beside the stage, as the node plugin has it: it
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
from jupyter_gpu_node.shares.rules.turns.terms import Terms
from jupyter_gpu_node.shares.server.arbiter_server import ArbiterServer, PlacedShare
from jupyter_gpu_node.shares.server.store import ShareStore

from .backends import PATIENCE, running
from .conftest import Beside, Make

if TYPE_CHECKING:
    from tests.backends_kubernetes.stage import Stage

TOTALS = ("guaranteed", "borrowed", "idle", "overrun", "switching", "waited", "throttled", "lost", "balance", "cap")


@pytest.fixture
def beside() -> Beside:
    """Run an arbiter where the backend has none of its own."""
    return serving


@contextlib.contextmanager
def serving(stage: Stage) -> Iterator[None]:
    """Run the node's arbiter, in the thread of the stage."""

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
    """Return what is attached, by GPU and pod."""
    found: dict[str, dict[str, PlacedShare]] = {}
    for uid, has in stage.attached.items():
        for share in has.shares:
            found.setdefault(share.uuid, {})[uid] = PlacedShare(Terms(share.milli), stage.sockets[uid].path.parent)
    return found


def run(make: Make, play: Callable[[Backend], Awaitable[None]]) -> None:
    """Run a test with a backend of the kind, started."""

    async def whole() -> None:
        async with running(make()) as backend:
            await play(backend)

    asyncio.run(whole())


async def samples(backend: Backend) -> AsyncGenerator[Sample, None]:
    """Yield samples, as a viewer of the panel gets them, until it has enough."""
    async with asyncio.timeout(PATIENCE):
        while True:
            yield await backend.sample()
            await asyncio.sleep(0.05)


async def shown(backend: Backend, condition: Callable[[Mapping[str, ShareUse]], object]) -> Mapping[str, ShareUse]:
    """Return the shares of the first sample for which the condition holds."""
    async with contextlib.aclosing(samples(backend)) as seen:
        async for sample in seen:
            if condition(sample.shares):
                return sample.shares
    raise AssertionError("no more samples")


def amounts(shares: Mapping[str, ShareUse], milli: int) -> bool:
    """Return whether there is exactly one share, of that amount."""
    return [share.allocated for share in shares.values()] == [milli]


def sound(share: ShareUse, uuid: str, milli: int) -> None:
    """Return whether every field is within its bounds."""
    assert (share.uuid, share.allocated) == (uuid, milli)
    assert 1 <= share.effective <= 1000
    assert all(getattr(share, name) >= 0 for name in TOTALS)
    assert share.balance <= share.cap
    assert share.expires is None or share.expires >= 0
    assert 0 <= share.sharing < MAX_SHARES
    assert share.period > 0
    assert share.slice == share.effective * share.period // 1000
    assert share.busy is None or 0 <= share.busy <= 1
    assert share.memory_used is None or share.memory_used >= 0
    assert ShareUse.from_json(share.to_json()) == share


def test_share_is_shown_while_it_is_attached(make: Make) -> None:
    """It has all of its fields; there is nothing to show before and after."""

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


def test_unused_time_is_saved_up_to_the_cap(make: Make) -> None:
    """The bank of an idle share grows, and tells when the next part of it expires."""

    async def play(backend: Backend) -> None:
        await backend.request(Wish(500))
        (first,) = (await shown(backend, lambda shares: any(one.balance for one in shares.values()))).values()
        assert 0 < first.balance <= first.cap
        assert first.expires is not None
        assert first.expires > 0
        more = await shown(backend, lambda shares: any(one.balance > first.balance for one in shares.values()))
        assert all(one.balance <= one.cap for one in more.values())

    run(make, play)


def test_whole_gpu_is_no_share(make: Make) -> None:
    """It is shown as a share as soon as it becomes one, with what it has then, and no longer."""

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
    """They are listed by the UUID of their GPU; a whole GPU beside a half is not among them."""

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


def test_number_of_other_shares_is_shown_but_not_their_owners(make: Make) -> None:
    """Both see one other; when that one gives back, none."""

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
