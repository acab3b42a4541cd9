"""The process that stands by to be a Dask worker: a real process, taken once, and replaced."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jupyter_gpu.common.rules.visible import OURS, VISIBLE
from jupyter_gpu.dask.rules.words import Work
from jupyter_gpu.dask.standby import VARIABLE, Standby
from jupyter_gpu.model import strict
from tests.kernel.servers import await_
from tests.worker.test_processes import gone

WORD = Work("", "gpu1://here:1", "GPU-1", (), "here", 1, {VISIBLE: "GPU-1"})
"""It leads to no scheduler: here nobody works."""


@pytest.fixture
def standby() -> Iterator[Standby]:
    """Return one that may start a process from second 1 on."""
    made = Standby(0.0)
    yield made
    made.end()


def test_it_is_taken_once_and_another_follows(standby: Standby, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker is the process that stood by, whatever GPUs its program sees meanwhile."""
    standby.look(0.9)
    assert standby.pid == 0
    standby.look(1.0)
    first = standby.pid
    assert first
    for name in (VISIBLE, OURS):
        monkeypatch.setenv(name, "GPU-7")
    worker = standby.work(WORD, 5.0)
    assert (worker.pid, standby.pid) == (first, 0)
    standby.look(5.9)
    assert standby.pid == 0
    standby.look(6.0)
    assert standby.pid not in (0, first)
    worker.end(0)


@pytest.mark.parametrize(
    "change",
    [lambda patch, _: patch.setenv("OTHER", "1"), lambda patch, path: patch.chdir(path)],
    ids=["variable", "folder"],
)
def test_a_worker_has_what_its_program_has_then(
    standby: Standby, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, change: Callable[..., None]
) -> None:
    """One that stood by with other variables, or elsewhere, is of no use: it ends, and the worker is a new process."""
    standby.look(1.0)
    first = standby.pid
    change(monkeypatch, tmp_path)
    worker = standby.work(WORD, 2.0)
    assert worker.pid != first
    assert gone(first)
    worker.end(0)


def test_one_that_ends_is_replaced_after_longer_and_longer_pauses(standby: Standby) -> None:
    """So that a machine without memory for it has rest."""
    standby.look(1.0)
    for died, before, after in ((10.0, 10.9, 11.0), (20.0, 21.9, 22.0)):
        pid = standby.pid
        os.kill(pid, signal.SIGKILL)
        await_(lambda: not standby.lives)
        standby.look(died)
        standby.look(before)
        assert standby.pid == 0
        standby.look(after)
        assert standby.pid not in (0, pid)


def test_variable_switches_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers start as they are needed; another value is an error."""
    monkeypatch.setenv(VARIABLE, "0")
    without = Standby(0.0)
    without.look(100.0)
    assert without.pid == 0
    worker = without.work(WORD, 101.0)
    assert worker.pid
    worker.end(0)
    monkeypatch.setenv(VARIABLE, "yes")
    with pytest.raises(strict.FieldError, match="must be 0 or 1"):
        Standby(0.0)
