"""GPU-hours of a machine's users: counted by a process of root from the records of real servers."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpu.common import faults, limits_file
from jupyter_gpu.model.limits.machine_accounts import MachineAccounts, read_accounts
from jupyter_gpu.model.limits.machine_file import HUB
from jupyter_gpu.model.limits.owner import Owner
from tests.backends.local.limits.test_users import ANN, BOB, lowered, put, server, types, view
from tests.backends.local.stage import Remote, Stage, wait_for
from tests.model.limits.test_machine_file import limit

pytestmark = pytest.mark.root


class Counting:
    """The process that counts, on one machine."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.copy = stage.state / limits_file.ACCOUNTS
        self.lasting = stage.state.parent / "lasting" / limits_file.ACCOUNTS
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, **environment: str) -> subprocess.Popen[bytes]:
        """Start it."""
        words = ["--state-dir", str(self.stage.state), "--folder", str(self.lasting.parent)]
        command = [sys.executable, "-m", "jupyter_gpu.backends.local.accounting", *words]
        self._started.append(subprocess.Popen(command, env={**os.environ, **environment}))
        return self._started[-1]

    def kill(self) -> None:
        """Kill all that were started."""
        for process in self._started:
            process.kill()
            process.wait()

    def counts(self) -> None:
        """Wait until it counts."""
        wait_for(lambda: _accounts(self.copy).boot, "the first accounts")

    def holds(self, user: int) -> int:
        """Return the milli that a user holds, as servers read it."""
        account = _accounts(self.copy).accounts.get(Owner("User", str(user), HUB)) if self.copy.exists() else None
        return account.used if account else 0

    def used(self, user: int) -> int:
        """Return the milli-GPU-seconds of a user, in the file that lasts."""
        account = _accounts(self.lasting).accounts.get(Owner("User", str(user), HUB))
        return sum(account.hours.values()) if account else 0


def _accounts(path: Path) -> MachineAccounts:
    return read_accounts(path.read_bytes()) if path.exists() else MachineAccounts("", 0, {})


@pytest.fixture
def counting(stage: Stage) -> Iterator[Counting]:
    """Return the process that counts, not started yet, on a machine where nobody has GPUs."""
    stage.state.mkdir(mode=0o1777)
    stage.state.chmod(0o1777)
    stage.server()  # root's, which makes devices
    made = Counting(stage)
    yield made
    made.kill()


def take(stage: Stage, user: int, milli: int) -> Remote:
    """Start a server of a user, which takes so much."""
    actor = stage.actor()
    actor.ask("become", user=user, reads=True)
    made = stage.server(actor)
    made.ask("request", milli=milli)
    return made


def test_gpu_time_is_counted_from_the_grant_to_the_end(stage: Stage, counting: Counting) -> None:
    """All servers of a user together; what a killed server had is used until the last process of its pod has ended."""
    counting.start()
    counting.counts()
    begin = time.monotonic()
    first, second = take(stage, ANN, 1000), take(stage, ANN, 500)
    kernel = stage.kernel(second)
    take(stage, BOB, 250)
    wait_for(lambda: (counting.holds(ANN), counting.holds(BOB)) == (1500, 250), "the use of both")
    second.kill()
    time.sleep(0.5)
    assert counting.holds(ANN) == 1500
    kernel.kill()
    wait_for(lambda: counting.holds(ANN) == 1000, "the end of the pod")
    time.sleep(1)
    first.ask("request", milli=0)
    wait_for(lambda: counting.holds(ANN) == 0, "the end of use")
    assert 1500 < counting.used(ANN) < 1500 * (time.monotonic() - begin)


@pytest.mark.parametrize("point", faults.ACCOUNT_POINTS)
def test_killed_anywhere_it_goes_on_from_what_it_wrote(stage: Stage, counting: Counting, point: str) -> None:
    """Time in which a pod holds GPUs meanwhile counts, and the copy for servers follows the file that lasts."""
    counting.start()
    counting.counts()
    ann = take(stage, ANN, 1000)
    begin = time.monotonic()
    wait_for(lambda: counting.holds(ANN) == 1000, "the use")
    assert counting.start().wait(60) == 1  # there is one already
    counting.kill()
    assert counting.start(**{faults.VARIABLE: point}).wait(60) == -signal.SIGKILL
    time.sleep(1)
    counting.start()
    ann.ask("request", milli=0)
    wait_for(lambda: counting.holds(ANN) == 0, "the end of use")
    most = time.monotonic() - begin + 1
    assert 1000 < counting.used(ANN) < 1000 * most
    assert _accounts(counting.lasting) == _accounts(counting.copy)


def test_used_up_budget_takes_back_what_is_above_the_guaranteed_amount(stage: Stage, counting: Counting) -> None:
    """Nobody writes or asks anything: the server foresees the moment. Where nothing counts, a budget is used up."""
    budget = {"gpuHours": "0.0028", "window": "Month"}
    put(stage, limit("User", str(ANN), max=2, guaranteed=0.5, grace="0s", budget=budget))
    ann = server(stage, ANN)
    assert "LimitsUnusable" in types(ann)
    assert view(ann)["limit"] == 500
    counting.start()
    wait_for(lambda: view(ann)["limit"] == 2000, "the budget to be counted")
    assert "LimitsUnusable" not in types(ann)
    ann.ask("request", milli=2000)
    wait_for(lambda: view(ann)["amounts"]["allocated"] == 500, "the end of the budget")
    assert "used-up budget" in view(ann)["limit_source"]
    assert not lowered(ann)
    wait_for(lambda: counting.holds(ANN) == 500, "the accounts")
    assert counting.used(ANN) >= 10_000


def test_files_that_cannot_be_kept_are_told(stage: Stage, counting: Counting) -> None:
    """A damaged file is not begun anew: that would lift every budget."""
    counting.lasting.parent.mkdir()
    counting.lasting.write_text("{")
    assert counting.start().wait(60) == 1
    shutil.rmtree(counting.lasting.parent)
    counting.lasting.parent.write_text("")
    assert counting.start().wait(60) == 1
    assert not counting.copy.exists()
