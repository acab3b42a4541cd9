"""Memory by the driver's word: real programs with the gate and around it, on the stand-in driver; the real server."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from jupyter_gpu_node.shares.rules.protocol import Memory, Need
from tests.gate.building import PROGRAMS, Built, command, gate_and_driver
from tests.gate.place import GPU, MIB, Place, Program
from tests.shares.client import Client
from tests.shares.enforcing import EnforcingServer, process, state, until

TERMS = {GPU: {"a": (500, 64 * MIB), "b": (500, 64 * MIB)}}
QUICK = {"context": 16, "untold": 8}
CONTEXT = "12"
"""MiB that a program on the stand-in driver has for its contexts and its code."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The gate, the stand-in driver and the program."""
    found = gate_and_driver(tmp_path_factory.mktemp("memory"))
    command("gcc", "-g", "-O1", "-Wall", "-Werror", PROGRAMS / "around.c", "-o", found.program("around"), "-ldl")
    return found


@pytest.fixture
def place(built: Built, short: Path) -> Place:
    """One GPU."""
    return Place(built, short)


@asynccontextmanager
async def around(place: Place, world: EnforcingServer, pod: str, through: int, more: int) -> AsyncIterator[Program]:
    """A program of that pod that has ``through`` bytes, and takes ``more`` around the gate with each line."""
    env = place.env(pod, world.socket(GPU, pod).parent) | {"JUPYTER_GPU_STANDIN_CONTEXT": CONTEXT}
    arguments = [place.built.program("around"), place.built.driver / "libcuda.so.1", through, more]
    with Program([str(one) for one in arguments], env) as program:
        assert await asyncio.to_thread(program.line) == "ready"
        yield program


async def take(program: Program) -> float:
    """Have it take memory around the gate, and return when."""
    program.tell("more")
    assert await asyncio.to_thread(program.line) == "taken"
    return time.monotonic()


@pytest.mark.parametrize("through", [8 * MIB, 0], ids=["beside the gate", "without the gate"])
def test_memory_around_the_gate_is_charged_and_costs_the_share(place: Place, through: int) -> None:
    """The share's other programs have less of it at once; above the limit the share that took it is stopped.

    The honest neighbour is left alone, and a share that stays within its limit as well.
    """

    async def check() -> None:
        async with EnforcingServer(place.folder, penalties=QUICK) as world:
            await world.set(TERMS)
            async with (
                around(place, world, "a", through, 24 * MIB) as liar,
                around(place, world, "b", 60 * MIB, 0) as honest,
            ):
                other = Client(world.socket(GPU, "a"))
                assert (await asyncio.to_thread(other.need, 0)).size == 0
                begin = await take(liar)
                await until(lambda: world.server.usage(GPU, "a").memory >= 20 * MIB)
                assert time.monotonic() < begin + 2
                while not isinstance(said := await asyncio.to_thread(other.next), Memory) or said.used < 20 * MIB:
                    pass
                free = 64 * MIB - world.server.usage(GPU, "a").memory
                assert (await asyncio.to_thread(other.need, free + MIB)).size == 0
                assert (await asyncio.to_thread(other.need, free)).size == free
                other.send(Need(0))
                asked = world.boards.asked
                await until(lambda: world.boards.asked > asked + 6)
                assert (world.told, world.taken) == ([], [])
                for _ in range(3):
                    await take(liar)
                await until(lambda: world.taken)
                assert {(gpu, pod) for gpu, pod, _ in (*world.told, *world.taken)} == {(GPU, "a")}
                assert "MiB of GPU memory above its limit, which they took without asking for it" in world.told[0][2]
                assert "violation 5 of late" in world.taken[0][2]
                assert state(honest.process.pid) != "T"
                other.close()

    asyncio.run(check())


def test_program_that_holds_memory_without_the_gate_is_stopped(place: Place) -> None:
    """It is stopped although it never used the GPU; a connected program beside it makes for a comparison."""

    async def check() -> None:
        async with EnforcingServer(place.folder, penalties=QUICK) as world:
            await world.set(TERMS)
            async with around(place, world, "a", 0, 96 * MIB) as liar, around(place, world, "b", MIB, 0):
                world.watched = process(liar.process.pid).pid
                await take(liar)
                await until(lambda: world.seen)
                assert world.seen[0] == "T"
                world.watched = 0

    asyncio.run(check())


def test_a_context_and_fragments_are_no_violation(place: Place) -> None:
    """A program with a context and a thousand pieces that has all of its limit: it counts as what it asked for."""

    async def check() -> None:
        async with EnforcingServer(place.folder, penalties={**QUICK, "untold": 0}) as world:
            await world.set(TERMS)
            async with around(place, world, "a", 64 * MIB, 0), around(place, world, "b", 62 * MIB, 0):
                asked = world.boards.asked
                await until(lambda: world.boards.asked > asked + 8)
                assert world.server.usage(GPU, "a").memory == 64 * MIB
                assert (world.told, world.taken) == ([], [])

    asyncio.run(check())


def test_a_new_server_charges_the_same(place: Place) -> None:
    """It learns from the driver what no program tells, and a program that told all is no violator."""

    async def check() -> None:
        async with AsyncExitStack() as programs:
            async with EnforcingServer(place.folder, penalties=QUICK) as world:
                await world.set(TERMS)
                liar = await programs.enter_async_context(around(place, world, "a", 8 * MIB, 24 * MIB))
                await programs.enter_async_context(around(place, world, "b", 60 * MIB, 0))
                await take(liar)
                await until(lambda: world.server.usage(GPU, "a").memory >= 28 * MIB)
            async with EnforcingServer(place.folder, penalties=QUICK) as again:
                await again.set(TERMS)
                await until(lambda: again.server.usage(GPU, "a").memory >= 28 * MIB)
                await until(lambda: again.server.usage(GPU, "b").memory >= 60 * MIB)
                asked = again.boards.asked
                await until(lambda: again.boards.asked > asked + 6)
                assert (again.told, again.taken) == ([], [])

    asyncio.run(check())


def test_unknown_memory_charges_no_share(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """A driver that reports no memory is logged once."""

    async def check() -> None:
        async with EnforcingServer(place.folder, penalties=QUICK) as world:
            world.boards.hidden = True
            await world.set(TERMS)
            async with around(place, world, "a", 8 * MIB, 96 * MIB) as liar, around(place, world, "b", MIB, 0):
                await take(liar)
                asked = world.boards.asked
                await until(lambda: world.boards.asked > asked + 8)
                assert world.server.usage(GPU, "a").memory < 32 * MIB
                assert (world.told, world.taken) == ([], [])

    with caplog.at_level(logging.WARNING):
        asyncio.run(check())
    assert [GPU in one.getMessage() for one in caplog.records if "does not say how much memory" in one.message] == [
        True
    ]


def test_memory_is_not_compared_without_need(place: Place) -> None:
    """No comparison is made while no program is connected, and where one share without a limit has the GPU alone."""

    async def check() -> None:
        async with EnforcingServer(place.folder, penalties=QUICK) as world:
            await world.set({GPU: {"a": 500}})
            async with around(place, world, "a", MIB, 0):
                await asyncio.sleep(1)
                assert world.boards.asked == 0
                await world.set(TERMS)
                await until(lambda: world.boards.asked)
            await until(lambda: not world.server.connected())
            await asyncio.sleep(0.6)  # two comparisons more, as something was there at the last one
            asked = world.boards.asked
            await asyncio.sleep(1)
            assert world.boards.asked == asked

    asyncio.run(check())
