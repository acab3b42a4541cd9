"""Load on the hub's service: users whose pages ask at a steady rate, through a real hub's proxy.

Requests are sent at fixed times, whether earlier ones were answered or not, and the time of an answer counts from when
its request was due: a service that falls behind is not spared. Most users ask less often than the service remembers
the hub's answer about a token, so it would ask the hub for nearly each request; the baseline is that bare call.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp

from .figures import CannotRunError, Figure
from .hub_size import resident

if TYPE_CHECKING:
    from tests.hub_service.world import World

USERS, PER_SECOND = 1000, 200
ADMINS = 0.05
"""Part of the requests that are an administrator's, for a page of the table."""
CONNECTIONS = 6
"""Connections in each round that measures how many requests are answered one after another."""
ROUND = 3.0
"""Seconds of one."""
ME, TABLE, BARE = "/services/gpu/api/v1/me", "/services/gpu/api/v1/subjects?size=50", "/hub/api/user"
EXPECTED = (200, 304, 429, 503)

Send = Callable[[str, str], Awaitable[int]]


def measure(seconds: float, command: str, users: int = USERS, per_second: float = PER_SECOND) -> Sequence[Figure]:
    """Measure milliseconds until the answer, refusals, memory, and the time that a request takes."""
    try:
        from tests.hub import PROXY
        from tests.hub_service.world import HUB, running
    except ImportError as error:
        raise CannotRunError(f"the test hub is not there: {error}") from None
    if not PROXY.exists():
        raise CannotRunError("the hub's proxy is not installed: scripts/test does it")
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as world:
        world.service.restart(mirrorSeconds=10, usersSeconds=60)
        tokens = _users(world, users)
        names = [f"load-{number}" for number in range(0, users, 10)]
        edits = [{"subject": {"kind": "User", "name": name, "hub": HUB}, "set": {"max": 2}} for name in names]
        if world.limits.gpu("POST", "limits/bulk", {"edits": edits}).status != 200:
            raise CannotRunError("the service did not take the limits")
        waits, statuses, one, bare = asyncio.run(_measure(world, tokens, seconds, per_second))
        process = world.service.process
        assert process is not None
        alive = process.poll() is None and world.limits.gpu("GET", "limits").status == 200
        memory = resident(process.pid) if alive else 0.0
    total = sum(statuses.values())
    wrong = sum(count for status, count in statuses.items() if status not in EXPECTED)
    name = f"hub's service, {users:,} users, {per_second:.0f} requests/s for {seconds:.0f} s"
    return [
        Figure.of(f"{name}: answer, p50", "ms", waits, command, goal=500),
        Figure.of(f"{name}: answer, p99", "ms", waits, command, at=99, goal=6000),
        Figure(f"{name}: refused for a while (429, 503)", "%", 100 * _refused(statuses) / total, command),
        Figure(f"{name}: other answers than 200, 304, 429, 503", "", float(wrong), command, goal=0),
        Figure(f"{name}: service ended", "", float(not alive), command, goal=0),
        Figure(f"{name}: memory with the client for a kubeconfig", "MB", memory, command, goal=100),
        Figure(f"hub's service, {CONNECTIONS} connections: time for each answer", "ms", one, command, baseline=bare),
    ]


def _refused(statuses: Counter[int]) -> int:
    return statuses[429] + statuses[503]


def _users(world: World, count: int) -> list[str]:
    names = [f"load-{number}" for number in range(count)]
    for first in range(0, count, 100):
        world.script.hub_api("POST", "users", {"usernames": names[first : first + 100]})
    return [world.token(name).token for name in names]


async def _measure(
    world: World, tokens: Sequence[str], seconds: float, per_second: float
) -> tuple[list[float], Counter[int], float, float]:
    connector, patience = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(60)
    async with aiohttp.ClientSession(world.address, connector=connector, timeout=patience) as session:

        async def send(path: str, token: str) -> int:
            try:
                async with session.get(path, headers={"Authorization": f"token {token}"}) as answer:
                    await answer.read()
                    return answer.status
            except (aiohttp.ClientError, TimeoutError):
                return 0

        await send(TABLE, world.limits.token)
        waits, statuses = await _at_a_rate(send, tokens, world.limits.token, seconds, per_second)
        # In turn, so that both run under the same load of the machine.
        rounds = [await _one_after_another(send, path, tokens) for path in (ME, BARE) * 3]
    return waits, statuses, min(rounds[0::2]), min(rounds[1::2])


async def _at_a_rate(
    send: Send, tokens: Sequence[str], admin: str, seconds: float, per_second: float
) -> tuple[list[float], Counter[int]]:
    source, loop = random.Random(1), asyncio.get_running_loop()
    waits: list[float] = []
    statuses: Counter[int] = Counter()

    async def one(due: float) -> None:
        path, token = (TABLE, admin) if source.random() < ADMINS else (ME, source.choice(tokens))
        statuses[await send(path, token)] += 1
        waits.append((loop.time() - due) * 1000)

    begun = loop.time()
    async with asyncio.TaskGroup() as tasks:
        for number in range(int(seconds * per_second)):
            due = begun + number / per_second
            await asyncio.sleep(max(0.0, due - loop.time()))
            tasks.create_task(one(due))
    return waits, statuses


async def _one_after_another(send: Send, path: str, tokens: Sequence[str]) -> float:
    """Return milliseconds for each answer, with a few connections that are always busy."""
    end, answers = time.monotonic() + ROUND, 0

    async def one(number: int) -> None:
        nonlocal answers
        while time.monotonic() < end:
            number = (number + CONNECTIONS) % len(tokens)
            if await send(path, tokens[number]) == 200:
                answers += 1

    await asyncio.gather(*(one(number) for number in range(CONNECTIONS)))
    return ROUND * 1000 / max(1, answers)
