"""The folder that decides what programs open for the driver: what it leads to, and which users can change it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_gpu.backends.local.sharing import front
from jupyter_gpu_node.shares import gate_files
from tests.gate.building import build_standin_nvml

NAMES = {"libcuda.so.1", "libcuda.so", front.BEHIND}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's, which is empty; nothing is known of drivers."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(front, "found_drivers", {})
    monkeypatch.setattr(front, "temporary_folders", [])
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / "cache" / "jupyter-gpu" / "driver"


def made(*search: Path | str, before_nvml: bool = False) -> Path:
    """For programs with that search path."""
    folder = front.folder({"LD_LIBRARY_PATH": ":".join(map(str, search))}, before_nvml=before_nvml)
    assert folder
    return Path(folder)


def test_it_leads_to_the_gate_and_to_the_driver(standin: Path, cache: Path) -> None:
    """The driver is the one that these programs would find; no other user can change the folder."""
    folder = made("/nowhere", standin)
    assert folder.parent == cache
    assert {one.name for one in folder.iterdir()} == NAMES
    assert (folder / front.BEHIND).readlink() == standin / "libcuda.so.1"
    gate = gate_files.local()
    assert gate
    assert all((folder / name).samefile(gate) for name in NAMES - {front.BEHIND})
    assert (folder.stat().st_mode | cache.stat().st_mode) & 0o077 == 0
    assert made(standin) == folder


def test_permissive_umask_opens_the_folder_to_no_other_user(standin: Path, cache: Path) -> None:
    """Users with a group of their own often have such a umask."""
    before = os.umask(0)
    try:
        folder = made(standin)
    finally:
        os.umask(before)
    assert folder.parent == cache
    assert folder.stat().st_mode & 0o077 == 0


def test_a_server_within_another_finds_the_driver_and_not_the_others_gate(standin: Path, cache: Path) -> None:
    """Started in a terminal, it has the folder of the first in its search path; a link to a link would be no driver."""
    folder = made(standin)
    assert cache in folder.parents
    assert front.driver_of({"LD_LIBRARY_PATH": f"{folder}:{standin}"}) == standin / "libcuda.so.1"
    assert set(front.found_drivers) == {str(standin)}  # the loader was not asked what stands behind that folder


def test_each_driver_has_a_folder_of_its_own(standin: Path, cache: Path, tmp_path: Path) -> None:
    """A kernel with another search path uses another driver; folders of running programs never change."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "libcuda.so.535").write_bytes((standin / "libcuda.so.1").read_bytes())
    (other / "libcuda.so.1").symlink_to("libcuda.so.535")
    first, second = made(standin), made(other)
    assert first != second
    assert {first.parent, second.parent} == {cache}
    assert (second / front.BEHIND).readlink() == other / "libcuda.so.1"  # which an update of the driver leaves there


def test_there_is_none_where_programs_find_no_driver(cache: Path, tmp_path: Path) -> None:
    """Nothing is made then; a driver that is installed later is found."""
    search = {"LD_LIBRARY_PATH": str(tmp_path)}
    if front.driver_of({}) is not None:
        pytest.skip("this machine has a driver")
    assert front.folder(search) is None
    assert not cache.exists()
    library = tmp_path / "libcuda.so.1"
    subprocess.run(["gcc", "-shared", "-x", "c", "/dev/null", "-Wl,-soname,libcuda.so.1", "-o", library], check=True)
    assert front.driver_of(search) == library


@pytest.mark.parametrize(
    ("version", "stands"), [("580.126.09", True), ("595.10", True), ("570.10", False), ("1", False)]
)
def test_it_leads_to_nvml_where_a_process_can_be_parked(
    standin: Path, cache: Path, tmp_path: Path, version: str, stands: bool
) -> None:
    """An older NVML lacks functions that stand there; a file without a version tells nothing."""
    real = tmp_path / "real" / f"libnvidia-ml.so.{version}"
    build_standin_nvml(real.parent).rename(real)
    if version != "1":
        real.with_name("libnvidia-ml.so.1").symlink_to(real.name)
    assert {one.name for one in made(standin, real.parent).iterdir()} == NAMES  # unless it is asked for
    folder = made(standin, real.parent, before_nvml=True)
    more = {"libnvidia-ml.so.1", "libnvidia-ml.so", gate_files.NVML_BEHIND}
    assert {one.name for one in folder.iterdir()} == (NAMES | more if stands else NAMES)
    assert cache in folder.parents
    gate = gate_files.local()
    assert gate
    before = gate_files.nvml_beside(gate)
    assert before
    if stands:
        assert (folder / "libnvidia-ml.so.1").samefile(before)
        assert (folder / gate_files.NVML_BEHIND).readlink() == real.with_name("libnvidia-ml.so.1")
    code = "import ctypes; nvml = ctypes.CDLL('libnvidia-ml.so.1'); print(nvml.nvmlShutdown(), nvml.standin_unlisted())"
    env = {"LD_LIBRARY_PATH": f"{folder}:{standin}:{real.parent}"}
    assert subprocess.check_output([sys.executable, "-c", code], env=env, text=True) == "1 42\n"
    assert front.driver_of(env) == standin / "libcuda.so.1"


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_folder_that_others_can_change_is_not_used(standin: Path, cache: Path, tmp_path: Path, mode: int) -> None:
    """A user that could put a library there would run code in all programs of this user."""
    cache.mkdir(parents=True)
    cache.chmod(mode)
    folder = made(standin)
    assert cache not in folder.parents
    assert folder.is_relative_to(tmp_path)
    assert folder.parent.stat().st_mode & 0o077 == 0
    assert made(standin) == folder


@pytest.mark.parametrize("home", ["relative", "/with:colon", "/proc/nothing"])
def test_a_cache_that_cannot_be_used(
    standin: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: str
) -> None:
    """The folder is a temporary one then, the same for all programs of this server."""
    monkeypatch.setenv("XDG_CACHE_HOME", home)
    folder = made(standin)
    assert folder.is_relative_to(tmp_path)
    assert cache not in folder.parents
    assert made(standin) == folder


def test_a_link_that_leads_elsewhere_is_set_right(standin: Path, cache: Path) -> None:
    """A folder that was half made when the server was killed is completed."""
    folder = made(standin)
    assert cache in folder.parents
    (folder / "libcuda.so").unlink()
    (folder / front.BEHIND).unlink()
    (folder / front.BEHIND).symlink_to("/nowhere")
    assert made(standin) == folder
    assert {one.name for one in folder.iterdir()} == NAMES
    assert (folder / front.BEHIND).readlink() == standin / "libcuda.so.1"
