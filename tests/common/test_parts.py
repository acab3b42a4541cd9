"""Parts of a process that run until one of them ends."""

import asyncio

import pytest

from jupyter_gpu.common.parts import first_to_end


def test_others_are_ended_with_the_first() -> None:
    """They have ended when its name is returned."""
    ended = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("work")

    async def run() -> frozenset[str]:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_soon(stop.set)
        return await first_to_end({"work": work(), "stop": stop.wait()})

    assert asyncio.run(run()) == {"stop"}
    assert ended == ["work"]


def test_error_of_a_part_is_raised() -> None:
    """The others end as well."""

    async def fail() -> None:
        raise LookupError("gone")

    async def run() -> None:
        await first_to_end({"fails": fail(), "waits": asyncio.Event().wait()})

    with pytest.raises(LookupError, match="gone"):
        asyncio.run(run())
