"""Searches for GPUs that find none: the gate answers them, and records which library searched."""

from __future__ import annotations

import os
import pty
import sys
from pathlib import Path

import pytest

from jupyter_gpu.common.attached import AttachedGpu, Hint
from jupyter_gpu.common.rules.visible import OURS, VISIBLE
from jupyter_gpu.kernel.rules.looks import read_looks

from .building import command
from .place import GPU, Place, Program

ROOM = 16384
LOOK = f"""
import ctypes, os, sys, threading
driver = ctypes.CDLL("libcuda.so.1")
def report(room={ROOM}):
    text = ctypes.create_string_buffer(b"#" * room, room)
    return driver.jupyter_gpu_looks(text, room), text.value.decode()
"""


def hint(count: int, *, simulated: bool = False) -> Hint:
    """Return what the server reports with so many GPUs attached."""
    gpus = tuple(AttachedGpu(f"GPU-{i}", i, f"/dev/nvidia{i}") for i in range(count))
    return Hint("one", 1, simulated, gpus)


def run(place: Place, code: str, **env: str) -> list[str]:
    """Return the lines that a program prints."""
    with Program([sys.executable, "-c", LOOK + code], place.env() | env) as program:
        return program.lines()


def library(place: Place, name: str) -> Path:
    """Compile a library whose function `look` initializes CUDA."""
    source, made = place.folder / f"{name}.c", place.folder / name
    source.write_text("int cuInit(unsigned); int look(void) { return cuInit(0) + 0 * __LINE__; }")
    command("gcc", "-shared", "-fPIC", "-O0", source, "-o", made, "-L", place.built.driver, "-l:libcuda.so.1")
    return made


def test_searches_are_counted_for_each_library(either: Place) -> None:
    """By the path of the library that called, in the order of the first searches. A program itself has no path."""
    first, second = library(either, "first.so"), library(either, "second one.so")
    lines = run(
        either,
        f"""
one, two = (ctypes.CDLL(path) for path in {(str(first), str(second))!r})
print(report()); print(two.look(), one.look(), one.look()); print(report())
print(driver.cuInit(0)); print(report()[1].splitlines()[2].partition("libffi")[1])
""",
        CUDA_VISIBLE_DEVICES="",
    )
    expected = f"1 {second}\n2 {first}\n"
    assert lines == [str((0, "")), "100 100 100", str((3, expected)), "100", "libffi"]
    assert read_looks(expected) == {str(second): 1, str(first): 2}


def test_search_of_a_program_itself_is_counted(place: Place) -> None:
    """Its path is empty."""
    source, made = place.folder / "own.c", place.folder / "own"
    source.write_text(
        "#include <stdio.h>\nint cuInit(unsigned); unsigned jupyter_gpu_looks(char *, unsigned);\n"
        'int main(void) { char text[99]; cuInit(0); return printf("%u %s", jupyter_gpu_looks(text, 99), text) < 0; }'
    )
    command("gcc", source, "-o", made, "-L", place.built.gate, "-l:libcuda.so.1", "-Wl,--allow-shlib-undefined")
    with Program([str(made)], place.env() | {VISIBLE: ""}) as program:
        assert program.lines() == ["1 1 "]


def test_report_has_whole_lines_only(place: Place) -> None:
    """Lines that do not fit are left out, and the number of searches is that of all."""
    made = library(place, "library.so")
    line = f"1 {made}\n"
    code = f"""
ctypes.CDLL({str(made)!r}).look(); driver.cuInit(0)
for room in (1, 2, {len(line)}, {len(line) + 1}, {ROOM}):
    total, text = report(room); print(total, len(text), end=";")
print(driver.jupyter_gpu_looks(None, 0))
"""
    sizes = run(place, code, CUDA_VISIBLE_DEVICES="")[0].split(";")
    assert sizes[:4] == ["2 0", "2 0", "2 0", f"2 {len(line)}"]
    assert sizes[5] == "2"


def test_driver_is_not_entered_without_a_visible_gpu(either: Place) -> None:
    """So what a driver keeps of its first search, it keeps of one that finds a GPU. It judges wrong flags itself."""
    code = f"""
print(driver.cuInit(0), driver.cuInit(0), driver.cuInit(1))
os.environ["JUPYTER_GPU_STANDIN_GPUS"], os.environ["CUDA_VISIBLE_DEVICES"] = "{GPU}:64", "0"
print(driver.cuInit(0), driver.cuInit(0), report()[0])
os.environ["CUDA_VISIBLE_DEVICES"] = ""
print(driver.cuInit(0), report()[0])
"""
    broken = {"JUPYTER_GPU_STANDIN_GPUS": "what would make the stand-in fail for ever"}
    assert run(either, code, CUDA_VISIBLE_DEVICES="", **broken) == ["100 100 1", "0 0 2", "0 2"]


def test_search_that_the_driver_answers_is_counted(either: Place) -> None:
    """The driver finds none of a list that names no GPU; other failures are no searches in vain."""
    assert run(either, "print(driver.cuInit(0), report()[0])", CUDA_VISIBLE_DEVICES="-1") == ["100 1"]
    assert run(either, "print(driver.cuInit(0), report()[0])", JUPYTER_GPU_STANDIN_GPUS="nonsense") == ["999 0"]


def test_threads_and_many_libraries_lose_no_search(place: Place) -> None:
    """Two threads may make two lines of one library; beyond the gate's room, libraries are not named."""
    paths = [str(library(place, f"library{i}.so")) for i in range(20)]
    code = f"""
libraries = [ctypes.CDLL(path) for path in {paths!r}]
threads = [threading.Thread(target=lambda: [driver.cuInit(0) for _ in range(500)]) for _ in range(4)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
print(report()[0], sum(int(line.split(" ")[0]) for line in report()[1].splitlines()))
[one.look() for one in libraries]
print(len(report()[1].splitlines()))
"""
    assert run(place, code, CUDA_VISIBLE_DEVICES="") == ["2000 2000", "16"]


def end_of(place: Place, said: Hint | None, code: str = "driver.cuInit(0)", **env: str) -> str:
    """Return what a program prints on its terminal."""
    file = place.folder / "attached"
    file.unlink(missing_ok=True)
    if said is not None:
        file.write_text(said.to_text())
    inherited = {name: value for name, value in os.environ.items() if name not in (VISIBLE, OURS)}
    own = {**inherited, **place.env(), "JUPYTER_GPU_ATTACHED": str(file), **env}
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(sys.executable, [sys.executable, "-c", LOOK + code], own)
    shown = b""
    try:
        while more := os.read(terminal, 4096):
            shown += more
    except OSError:  # its end
        pass
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, shown
    return shown.decode().strip()


def test_program_in_a_terminal_says_at_its_end_that_it_had_no_gpu(place: Place) -> None:
    """Once, on its terminal."""
    shown = end_of(place, hint(0), "driver.cuInit(0); driver.cuInit(0)")
    assert shown.count("\n") == 0
    assert shown.startswith("python")
    assert ": CUDA was asked for GPUs (by libffi.so." in shown
    assert shown.endswith('your server has none now. "jupyter gpu resize 1" takes one; then start the program again.')


@pytest.mark.parametrize(
    ("said", "code", "env"),
    [
        (hint(0), "pass", {}),
        (hint(0), "driver.cuInit(0)", {"JUPYTER_GPU_TELL_LOOKS": "0"}),
        (hint(0), "driver.cuInit(0)", {VISIBLE: "-1"}),
        (hint(0), "driver.cuInit(0); report()", {}),
        (hint(0, simulated=True), "driver.cuInit(0)", {VISIBLE: "-1", OURS: "-1"}),
        (hint(1), "driver.cuInit(0)", {}),
        (None, "driver.cuInit(0)", {VISIBLE: "", OURS: ""}),
    ],
    ids=["no search", "switched off", "own choice", "read by the guard", "simulated", "attached", "no server"],
)
def test_nothing_is_said_without_need(place: Place, said: Hint | None, code: str, env: dict[str, str]) -> None:
    """There was no search or no server, the user chose, a kernel says it itself, or there are GPUs."""
    assert end_of(place, said, code, **env) == ""


def test_found_gpu_makes_an_earlier_search_unimportant(place: Place) -> None:
    """The program has used the GPU."""
    gpu = Hint("one", 1, False, (AttachedGpu(GPU, 0, "/dev/nvidia0"),))
    code = f"""
def attach(text):
    with open(os.environ["JUPYTER_GPU_ATTACHED"], "w") as file: file.write(text)
driver.cuInit(0)
attach({gpu.to_text()!r})
assert driver.cuInit(0) == 0
attach({hint(0).to_text()!r})
"""
    assert end_of(place, hint(0), code) == ""
