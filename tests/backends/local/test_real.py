"""Differences where the GPUs are real: other programs of the machine may have them open, and the driver can fail."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpu.backends.local import pod_start as module
from jupyter_gpu.backends.local.pod import Pod
from jupyter_gpu.backends.local.pod_start import PodStart
from jupyter_gpu.backends.local.scans import holder_scan
from jupyter_gpu.backends.local.settings import Settings
from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.errors import BackendUnavailable
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.status import Phase
from jupyter_gpu.model.view import GpuState
from jupyter_gpu_node.gpus import simulated
from tests.devices import first_minor

from .looks_real import LooksReal
from .stage import Nursery, Remote, end_arbiters


@pytest.fixture
def source(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> LooksReal:
    """Two GPUs."""
    monkeypatch.setattr(simulated, "FIRST_MINOR", first_minor())
    made = LooksReal(short_tmp / "gpus", 2)
    monkeypatch.setattr(module, "open_source", lambda *_: made)
    return made


@pytest.fixture
def pod(source: LooksReal, short_tmp: Path) -> Iterator[Pod]:
    """In soft mode: the guard has tests of its own."""
    start = PodStart(Settings(state_dir=short_tmp / "state", enforcement="soft"))
    start.close_gpus()
    made = Pod(start)
    made.reconcile()
    yield made
    made.give_back()
    listener = made.outcome().socket
    assert listener is not None
    listener.close()
    end_arbiters(short_tmp / "state")  # it would write there while the folder is removed


@pytest.fixture
def outside(nursery: Nursery) -> Iterator[Remote]:
    """A program of no pod, such as a display server."""
    made = nursery.actor()
    yield made
    made.end()


def test_process_that_had_the_gpu_before_the_grant_does_not_block(pod: Pod, source: LooksReal, outside: Remote) -> None:
    """A display server keeps its GPU open for ever; the GPU can be given back all the same."""
    for gpu in source.inventory():
        assert outside.ask("open", path=gpu.path) == ""
    pod.request(Wish(1000), None)
    pod.request(Wish(0), None)
    assert pod.outcome().view.status.phase is Phase.IDLE


def test_process_that_opened_the_gpu_later_blocks(pod: Pod, outside: Remote) -> None:
    """A program outside that has the GPU only since it was granted may have it from the pod."""
    pod.request(Wish(1000), None)
    card = pod.outcome().view.gpus[0]
    assert outside.ask("open", path=card.gpu.path) == ""
    pod.request(Wish(0), None)
    view = pod.outcome().view
    assert view.status.phase is Phase.RELEASING
    assert [(user.pid, user.foreign) for user in view.gpus[0].users] == [(outside.pid, True)]
    outside.ask("close", path=card.gpu.path)
    pod.reconcile()
    assert pod.outcome().view.status.phase is Phase.IDLE


def test_a_driver_that_stops_answering_takes_nothing_away(
    pod: Pod, source: LooksReal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All GPUs gone at once is a driver that fails: what is attached stays, is shown as unhealthy, and comes back."""
    pod.request(Wish(1000), None)
    monkeypatch.setattr("jupyter_gpu_node.gpus.registry.INTERVAL", 0.0)
    source.answers = False
    pod.reconcile()
    view = pod.outcome().view
    assert view.total == 2000
    assert (view.status.phase, view.status.attached) == (Phase.DEGRADED, 1000)
    assert view.gpus[0].state is GpuState.UNHEALTHY
    assert "GpusNotReadable" in {condition.type for condition in view.conditions}
    pod.request(Wish(2000), None)
    assert pod.outcome().view.status.attached == 1000
    source.answers = True
    pod.reconcile()
    assert pod.outcome().view.status.phase is Phase.READY
    assert pod.outcome().view.status.attached == 2000


def test_the_driver_is_not_asked_for_every_wish(pod: Pod, source: LooksReal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking takes milliseconds; an answer of a moment ago is good enough for a decision."""
    asked = 0

    def count() -> tuple[Gpu, ...]:
        nonlocal asked
        asked += 1
        return LooksReal.inventory(source)

    monkeypatch.setattr(source, "inventory", count)
    for amount in (1000, 2000, 0):
        pod.request(Wish(amount), None)
    assert asked == 0


def test_failed_scan_releases_nothing(pod: Pod, outside: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error while /proc is searched is no proof: the GPU drains until a scan succeeds and finds no holder."""
    pod.request(Wish(1000), None)
    assert outside.ask("open", path=pod.outcome().view.gpus[0].gpu.path) == ""

    def failing(*_: object, **__: object) -> None:
        raise OSError("too many open files")

    with monkeypatch.context() as broken:
        broken.setattr(holder_scan, "scan", failing)
        with pytest.raises(BackendUnavailable, match="too many open files"):
            pod.request(Wish(0), None)
        for _ in range(3):
            pod.reconcile()
            assert pod.outcome().view.status.phase is Phase.RELEASING
    pod.reconcile()
    assert pod.outcome().view.status.phase is Phase.RELEASING
    outside.ask("close", path=pod.outcome().view.gpus[0].gpu.path)
    pod.reconcile()
    assert pod.outcome().view.status.phase is Phase.IDLE
