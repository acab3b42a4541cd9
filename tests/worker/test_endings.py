"""How the kernels of a worker ended, by what the control groups of either version count."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpu.worker.endings import Endings, files, here
from tests.shares.world import until


@pytest.mark.parametrize("before", ["low 0\noom 3\noom_kill %d\noom_group_kill 1\n", "under_oom 0\noom_kill %d"])
def test_want_of_memory_is_told(tmp_path: Path, before: str) -> None:
    """It is said of a kernel that was killed while the count grew, and of no other."""
    file = tmp_path / "events"
    file.write_text(before % 4)
    endings = Endings((tmp_path / "none", file))
    endings.add("killed", -9)
    file.write_text(before % 5)
    endings.add("filled", -9)
    file.write_text(before % 6)
    endings.add("left", 0)
    told = {name: endings.told(name, alive=False).memory for name in ("killed", "filled", "left", "other")}
    assert told == {"killed": False, "filled": True, "left": False, "other": False}
    assert not endings.told("filled", alive=True).memory


def test_few_kernels_are_remembered(tmp_path: Path) -> None:
    """The oldest is forgotten, and a file that cannot be read counts nothing."""
    file = tmp_path / "events"
    file.write_text("oom_kill many")
    endings = Endings((file,))
    for number in range(65):
        file.write_text(f"oom_kill {number + 1}")
        endings.add(str(number), -9)
    assert [endings.told(str(number), alive=False).memory for number in (0, 1, 64)] == [False, True, True]


@pytest.mark.parametrize(
    ("groups", "found"),
    [
        ("0::/\n", ["memory.events"]),
        ("0::/user.slice/a:b\n", ["user.slice/a:b/memory.events", "user.slice/memory.events", "memory.events"]),
        ("9:pids:/p\n4:memory:/pods/one\n", [f"memory/{at}memory.oom_control" for at in ("pods/one/", "pods/", "")]),
        ("4:memory:/\n0::/x\n", ["x/memory.events", "memory.events", "memory/memory.oom_control"]),
    ],
)
def test_files_of_the_own_groups(groups: str, found: list[str]) -> None:
    """From the own group up to what is mounted; both versions where both are there (cgroups(7))."""
    assert list(files(groups, Path("/g"))) == [Path("/g") / one for one in found]


@pytest.fixture
def group() -> Iterator[Path]:
    """Make a control group of version 1 that has little memory."""
    own = next((file for file in here() if file.exists()), None)
    if own is None or own.name != "memory.oom_control" or not os.access(own.parent, os.W_OK):
        pytest.skip("not run: needs control groups of version 1, and to make one")
    made = own.parent / f"jg-endings-{os.getpid()}"
    made.mkdir()
    try:
        (made / "memory.limit_in_bytes").write_text(str(400 * 2**20))
        yield made
    finally:
        until(lambda: not (made / "cgroup.procs").read_text(), "the group to be empty")
        made.rmdir()


NOTEBOOK = """
import sys
from pathlib import Path

from jupyter_gpu.remote.connection import Connection
from jupyter_gpu.remote.errors import WorkerLost
from jupyter_gpu.remote.local_worker import LocalWorker

Path(sys.argv[1], "cgroup.procs").write_text("0")
worker = LocalWorker()
for code in ("import os; os.kill(os.getpid(), 9)", "filled = bytearray(b'x') * 2**30"):
    try:
        Connection(worker.address, str(len(code)), "/").run(code)
    except WorkerLost as error:
        print(error)
worker.close()
"""
"""Has a group of its own: the kernel ends the largest process of a full one, and that of the tests is large."""


@pytest.mark.root
def test_memory_of_a_group_on_this_machine(group: Path) -> None:
    """A cell that fills it fails with the reason, which a kernel that is killed does not."""
    command = [sys.executable, "-c", NOTEBOOK, str(group)]
    killed, full = subprocess.run(command, check=True, capture_output=True, text=True, timeout=100).stdout.splitlines()
    assert "has ended" in killed
    assert "The worker on this machine has no memory left" in full
