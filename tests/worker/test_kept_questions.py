"""Connections to a first process that are kept between questions."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from jupyter_gpu.kernel.blocks import owner
from jupyter_gpu.remote import kept_questions
from jupyter_gpu.remote.connection import Connection
from jupyter_gpu.remote.errors import WorkerLost, WorkerRefused
from jupyter_gpu.remote.first_process import Questions, WorkerAddress
from jupyter_gpu.remote.kept_questions import KeptQuestions
from jupyter_gpu.remote.local_worker import LocalWorker
from jupyter_gpu.remote.rules.control import Kill, Killed, Look, Running, Start
from tests.shares.world import until
from tests.worker.test_connection import ran


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Questions]:
    """Return the connections that are made."""
    found: list[Questions] = []

    def make(address: WorkerAddress, patience: float) -> Questions:
        found.append(Questions(address, patience))
        return found[-1]

    monkeypatch.setattr(kept_questions, "Questions", make)
    return found


@pytest.fixture
def kept_for_a_while() -> Iterator[KeptQuestions]:
    """Make the connections of a process."""
    asking = KeptQuestions()
    yield asking
    asking.close()


def test_one_connection_for_several_questions(
    worker: LocalWorker, kept_for_a_while: KeptQuestions, made: list[Questions]
) -> None:
    """Also after a refusal, and for the start and the end of a kernel."""
    ask = kept_for_a_while.ask
    assert ask(worker.address, Look()) == Running(())
    with pytest.raises(WorkerRefused, match="Python"):
        ask(worker.address, Start("old", "/", "2.7.18", owner()))
    kernel = Connection(worker.address, "asked", "/", ask=ask)
    assert ran(kernel, "print(1)") == "1\n"
    kernel.end(5)
    assert ask(worker.address, Kill("none")) == Killed("none")
    assert len(made) == 1


def test_two_threads_have_one_each(
    worker: LocalWorker, kept_for_a_while: KeptQuestions, made: list[Questions], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them is kept; its socket is used by one thread at a time."""
    both = threading.Barrier(2)
    real = Questions.ask

    def slowly(self: Questions, word: Look, patience: float | None = None) -> object:
        both.wait(60)
        return real(self, word, patience)

    monkeypatch.setattr(Questions, "ask", slowly)
    threads = [threading.Thread(target=kept_for_a_while.ask, args=(worker.address, Look())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    monkeypatch.setattr(Questions, "ask", real)
    kept_for_a_while.ask(worker.address, Look())
    assert len(made) == 2
    assert sum(one._context.closed for one in made) == 1


def test_idle_connection_is_closed(worker: LocalWorker, made: list[Questions]) -> None:
    """Without another question; the next one makes another."""
    asking = KeptQuestions(0.05)
    asking.ask(worker.address, Look())
    until(lambda: made[0]._context.closed)
    asking.ask(worker.address, Look())
    assert len(made) == 2
    asking.close()
    assert made[1]._context.closed


def test_worker_that_ended(kept_for_a_while: KeptQuestions, made: list[Questions]) -> None:
    """It is noticed before it is asked, or by a second connection."""
    first = LocalWorker()
    kept_for_a_while.ask(first.address, Look())
    first.close()
    until(lambda: made[0].ended)
    with pytest.raises(WorkerLost):
        kept_for_a_while.ask(first.address, Look(), 0.2)
    assert made[0]._context.closed
    assert len(made) == 1


def test_connection_that_ended_alone(
    worker: LocalWorker, kept_for_a_while: KeptQuestions, made: list[Questions], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question is asked again over another one."""
    kept_for_a_while.ask(worker.address, Look())

    def lost(_: Look, __: float) -> None:
        raise WorkerLost("as the network was cut")

    monkeypatch.setattr(made[0], "ask", lost)
    assert kept_for_a_while.ask(worker.address, Look()) == Running(())
    assert len(made) == 2
    assert made[0]._context.closed
