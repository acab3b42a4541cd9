"""The server of a user with a limit, against a real API server and the scheduler's own decisions."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from jupyter_gpu.backends.kubernetes import KubernetesBackend
from jupyter_gpu.model.annotations import Reason, Requested, Wish, encode
from jupyter_gpu.model.errors import LimitExceeded
from jupyter_gpu.model.limits.source import Source, SourceKind
from jupyter_gpu.model.reservation import raised
from jupyter_gpu.model.sentence import sentence
from jupyter_gpu.model.status import Phase
from jupyter_gpu.model.view import LIMIT_LOWERED, View
from tests.backends_kubernetes.stage import ML, Stage
from tests.contract.backends import reaches, running

pytestmark = pytest.mark.cluster


def run(stage: Stage, play: Callable[..., Awaitable[None]], *names: str, own: int | None = None) -> None:
    """One test with pods of these names, all of one user; ``own``: the limit of each server's own."""

    async def whole() -> None:
        async with AsyncExitStack() as stack:
            made = [await asyncio.to_thread(stage.make, name, limit=own) for name in names or ("p",)]
            await play(*[await stack.enter_async_context(running(backend)) for backend in made])

    asyncio.run(whole())


def ends_at(milli: int) -> Callable[[View], bool]:
    """Make a condition: the slider ends at ``milli``."""
    return lambda view: view.limit == milli


def has(milli: int) -> Callable[[View], bool]:
    """Make a condition: the pod has ``milli`` attached, and nothing is under way."""
    return lambda view: view.status.settled and view.status.attached == milli


def test_sliders_end_follows_the_limit(stage: Stage) -> None:
    """It moves in both directions, in the very view that brings the limit; without limits it is what there is."""

    async def play(backend: KubernetesBackend) -> None:
        seen: list[View] = []
        backend.subscribe(seen.append)
        assert backend.view().limit == 3000
        stage.limit(2000)
        view = await reaches(backend, ends_at(2000))
        assert view.steps == (0, 250, 500, 1000, 2000)
        assert view.to_json()["limit_source"] == "set for group ml by root on 3 May"
        stage.limit(500, Source(SourceKind.USER, "ann", "root"))
        assert (await reaches(backend, ends_at(500))).steps == (0, 250, 500)
        stage.limit(0)
        assert sentence(await reaches(backend, ends_at(0))) == "no GPU attached: your limit is 0"
        stage.limit(None)
        view = await reaches(backend, ends_at(3000))
        assert view.user_limit is not None
        assert view.user_limit.max is None
        stage.limit(8000)
        await reaches(backend, lambda view: view.user_limit is not None and view.user_limit.max == 8000)
        assert backend.view().limit == 3000
        for view in seen:
            milli = view.user_limit.milli if view.user_limit else None
            assert view.limit == min(view.total, 3000 if milli is None else milli)

    run(stage, play)


def test_lower_limit_of_the_two_holds(stage: Stage) -> None:
    """The server's own limit holds where it is lower than the user's, and is what a refusal names."""

    async def play(backend: KubernetesBackend) -> None:
        stage.limit(2000)
        await reaches(backend, lambda view: view.user_limit is not None)
        assert backend.view().limit == 1000
        with pytest.raises(LimitExceeded, match="Your server's limit is 1 GPU"):
            await backend.request(Wish(3000))
        stage.limit(500)
        await reaches(backend, ends_at(500))
        with pytest.raises(LimitExceeded, match=r"Your limit is 0\.5 GPU, set for group ml by root on 3 May\."):
            await backend.request(Wish(3000))

    run(stage, play, own=1000)


def test_wish_above_the_limit_changes_nothing(stage: Stage) -> None:
    """It is refused at once with the limit's source; the recorded wish and its generation stay."""

    async def play(backend: KubernetesBackend) -> None:
        stage.limit(2000)
        before = await backend.request(Wish(1000))
        await reaches(backend, ends_at(2000))
        stage.deciding = False  # whatever is written now stays as it is
        with pytest.raises(LimitExceeded) as caught:
            await backend.request(Wish(3000))
        assert str(caught.value).startswith("Your limit is 2 GPUs, set for group ml by root on 3 May. Ask for that")
        assert (caught.value.limit, caught.value.maximum, caught.value.source) == (2000, 2000, ML.to_json())
        assert backend.view().requested == before.requested
        await stage.asking(stage.annotate("p", other="1"))  # the pod as the API server has it
        await reaches(backend, lambda view: view.requested == before.requested)

    run(stage, play)


def test_wish_that_stands_is_served_when_the_limit_is_raised(stage: Stage) -> None:
    """A wish of kubectl gets what the limit allows, and the rest when it is raised, without another wish."""

    async def play(backend: KubernetesBackend) -> None:
        stage.limit(2000)
        await reaches(backend, ends_at(2000))
        await stage.asking(stage.annotate("p", requested="3"))
        view = await reaches(backend, has(2000))
        assert (view.status.phase, view.status.reason) == (Phase.WAITING, Reason.LIMIT_EXCEEDED)
        assert sentence(view) == "2 of 3: one more when your limit of 2 GPUs is raised"
        assert view.allocated is not None
        assert (view.allocated.ticket, view.allocated.position) == (None, None)
        wish = view.requested
        stage.limit(3000)
        view = await reaches(backend, has(3000))
        assert (view.requested, view.status.phase) == (wish, Phase.READY)

    run(stage, play)


def test_lowered_limit_is_announced_before_it_takes(stage: Stage) -> None:
    """The condition names the time for as long as the grace lasts; then the rest goes, and the wish stands."""

    async def play(backend: KubernetesBackend) -> None:
        conditions: list[str] = []
        backend.subscribe(lambda view: conditions.extend(one.message for one in view.conditions))
        stage.limit(3000)
        await backend.request(Wish(3000))
        await reaches(backend, has(3000))
        stage.limit(1000, grace=600)
        view = await reaches(backend, lambda view: any(one.type == LIMIT_LOWERED for one in view.conditions))
        assert (view.limit, view.status.attached, view.status.phase) == (1000, 3000, Phase.READY)
        assert sentence(view) == "3 GPUs attached, over your limit of 1: 2 GPUs will be taken back soon"
        stage.limit(1000, grace=0.1)  # it has passed
        view = await reaches(backend, has(1000))
        assert view.status.requested == 3000
        assert not any(one.type == LIMIT_LOWERED for one in view.conditions)
        assert sentence(view) == "1 of 3: two more when your limit of 1 GPU is raised"
        assert any("This server has 3 GPUs: 2 GPUs will be taken back at" in text for text in conditions)

    run(stage, play)


def test_servers_of_one_user_share_the_limit(stage: Stage) -> None:
    """The end of each slider is what the other leaves, and moves when the other takes or gives back."""

    async def play(first: KubernetesBackend, second: KubernetesBackend) -> None:
        stage.limit(2000)
        await reaches(second, ends_at(2000))
        await first.request(Wish(1000))
        await reaches(second, ends_at(1000))
        with pytest.raises(LimitExceeded) as caught:
            await second.request(Wish(2000))
        assert "Your other servers have 1. Ask here for 1 GPU or less," in str(caught.value)
        assert (caught.value.limit, caught.value.maximum) == (1000, 2000)
        await second.request(Wish(1000))
        await reaches(second, has(1000))
        await first.request(Wish(0))
        view = await reaches(second, ends_at(2000))
        assert sentence(view) == "1 of 2 GPUs attached"

    run(stage, play, "a", "b")


def test_block_beside_a_wish_above_the_limit_may_end(stage: Stage) -> None:
    """Reservations that end lower a wish although the rest is above the limit; a person's wish for it is refused."""

    async def play(backend: KubernetesBackend) -> None:
        await stage.asking(stage.annotate("p", requested=encode(Requested(4, Wish(3000, base=2000)))))
        await reaches(backend, has(3000))
        stage.limit(1000, grace=600)
        await reaches(backend, ends_at(1000))
        view = await backend.request(lambda now: raised(now, 0))
        assert view.requested == replace(view.requested or Requested(0, Wish(0)), wish=Wish(2000))
        with pytest.raises(LimitExceeded):
            await backend.request(Wish(1500))
        await backend.request(Wish(2000))  # it stands
        await backend.request(Wish(1000))
        assert (await reaches(backend, has(1000))).limit == 1000

    run(stage, play)
