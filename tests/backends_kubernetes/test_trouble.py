"""Trouble with the cluster: shown when it lasts, and over at once."""

import asyncio

from jupyter_gpu.backends.kubernetes import trouble
from jupyter_gpu.backends.kubernetes.trouble import Trouble


def test_only_lasting_trouble_is_shown() -> None:
    """One of two reasons is shown until both are over; a reason that changes is shown again."""

    async def play() -> None:
        told: list[str] = []
        found = Trouble(told.append)
        pause = 1.5 * trouble.GRACE
        found.set("server", "cut")
        found.set("server", "")
        await asyncio.sleep(pause)
        assert told == [""]
        found.set("node", "away")
        found.set("node", "away")
        await asyncio.sleep(pause)
        found.set("server", "refused")
        found.set("node", "")
        await asyncio.sleep(pause)
        found.set("server", "")
        assert told == ["", "away", "refused", ""]
        found.set("server", "late")
        found.silence()
        await asyncio.sleep(pause)
        assert told[-1] == ""

    asyncio.run(play())
