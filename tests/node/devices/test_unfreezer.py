"""A frozen pod runs on although the process that froze it has died."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_gpu_node.devices import cgroup, unfreezer
from tests.cluster.testbed import until
from tests.node.conftest import Child

pytestmark = pytest.mark.root

HOLDER = """
import os, signal, sys
from pathlib import Path
from jupyter_gpu_node.devices.freeze import FreezeResult, frozen
with frozen(Path(sys.argv[1])) as still:
    print(still is FreezeResult.STILL, flush=True)
    sys.stdin.readline()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def group(unified: Path, uid: str, spawn: Callable[..., Child]) -> Path:
    """A group with a process."""
    made = cgroup.create(unified, uid)
    cgroup.enter(made, spawn().pid)
    return made


def stands(group: Path) -> bool:
    return "frozen 1" in (group / "cgroup.events").read_text()


def test_pod_is_unfrozen_when_its_freezer_is_killed(group: Path) -> None:
    """By SIGKILL: no handler runs."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(group)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        assert stands(group)
        holder.stdin.write("\n")
        holder.stdin.flush()
        assert holder.wait(60) == -signal.SIGKILL
    until(lambda: not stands(group), what="the pod to run")


def test_released_group_is_left_alone(group: Path) -> None:
    """Another process may have frozen it by then; and a clean-up process that ended is started again."""
    made = unfreezer.Unfreezer()
    made.hold(group)
    assert made.cleanup.pid is not None
    os.kill(made.cleanup.pid, signal.SIGKILL)
    os.waitid(os.P_PID, made.cleanup.pid, os.WEXITED | os.WNOWAIT)
    made.hold(group)
    made.release(group)
    (group / "cgroup.freeze").write_text("1")
    try:
        until(lambda: stands(group), what="the group to be frozen")
        made.close()
        made.close()
        assert stands(group)
    finally:
        (group / "cgroup.freeze").write_text("0")


def test_freezing_without_a_cleanup_process_is_refused() -> None:
    """Without the process nothing is frozen; a name that would be two lines is refused."""
    made = unfreezer.Unfreezer()
    with pytest.raises(OSError, match="cannot be held"):
        made.hold(Path("a\nb"))
    made.close()
    unable = unfreezer.Unfreezer("/nowhere/python")
    with pytest.raises(OSError, match="nowhere"):
        unable.hold(Path("/sys"))
    assert not unable.cleanup.held
    unfreezer.Unfreezer().release(Path("/sys"))
