"""The gate as a build of the package makes it: for which platform, of what, and what if it cannot be."""

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
    """As much of a library as is looked at: its header, and the names of the versions that it needs."""
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
def test_what_platform_a_library_is_for(library: bytes, platform: str) -> None:
    """Any Linux of the last decade, or, with another C library, the one that it was built on."""
    assert build.platform(library) == platform


@pytest.mark.parametrize("need", ["GLIBC_2.18", "GLIBC_2.34", "GLIBC_3.0", "GLIBC_ABI_DT_RELR", "GLIBC_PRIVATE"])
def test_a_gate_that_is_too_new_is_refused(need: str) -> None:
    """Programs of older images would not even start with it."""
    with pytest.raises(build.BuildError, match=need):
        build.platform(elf(62, "GLIBC_2.2.5", need))


@pytest.mark.parametrize("library", [b"", b"MZ", elf(3, "GLIBC_2.2.5"), elf(62, start=b"\x7fELF\x01\x01")])
def test_another_platform_has_no_gate(library: bytes) -> None:
    """32 bits, another processor, another system."""
    with pytest.raises(build.BuildError, match="this is another platform"):
        build.platform(library)


def test_the_same_wherever_it_is_built(tmp_path: Path) -> None:
    """From the same sources come the same bytes, whatever folder they lie in."""
    made = []
    for name in ("one", "another"):
        shutil.copytree(GATE, tmp_path / name / "gate", ignore=shutil.ignore_patterns("standin"))
        subprocess.run(
            [sys.executable, tmp_path / name / "gate" / "build.py", "both", tmp_path / name / "lib"], check=True
        )
        lib = tmp_path / name / "lib"
        made.append({str(file.relative_to(lib)): file.read_bytes() for file in lib.glob("*/*")})
    assert made[0] == made[1]
    assert set(made[0]) == {"local/libcuda.so.1", "shim/libcuda.so.1"}


@pytest.mark.parametrize(
    ("compiler", "said"), [("/nonexistent/cc", "cannot be started: No such file"), ("false", "C compiler false failed")]
)
def test_nothing_old_is_left_where_it_cannot_be_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str, said: str
) -> None:
    """A gate of other sources would be worse than none; and nothing half is left either."""
    (tmp_path / "lib" / "local").mkdir(parents=True)
    (tmp_path / "lib" / "local" / "libcuda.so.1").write_bytes(b"old")
    monkeypatch.setenv("CC", compiler)
    with pytest.raises(build.BuildError, match=said):
        build.both(tmp_path / "lib")
    assert list(tmp_path.iterdir()) == []


def test_a_compiler_with_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CC may have options, as build systems set it."""
    monkeypatch.setenv("CC", "env LANG=C gcc -O1")
    assert build.both(tmp_path / "lib").startswith("manylinux_2_17")


def wheel_of(folder: Path, out: Path, **environment: str) -> tuple[list[str], str]:
    """Names in the wheel that is built of a folder, its own first, and what was said."""
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


def test_without_a_compiler_there_is_no_gate(tmp_path: Path) -> None:
    """The wheel is for every platform then, and the build says what is missing and what to do."""
    names, said = wheel_of(ROOT, tmp_path, CC="/nonexistent/cc")
    assert names[0].endswith("-py3-none-any.whl"), said
    assert not [name for name in names if name.endswith((".so", ".so.1"))]
    assert "WITHOUT its gate" in said
    assert "Install a C compiler" in said


def test_who_builds_for_others_is_told_by_an_error(tmp_path: Path) -> None:
    """A wheel or an image without the gate must not be made by mistake."""
    names, said = wheel_of(ROOT, tmp_path, CC="/nonexistent/cc", JUPYTER_GPU_REQUIRE_GATE="1")
    assert names == []
    assert "/nonexistent/cc cannot be started" in said
