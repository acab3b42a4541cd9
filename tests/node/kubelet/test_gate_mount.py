"""The gate's file on the host."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_gpu_node.kubelet import gate_mount
from jupyter_gpu_node.kubelet.gate_mount import Gate
from jupyter_gpu_node.kubelet.rules import allocation
from jupyter_gpu_node.settings import Driver, Settings
from jupyter_gpu_node.shares import gate_files
from jupyter_gpu_node.shares.rules.settings import ShareSettings
from node_plugin.gate import build
from tests.node.conftest import Child


def installed(text: bytes, folder: Path) -> Path:
    """Install a gate with this text below ``folder``; return its path there."""
    library = folder / "library"
    library.write_bytes(text)
    gate = Gate(folder, lambda: library)
    gate.install()
    assert gate.file is not None
    return gate.file


def test_gate_is_installed_once(tmp_path: Path) -> None:
    """A file that is mapped is not touched while it is the same, and replaced as a whole where it is not."""
    found = installed(b"first", tmp_path)
    assert (found.read_bytes(), found.stat().st_mode & 0o777) == (b"first", 0o644)
    before = found.stat()
    assert installed(b"first", tmp_path).stat() == before
    with found.open("rb") as mapped:
        assert installed(b"second", tmp_path) == found
        assert mapped.read() == b"first", "A container keeps what it was started with."
    assert found.read_bytes() == b"second"
    assert [path.name for path in found.parent.iterdir()] == ["libcuda.so.1"]


def test_what_stands_before_nvml_comes_with_the_gate(tmp_path: Path) -> None:
    """In the same folder, where it is asked for; if it is missing, only the gate is there."""
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"before NVML")
    library = tmp_path / "libcuda.so.1"
    library.write_bytes(b"gate")
    gate = Gate(tmp_path / "state", lambda: library, before_nvml=True)
    gate.install()
    assert gate.nvml == tmp_path / "state" / "gate" / "libnvidia-ml.so.1"
    assert gate.nvml.read_bytes() == b"before NVML"
    files = tmp_path / "usr" / "lib64"
    files.mkdir(parents=True)
    for name in ("libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ml.so.580.1"):
        (files / name).touch()
    settings = Settings(driver=Driver(root=tmp_path, seen=tmp_path))
    assert str(gate.nvml) in {mount.host for mount in gate_mount.mounts(settings, gate)}
    without = Gate(tmp_path / "state", lambda: library)
    without.install()
    assert (without.nvml, without.problem) == (None, "")
    (tmp_path / "libnvidia-ml.so.1").unlink()
    alone = Gate(tmp_path / "state", lambda: library, before_nvml=True)
    alone.install()
    assert (alone.nvml, alone.problem) == (None, "")
    assert allocation.has_gate(gate_mount.mounts(settings, alone))


def test_gate_stands_before_a_driver_that_is_there(tmp_path: Path) -> None:
    """Not where shares are not enforced, or there is no driver: there memory is not limited."""
    library = tmp_path / "usr" / "lib64" / "libcuda.so.1"
    library.parent.mkdir(parents=True)
    gate = Gate(tmp_path / "state", lambda: library)
    settings = Settings(driver=Driver(root=tmp_path, seen=tmp_path))
    for there, made, enforce in ((False, True, True), (True, False, True), (True, True, False), (True, True, True)):
        if there:
            library.touch()
        if made and there:
            gate.install()
        given = replace(settings, shares=ShareSettings(enforce=enforce))
        assert allocation.has_gate(gate_mount.mounts(given, gate)) == (there and made and enforce)
        assert not allocation.has_gate(gate_mount.mounts(given, None))


def test_partial_files_and_links_are_replaced(tmp_path: Path) -> None:
    """Files that an earlier process was writing when it ended, and files from elsewhere."""
    folder = tmp_path / "gate"
    folder.mkdir()
    (folder / ".libcuda.so.1.new").write_text("half")
    (tmp_path / "other").write_text("not ours")
    (folder / "libcuda.so.1").symlink_to(tmp_path / "other")
    assert installed(b"ours", tmp_path).read_bytes() == b"ours"
    assert not (folder / "libcuda.so.1").is_symlink()
    assert (tmp_path / "other").read_text() == "not ours"


def test_failed_installation_names_the_reason(tmp_path: Path) -> None:
    """An installation that has none, and a node where it cannot be written."""
    one = Gate(tmp_path, lambda: None)
    one.install()
    assert (one.file, "built without a C compiler" in one.problem) == (None, True)
    (tmp_path / "gate").write_text("no folder")
    other = Gate(tmp_path, lambda: Path(__file__))
    other.install()
    assert (other.file, "cannot be put" in other.problem) == (None, True)
    (tmp_path / "gate").unlink()
    other.install()
    assert (other.file, other.problem) == (tmp_path / "gate" / "libcuda.so.1", "")


@pytest.mark.root
def test_noexec_folder_is_refused(tmp_path: Path) -> None:
    """No library of it could be loaded: every CUDA program of every container would fail."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "noexec", "none", tmp_path], check=True)
    try:
        one = Gate(tmp_path, lambda: Path(__file__))
        one.install()
        assert (one.file, "noexec" in one.problem) == (None, True)
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_the_gate_looks_where_we_mount_the_driver_and_the_sockets() -> None:
    """All are compiled into it, or into the library before NVML."""
    assert build.DRIVER == allocation.REAL_DRIVER
    assert build.NVML == allocation.REAL_NVML == gate_files.NVML_IN_POD
    assert build.NVML_BEHIND == gate_files.NVML_BEHIND
    assert Path(build.SOCKETS) == Path(allocation.SOCKET_DIRECTORY, "shares")


@pytest.mark.root
def test_unreadable_gate_is_refused(tmp_path: Path, spawn: Callable[..., Child]) -> None:
    """Such as one in an environment below root's home: no program could load it."""
    library = tmp_path / "local" / "libcuda.so.1"
    library.parent.mkdir()
    library.write_bytes(b"library")
    child = spawn()
    child.run("import pathlib; from jupyter_gpu_node.shares import gate_files")
    child.run(f"gate_files.LIBRARIES = pathlib.Path({str(tmp_path)!r})")
    assert child.run("str(gate_files.local())") == str(library)
    library.parent.chmod(0o700)
    child.run("os.setgid(65534) or os.setuid(65534)")
    assert child.run("gate_files.local()") is None
