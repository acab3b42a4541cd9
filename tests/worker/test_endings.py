"""How the kernels of a worker ended, by what the control groups of either version count."""

from pathlib import Path

import pytest

from jupyter_gpu.worker.endings import Endings


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
