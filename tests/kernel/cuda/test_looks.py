"""Libraries without a hook that look for GPUs in vain: what the gate reports, and what a kernel says of it."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.common.attached import AttachedGpu, AttachedWriter, Hint
from jupyter_gpu.common.rules.visible import VISIBLE
from jupyter_gpu.kernel.cuda.guard import TELL_LOOKS, CudaGuard
from jupyter_gpu.kernel.cuda.looks import LookReader, keeps_answer, section_names
from jupyter_gpu.kernel.rules.looks import looked, looked_too_early, package, read_looks, uses_runtime
from jupyter_gpu.model.view import View
from tests.gate.building import Built, command, gate_and_driver
from tests.gate.place import GPU
from tests.kernel.builders import view
from tests.kernel.kernels import StartKernel

SITE = "/opt/env/lib/python3.12/site-packages/"
LLAMA = SITE + "llama_cpp/lib/libggml-cuda.so"
BINDINGS = SITE + "cuda/bindings/cydriver.cpython-312-x86_64-linux-gnu.so"
XGBOOST = SITE + "xgboost/lib/libxgboost.so"
RUNTIME = SITE + "nvidia/cuda_runtime/lib/libcudart.so.12"
FFI = "/lib/x86_64-linux-gnu/libffi.so.8"


def real(milli: int, version: int = 1) -> View:
    """Return a view on GPUs that are not simulated."""
    return view(milli, simulated=False, version=version, generation=version)


# --- rules ------------------------------------------------------------------------------------------------------------


def test_report_of_the_gate_is_read() -> None:
    """Paths have any characters; two lines of one library are added; a line of another form is none."""
    assert read_looks(f"2 /a b.so\n1 {FFI}\n3 /a b.so\n1 \n") == {"/a b.so": 5, FFI: 1, "": 1}
    assert read_looks("") == read_looks("x /a\n\n²  /b\n7") == {}


@given(st.text())
def test_no_report_breaks_the_reader(text: str) -> None:
    """Whatever it is, numbers are counted and lines are made of it."""
    found = read_looks(text)
    assert all(times >= 0 for times in found.values())
    assert all(line.isprintable() for line in (looked(found, found) + looked_too_early(found)).split("\n"))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (LLAMA, "llama_cpp"),
        (BINDINGS, "cuda.bindings"),
        ("/usr/lib/python3/dist-packages/_cuda.abi3.so", "_cuda"),
        (SITE + "lightgbm.libs/lib_lightgbm-1234.so", "lightgbm"),
        *((path, "") for path in (RUNTIME, FFI, "/usr/lib/libavcodec.so.60", "")),
    ],
)
def test_package_of_a_library_is_known_by_its_path(path: str, name: str) -> None:
    """It is the folder below site-packages; libraries of NVIDIA's or of the system belong to none."""
    assert package(path) == name


def test_library_that_uses_the_runtime_is_known() -> None:
    """It is the runtime, or contains kernels."""
    assert uses_runtime(RUNTIME, b"")
    assert uses_runtime("/x/libcudart-1234.so.12", b"")
    assert uses_runtime(XGBOOST, b"\0.text\0.nv_fatbin\0.data\0")
    assert not uses_runtime(BINDINGS, b"\0.text\0.data\0")
    assert not uses_runtime("/x/notlibcudart.so", b"\0.nv_fatbinary\0")


def test_kernel_says_which_library_looked_and_what_to_do() -> None:
    """A library that looks again is run again; one that looks once needs a restart."""
    assert looked([BINDINGS, LLAMA], [LLAMA]).split("\n") == [
        "cuda.bindings looked for a GPU (cuInit, from cydriver.cpython-312-x86_64-linux-gnu.so), and this kernel has "
        "none. gpu.resize(1), then run the cell again.",
        "llama_cpp looked for a GPU (cuInit, from libggml-cuda.so), and this kernel has none. It looks only once, so "
        "to use a GPU with it: gpu.resize(1), then restart this kernel.",
    ]
    assert looked([FFI], []).startswith("A program that uses ctypes looked for a GPU (cuInit, from libffi.so.8), and")
    assert looked([RUNTIME], [RUNTIME]).startswith("A library looked for a GPU (cuInit, from libcudart.so.12), and")
    assert looked([""], []).startswith("A library looked for a GPU (cuInit), and this kernel has none.")
    assert looked([LLAMA], [LLAMA], program=True) == (
        "llama_cpp looked for a GPU (cuInit, from libggml-cuda.so), and this program has none. "
        "gpu.resize(1) before it looks."
    )


def test_library_that_always_looks_is_not_named() -> None:
    """XGBoost looks for each DMatrix, also on the CPU, and warns by itself; once there is a GPU, it needs a restart."""
    assert looked([XGBOOST], [XGBOOST]) == ""
    assert looked_too_early([XGBOOST, XGBOOST, RUNTIME, ""]).split("\n") == [
        f"{name} has looked for GPUs before this kernel had any, and it looks only once: to use them with it, restart "
        "this kernel."
        for name in ("xgboost", "libcudart.so.12", "A library")
    ]


# --- the reader -------------------------------------------------------------------------------------------------------


class Gate:
    """Stands for the gate's function."""

    def __init__(self) -> None:
        self.text = ""

    def __call__(self, to: ctypes.Array[ctypes.c_char] | None, size: int) -> int:
        if to is not None:
            to.value = self.text.encode("utf-8", "surrogateescape")[: size - 1]
        return sum(read_looks(self.text).values())


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def file(tmp_path: Path) -> AttachedWriter:
    """Return the file that the server keeps; nothing is attached."""
    writer = AttachedWriter(tmp_path / "attached")
    writer(real(0))
    return writer


def test_reader_returns_what_is_new(gate: Gate) -> None:
    """Nothing without the gate; then each library that has looked since."""
    functions: list[Gate | None] = [None, gate, None]
    reader = LookReader(lambda: functions.pop(0))
    gate.text = "1 /a\n"
    assert reader.new() == ()
    assert reader.new() == ("/a",)
    assert reader.new() == ()
    gate.text = "2 /a\n1 /caf\udce9\n"
    assert reader.new() == ("/a", "/caf\udce9")
    gate.text = "3 /a\n1 /caf\udce9\n"
    assert reader.kept() == ()
    assert reader.new() == ()


def test_process_without_the_driver_has_no_report() -> None:
    """Nothing is loaded to find out."""
    code = "from jupyter_gpu.kernel.cuda.looks import LookReader; r = LookReader(); print(r.new(), r.kept())"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "() ()\n"


def test_sections_of_a_library_are_read(tmp_path: Path) -> None:
    """A file that is none has no sections."""
    assert b"\0.text\0" in section_names(str(Path("/proc/self/exe").resolve()))
    broken = tmp_path / "broken.so"
    for content in (b"", b"x" * 200, b"\x7fELF\x02\x01", b"\x7fELF\x02\x01" + b"\xff" * 58):
        broken.write_bytes(content)
        assert section_names(str(broken)) == b""
    assert section_names(str(tmp_path / "none")) == b""
    assert section_names("") == b""
    assert keeps_answer(str(tmp_path / "libcudart.so.12"))


# --- the guard --------------------------------------------------------------------------------------------------------


@pytest.fixture
def env() -> dict[str, str]:
    return {}


@pytest.fixture
def guard(file: AttachedWriter, env: dict[str, str], gate: Gate) -> CudaGuard:
    made = CudaGuard(env, str(file.path), LookReader(lambda: gate))
    made.refresh()
    return made


def test_cell_that_looked_in_vain_says_so_once(guard: CudaGuard, gate: Gate) -> None:
    """Once for each cell."""
    assert guard.end_of_cell() == ""
    gate.text = f"3 {BINDINGS}\n"
    assert guard.end_of_cell().startswith("cuda.bindings looked for a GPU")
    assert guard.end_of_cell() == ""
    gate.text = f"4 {BINDINGS}\n"
    assert guard.end_of_cell().startswith("cuda.bindings looked for a GPU")


@pytest.mark.parametrize("choice", [{TELL_LOOKS: "0"}, {VISIBLE: "-1"}])
def test_nothing_is_said_if_the_user_wants_no_gpu(
    guard: CudaGuard, gate: Gate, env: dict[str, str], choice: dict[str, str]
) -> None:
    """The user has switched it off, or has chosen the CPU."""
    env.update(choice)
    gate.text = f"1 {BINDINGS}\n"
    assert guard.end_of_cell() == ""


def test_early_look_is_reported_when_there_is_a_gpu(
    guard: CudaGuard, gate: Gate, env: dict[str, str], file: AttachedWriter
) -> None:
    """Only of libraries that keep the answer, also beside another that has found the GPU; not again at a cell's end."""
    gate.text = f"1 {BINDINGS}\n1 {RUNTIME}\n"
    file(real(1000, version=2))
    assert guard.new_notice().startswith("libcudart.so.12 has looked for GPUs before this kernel had any")
    assert guard.end_of_cell() == ""
    assert guard.starts(lambda: 7)() == 7
    file(real(1000, version=3))
    assert guard.new_notice() == ""
    assert guard.notice().startswith("libcudart.so.12 has looked")
    env[TELL_LOOKS] = "0"
    assert guard.notice() == ""


# --- real kernels -----------------------------------------------------------------------------------------------------

ASKS = """
int cuInit(unsigned), cuDeviceGetCount(int *);
#ifdef KERNELS
__attribute__((section(".nv_fatbin"))) const char kernels[] = "kernels";
static int known = -1;
#endif
int gpus(void) {
    int count;
#ifdef KERNELS
    if (known >= 0) return known;
#endif
    count = 0;
    if (!cuInit(0)) cuDeviceGetCount(&count);
#ifdef KERNELS
    known = count;
#endif
    return count;
}
"""
"""A library that counts GPUs; with kernels, it looks once, as the CUDA runtime does."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build the gate, the stand-in driver and two packages that use it."""
    made = gate_and_driver(tmp_path_factory.mktemp("gate"))
    source = made.folder / "asks.c"
    source.write_text(ASKS)
    for name, option in (("retries", "-DRETRIES"), ("keeps", "-DKERNELS")):
        folder = made.folder / "site-packages" / name
        folder.mkdir(parents=True)
        command(
            "gcc", "-shared", "-fPIC", option, source, "-o", folder / "_asks.so", "-L", made.driver, "-l:libcuda.so.1"
        )
        (folder / "__init__.py").write_text(
            "import ctypes, os\nasks = ctypes.CDLL(os.path.join(os.path.dirname(__file__), '_asks.so'))\n"
        )
    return made


@pytest.fixture
def variables(built: Built, file: AttachedWriter, tmp_path: Path) -> dict[str, str]:
    """Return the environment of a kernel in front of the gate."""
    return {
        "JUPYTER_GPU_ATTACHED": str(file.path),
        "JUPYTER_GPU_STANDIN": str(tmp_path),
        "JUPYTER_GPU_STANDIN_GPUS": f"{GPU}:64",
        "LD_LIBRARY_PATH": str(built.gate),
        "PYTHONPATH": os.pathsep.join([str(built.folder / "site-packages"), *filter(None, sys.path)]),
    }


@pytest.mark.usefixtures("provisioned")
def test_cell_names_the_library_and_finds_the_gpu_when_it_is_run_again(
    start_kernel: StartKernel, variables: dict[str, str], file: AttachedWriter
) -> None:
    """In a real kernel, without an exception; what keeps its answer is named again when there is a GPU."""
    kernel = start_kernel(**variables)
    assert kernel.run("import retries, keeps; print(1)") == "1"
    assert kernel.errors == ""
    assert kernel.run("print(retries.asks.gpus(), retries.asks.gpus(), keeps.asks.gpus())") == "0 0 0"
    assert kernel.errors.splitlines() == [
        "retries looked for a GPU (cuInit, from _asks.so), and this kernel has none. gpu.resize(1), then run the cell "
        "again.",
        "keeps looked for a GPU (cuInit, from _asks.so), and this kernel has none. It looks only once, so to use a GPU "
        "with it: gpu.resize(1), then restart this kernel.",
    ]
    assert (kernel.run("print(2)"), kernel.errors) == ("2", "")
    file.path.write_text(Hint("one", 2, False, (AttachedGpu(GPU, 0, "/dev/nvidia0"),)).to_text())
    assert kernel.run("print(retries.asks.gpus(), keeps.asks.gpus())") == "1 0"
    assert kernel.errors == (
        "keeps has looked for GPUs before this kernel had any, and it looks only once: to use them with it, restart "
        "this kernel.\n"
    )


@pytest.mark.usefixtures("provisioned")
def test_cpu_on_purpose_gets_no_notice(start_kernel: StartKernel, variables: dict[str, str]) -> None:
    """`CUDA_VISIBLE_DEVICES` in a cell, or the variable in the kernel spec."""
    kernel = start_kernel(**variables)
    assert (
        kernel.run("import os, retries; os.environ['CUDA_VISIBLE_DEVICES'] = '-1'; print(retries.asks.gpus())") == "0"
    )
    assert kernel.errors == ""
    kernel = start_kernel(**variables, JUPYTER_GPU_TELL_LOOKS="0")
    assert kernel.run("import retries; print(retries.asks.gpus())") == "0"
    assert kernel.errors == ""


def test_script_says_so_at_its_end(variables: dict[str, str]) -> None:
    """It has the guard since it imported `jupyter_gpu`."""
    code = "import jupyter_gpu, retries; print(retries.asks.gpus(), flush=True)"
    env = {**os.environ, **variables}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"
    assert done.stderr == (
        "retries looked for a GPU (cuInit, from _asks.so), and this program has none. gpu.resize(1) before it looks.\n"
    )
