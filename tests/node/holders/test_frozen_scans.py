"""Scans of frozen pods: one proves something, and one of a pod that could not be frozen must be repeated."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu_node.agent.release import MOVING, MOVING_ROUNDS, Release
from jupyter_gpu_node.devices import cgroup, freeze
from jupyter_gpu_node.devices.freeze import FreezeResult
from jupyter_gpu_node.holders import scanner
from tests.cluster.testbed import until
from tests.node.conftest import DEVICES, Child

FORKS = """
ready, gate = os.pipe(), os.pipe()
for _ in range(400):
    if os.fork() == 0:
        os.write(ready[1], b"x")
        os.read(gate[0], 1)
        os._exit(0)
got = 0
while got < 400:
    got += len(os.read(ready[0], 400))
"""
GPU = Gpu(uuid="GPU-0", index=0, model="m", memory=1, device=DEVICES[0])


@pytest.fixture
def group(unified: Path, uid: str) -> Path:
    """A group of a pod."""
    return cgroup.create(unified, uid)


@pytest.mark.root
def test_many_processes_are_frozen(group: Path, spawn: Callable[..., Child]) -> None:
    """Their number is the pod's own choice, so it must not make the proof weaker."""
    child = spawn()
    cgroup.enter(group, child.pid)
    child.run(FORKS)

    def still() -> bool:
        with freeze.frozen(group) as stillness:
            assert len(cgroup.processes(group)) == 401
            return stillness is FreezeResult.STILL

    try:
        until(still, what="all to stand still")  # on a busy machine they may not have their turns in time
    finally:
        child.run("os.write(gate[1], b'x' * 400) and [os.wait() for _ in range(400)] and None")


@pytest.mark.root
def test_scan_names_pods_that_were_not_frozen(
    group: Path, uid: str, spawn: Callable[..., Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has found nothing, and proves nothing; a pod that may not be frozen at all is no reason to wait for ever."""
    child = spawn()
    cgroup.enter(group, child.pid)
    until(lambda: scanner.scan_holders([GPU], {uid: group}, {}).moving == frozenset(), what="it to stand still")
    monkeypatch.setattr(freeze, "await_frozen", lambda _: False)
    assert scanner.scan_holders([GPU], {uid: group}, {}).moving == {uid}
    assert child.run("1 + 1") == 2


def test_moving_pod_is_believed_after_several_scans_over_some_seconds() -> None:
    """Both are needed; and each release begins anew."""
    release = Release()
    assert release.count_scan(False, 0)
    assert [release.count_scan(True, second) for second in (1, 2, 3, 4, 5.9, 6, 7, 8)] == [
        *[False] * 5,
        True,
        False,
        False,
    ]
    assert not Release(unfrozen_scans=1, unfrozen_since=1).count_scan(True, 100)


@given(st.lists(st.tuples(st.booleans(), st.floats(0.01, 3)), max_size=30))
def test_moving_pod_is_never_believed_sooner(scans: list[tuple[bool, float]]) -> None:
    """Since the last scan that was believed there were enough others, over enough time."""
    release, now, begun, count = Release(), 0.0, 0.0, 0
    for moving, pause in scans:
        now += pause
        begun, count = (now if not count else begun), count + 1
        if release.count_scan(moving, now):
            assert not moving or (count >= MOVING_ROUNDS and now - begun >= MOVING)
            count = 0
