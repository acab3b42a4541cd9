"""Scans for the open GPUs of many pods: what one pod has costs the others nothing."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu_node.agent import use_classes
from jupyter_gpu_node.processes import device_scan
from jupyter_gpu_node.processes.rules import scan_budget
from tests.node.conftest import Child


def group(folder: Path, name: str, child: Child) -> Path:
    """Return a directory that looks like a control group with that process."""
    made = folder / name
    made.mkdir()
    (made / "cgroup.procs").write_text(f"{child.pid}\n")
    return made


def opened(pods: Mapping[str, tuple[Path, list[Gpu]]]) -> dict[str, set[str]]:
    """Return the uuids that each pod has open."""
    return {uid: set(found) for uid, found in use_classes.open_of_each(pods).items()}


def test_scan_of_a_pod_ends_at_its_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Descriptors left unread count as not open; its neighbour is scanned as ever."""
    monkeypatch.setattr(device_scan, "EACH", scan_budget.PROCESS + scan_budget.THREAD + 100)
    path = tmp_path / "gpu0"
    path.touch()
    gpu = Gpu("GPU-0", 0, "Simulated GPU", 2**30, path=str(path))
    large, small = Child(), Child()
    try:
        for child in (large, small):
            child.run(f"held = os.open({str(path)!r}, os.O_RDONLY)")
        large.run("many = [os.dup(held) for _ in range(200)]")
        pods = {"large": (group(tmp_path, "a", large), [gpu]), "small": (group(tmp_path, "b", small), [gpu])}
        assert opened(pods) == {"large": set(), "small": {"GPU-0"}}
        large.run("[os.close(one) for one in many]")
        assert opened(pods) == {"large": {"GPU-0"}, "small": {"GPU-0"}}
        assert [one.pid for one in use_classes.open_of_each(pods)["small"]["GPU-0"]] == [small.pid]
    finally:
        large.end()
        small.end()


def test_pod_without_gpus_is_not_scanned(tmp_path: Path) -> None:
    """Its group is not even read."""
    (tmp_path / "cgroup.procs").write_text(f"{os.getpid()} what no kernel writes\n")
    assert use_classes.open_of_each({"idle": (tmp_path, [])}) == {}
