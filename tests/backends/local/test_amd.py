"""AMD's GPUs on one machine: a tree of files in place of the driver, with devices of their real numbers."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpu.backends.local import Settings, read_vendors, sources
from jupyter_gpu.backends.local.processes.identity import FIRST_NAMESPACE, namespace
from jupyter_gpu.backends.local.records.store import StateStore
from tests.backends.local.stage import Stage, states, wait_for
from tests.node.gpus.amd_files import AmdFiles

pytestmark = pytest.mark.root


@pytest.fixture
def drm() -> Iterator[list[str]]:
    """The devices of two GPUs of AMD's, which no driver answers for."""
    directory = Path(tempfile.mkdtemp(prefix="jupyter-gpu-test-", dir="/dev"))  # /tmp is often mounted without devices
    paths = [directory / f"renderD{minor}" for minor in (128, 129)]
    for path in paths:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(226, int(path.name[-3:])))
    yield [str(path) for path in paths]
    shutil.rmtree(directory)


machine = pytest.mark.skipif(namespace() != FIRST_NAMESPACE, reason="AMD's GPUs are not used in such a container")


@pytest.fixture
def files(tmp_path: Path) -> AmdFiles:
    """A machine with two GPUs."""
    made = AmdFiles(tmp_path / "sys")
    made.add()
    made.add()
    return made


@machine
def test_gpus_are_found_given_and_released(stage: Stage, files: AmdFiles, drm: list[str]) -> None:
    """The driver hides them from the server once it has guarded itself; what it keeps for a program is not free."""
    actor = stage.actor()
    if actor.ask("open", path=drm[0]) == "EPERM":
        pytest.skip("this machine itself denies these devices")
    actor.ask("amd", system=str(files.system))
    view = stage.start(actor, simulated_gpus=0)
    assert (view["mode"], view["total"], view["steps"]) == ("enforced", 2000, [0, 1000, 2000])
    assert [kind["vendor"] for kind in view["kinds"]] == ["amd"]
    for index in range(2):  # an open that the guard refuses fails as a read that the driver refuses
        properties = files.node(index) / "properties"
        properties.unlink()
        properties.symlink_to(drm[index])
    kernel = stage.kernel(actor)
    view = actor.ask("request", milli=1000)
    assert [(gpu["uuid"], gpu["state"]) for gpu in view["gpus"]] == [(files.uuid(0), "attached")]
    assert [kernel.ask("open", path=path) == "EPERM" for path in drm] == [False, True]
    files.keep(kernel.pid, 0)
    view = actor.ask("request", milli=0)
    assert states(view) == [(0, "draining")]
    assert [user["pid"] for user in view["gpus"][0]["users"]] == [kernel.pid]
    assert [kernel.ask("open", path=path) == "EPERM" for path in drm] == [True, True]
    shutil.rmtree(files.kfd / "proc" / str(kernel.pid))
    wait_for(lambda: actor.ask("view")["phase"] == "Idle", "the GPU to be free")


def test_container_with_process_numbers_of_its_own_gets_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The driver's record could not be read there, which is part of the proof of a release."""
    monkeypatch.setattr(sources, "namespace", lambda: 4026539999)
    settings = Settings(vendors=read_vendors(["nvidia", "amd"]))
    with pytest.raises(ValueError, match="process numbers of its own"):
        sources.open_source(settings, StateStore(tmp_path), lambda pid: None, lambda: False)


@machine
def test_part_of_a_gpu_is_refused(stage: Stage, files: AmdFiles) -> None:
    """Their time cannot be shared."""
    actor = stage.actor()
    actor.ask("amd", system=str(files.system))
    stage.start(actor, simulated_gpus=0, enforcement="soft")
    with pytest.raises(RuntimeError, match="amd"):
        actor.ask("request", milli=500)
    assert actor.ask("request", milli=2000)["phase"] == "Ready"
