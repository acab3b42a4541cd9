"""Bounds on the questions to the hub."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from jupyter_gpu_hub.state.questions import BusyError, Questions


class Slow:
    """A service that answers when it is told to; an answer is its number."""

    def __init__(self) -> None:
        self.asked = 0
        self.open = 0
        self.most = 0
        self.answers = asyncio.Event()

    async def __call__(self) -> int:
        self.asked += 1
        number = self.asked
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            await self.answers.wait()
        finally:
            self.open -= 1
        return number


async def settled() -> None:
    """Let every task go as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run a test on an event loop, which must have nothing left to do at its end."""

    async def whole() -> None:
        async with asyncio.timeout(20):
            await test()
            await settled()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(whole())


def test_requests_with_one_key_share_a_question() -> None:
    """Fifty of them are one question, and all get its answer."""

    async def test() -> None:
        hub, questions = Slow(), Questions[int](at_once=8, waiting=100, seconds=5)
        asked = [asyncio.create_task(questions.ask("a", hub)) for _ in range(50)]
        await settled()
        assert (hub.asked, questions.waiting) == (1, 50)
        hub.answers.set()
        assert await asyncio.gather(*asked) == [1] * 50
        assert questions.waiting == 0
        assert await questions.ask("a", hub) == 2

    run(test)


def test_few_are_open_at_once() -> None:
    """The others stand in line, and are answered in the end."""

    async def test() -> None:
        hub, questions = Slow(), Questions[int](at_once=3, waiting=100, seconds=5)
        assert not questions.busy
        asked = [asyncio.create_task(questions.ask(str(number), hub)) for number in range(20)]
        await settled()
        assert (hub.open, questions.busy) == (3, True)
        hub.answers.set()
        assert sorted(await asyncio.gather(*asked)) == list(range(1, 21))
        assert hub.most == 3
        assert not questions.busy

    run(test)


def test_request_too_many_is_refused_at_once() -> None:
    """Whether it would be a question of its own or not."""

    async def test() -> None:
        hub, questions = Slow(), Questions[int](at_once=1, waiting=2, seconds=5)
        asked = [asyncio.create_task(questions.ask(key, hub)) for key in "ab"]
        await settled()
        for key in "abc":
            with pytest.raises(BusyError):
                await questions.ask(key, hub)
        hub.answers.set()
        await asyncio.gather(*asked)
        assert await questions.ask("c", hub) == 3

    run(test)


def test_no_request_waits_longer_than_said() -> None:
    """Neither for the answer, nor in line; what was open is given up, so that others can be asked."""

    async def test() -> None:
        hub, questions = Slow(), Questions[int](at_once=1, waiting=10, seconds=0.1)
        begun = asyncio.get_running_loop().time()
        found = await asyncio.gather(*(questions.ask(key, hub) for key in "abcab"), return_exceptions=True)
        assert {type(item) for item in found} == {BusyError}
        assert asyncio.get_running_loop().time() - begun < 5
        await settled()
        assert (hub.open, questions.waiting, questions.busy) == (0, 0, False)

    run(test)


def test_writer_is_not_satisfied_with_an_earlier_question() -> None:
    """It asks after the one that is open, and other writers of that moment share its question."""

    async def test() -> None:
        hub, questions = Slow(), Questions[int](at_once=8, waiting=100, seconds=5)
        read = asyncio.create_task(questions.ask("a", hub))
        await settled()
        writes = [asyncio.create_task(questions.ask("a", hub, anew=True)) for _ in range(3)]
        late = asyncio.create_task(questions.ask("a", hub))
        await settled()
        assert hub.asked == 1
        hub.answers.set()
        assert await read == 1
        assert await asyncio.gather(*writes, late) == [2] * 4

    run(test)


def test_writer_joins_a_question_that_was_not_sent_yet() -> None:
    """That one is new enough."""

    async def test() -> None:
        hub, questions = Slow(), Questions[int](at_once=1, waiting=100, seconds=5)
        first = asyncio.create_task(questions.ask("other", hub))
        await settled()
        read = asyncio.create_task(questions.ask("a", hub))
        await settled()
        write = asyncio.create_task(questions.ask("a", hub, anew=True))
        await settled()
        hub.answers.set()
        assert list(await asyncio.gather(first, read, write)) == [1, 2, 2]

    run(test)


def test_error_reaches_all_who_share_the_question() -> None:
    """The next request asks again."""

    async def test() -> None:
        questions = Questions[int](at_once=1, waiting=100, seconds=5)

        async def broken() -> int:
            await asyncio.sleep(0)
            raise OSError("no hub")

        found = await asyncio.gather(*(questions.ask("a", broken) for _ in range(3)), return_exceptions=True)
        assert [str(item) for item in found] == ["no hub"] * 3

        async def works() -> int:
            return 7

        assert await questions.ask("a", works) == 7

    run(test)


def test_request_that_ends_early_leaves_the_question_to_the_others() -> None:
    """A page that was closed does not end what another page waits for."""

    async def test() -> None:
        hub, questions = Slow(), Questions[int](at_once=1, waiting=100, seconds=5)
        gone, stays = (asyncio.create_task(questions.ask("a", hub)) for _ in range(2))
        await settled()
        gone.cancel()
        await settled()
        assert questions.waiting == 1
        hub.answers.set()
        assert await stays == 1

    run(test)
