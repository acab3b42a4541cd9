"""The gate in builds of the package: its platform, its reproducibility, and builds without a compiler."""

import importlib.util
import os
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
GATE = ROOT / "node_plugin" / "gate"


def _loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gate_build_of_tests", GATE / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build = _loaded()


def elf(machine: int, *needs: str, start: bytes = b"\x7fELF\x02\x01") -> bytes:
    """Return the parts of a library that are checked: its header, and the names of the versions that it needs."""
    header = start.ljust(18, b"\0") + struct.pack("<H", machine)
    return header + b"\0libc.so.6\0" + b"".join(need.encode() + b"\0" for need in needs)


@pytest.mark.parametrize(
    ("library", "platform"),
    [
        (elf(62, "GLIBC_2.2.5", "GLIBC_2.17"), "manylinux_2_17_x86_64.manylinux2014_x86_64"),
        (elf(183, "GLIBC_2.17"), "manylinux_2_17_aarch64.manylinux2014_aarch64"),
        (elf(62), "linux_x86_64"),
    ],
)
def test_platform_of_a_library(library: bytes, platform: str) -> None:
    """It is any Linux of the last decade, or, with another C library, the one that it was built on."""
    assert build.platform(library) == platform


@pytest.mark.parametrize("need", ["GLIBC_2.18", "GLIBC_2.34", "GLIBC_3.0", "GLIBC_ABI_DT_RELR", "GLIBC_PRIVATE"])
def test_gate_with_newer_symbols_is_refused(need: str) -> None:
    """Programs of older images would not even start with it."""
    with pytest.raises(build.BuildError, match=need):
        build.platform(elf(62, "GLIBC_2.2.5", need))


@pytest.mark.parametrize("library", [b"", b"MZ", elf(3, "GLIBC_2.2.5"), elf(62, start=b"\x7fELF\x01\x01")])
def test_other_platform_has_no_gate(library: bytes) -> None:
    """32 bits, another processor, another system are refused."""
    with pytest.raises(build.BuildError, match="this is another platform"):
        build.platform(library)


def test_build_is_reproducible(tmp_path: Path) -> None:
    """The same sources give the same bytes in any folder."""
    made = []
    for name in ("one", "another"):
        shutil.copytree(GATE, tmp_path / name / "gate", ignore=shutil.ignore_patterns("standin"))
        subprocess.run(
            [sys.executable, tmp_path / name / "gate" / "build.py", "both", tmp_path / name / "lib"], check=True
        )
        lib = tmp_path / name / "lib"
        made.append({str(file.relative_to(lib)): file.read_bytes() for file in lib.glob("*/*")})
    assert made[0] == made[1]
    assert set(made[0]) == {f"{form}/{name}" for form in ("local", "shim") for name in build.NAMES}


@pytest.mark.parametrize(
    ("compiler", "said"), [("/nonexistent/cc", "cannot be started: No such file"), ("false", "C compiler false failed")]
)
def test_failed_build_leaves_nothing_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str, said: str
) -> None:
    """A gate of other sources would be worse than none; nothing half-built is left either."""
    (tmp_path / "lib" / "local").mkdir(parents=True)
    (tmp_path / "lib" / "local" / "libcuda.so.1").write_bytes(b"old")
    monkeypatch.setenv("CC", compiler)
    with pytest.raises(build.BuildError, match=said):
        build.both(tmp_path / "lib")
    assert list(tmp_path.iterdir()) == []


def test_compiler_may_have_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CC may contain options, as build systems set it."""
    monkeypatch.setenv("CC", "env LANG=C gcc -O1")
    assert build.both(tmp_path / "lib").startswith("manylinux_2_17")


def wheel_of(folder: Path, out: Path, **environment: str) -> tuple[list[str], str]:
    """Build a wheel of a folder; return its name, the names in it, and the output."""
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, folder],
        env={**os.environ, "SKIP_JUPYTER_BUILDER": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return [], done.stdout + done.stderr
    (wheel,) = out.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        return [wheel.name, *file.namelist()], done.stdout + done.stderr


def test_build_without_a_compiler_has_no_gate(tmp_path: Path) -> None:
    """The wheel is for every platform then, and the build tells what is missing and what to do."""
    names, said = wheel_of(ROOT, tmp_path, CC="/nonexistent/cc")
    assert names[0].endswith("-py3-none-any.whl"), said
    assert not [name for name in names if name.endswith((".so", ".so.1"))]
    assert "WITHOUT its gate" in said
    assert "Install a C compiler" in said


def test_required_gate_that_cannot_be_built_is_an_error(tmp_path: Path) -> None:
    """A wheel or an image without the gate must not be made by mistake."""
    names, said = wheel_of(ROOT, tmp_path, CC="/nonexistent/cc", JUPYTER_GPU_REQUIRE_GATE="1")
    assert names == []
    assert "/nonexistent/cc cannot be started" in said
