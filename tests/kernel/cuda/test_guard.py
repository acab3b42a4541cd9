"""The CUDA guard: its rules, and real kernels with libraries that remember for ever that they found no GPU."""

from __future__ import annotations

import mmap
import os
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_gpu.common.attached import AttachedWriter, Hint
from jupyter_gpu.common.rules.visible import HIP, OUR_HIP, OURS, ROCR, VARIABLES, VISIBLE
from jupyter_gpu.kernel.cuda.devices import cuda_nodes, mapped_devices, open_files
from jupyter_gpu.kernel.cuda.errors import CudaStartedTooEarly, NoGpuAttached
from jupyter_gpu.kernel.cuda.guard import CudaGuard
from jupyter_gpu.model.gpu_kind import gpu_kinds
from jupyter_gpu.model.view import LIMIT_LOWERED, Condition, View
from tests.kernel.builders import gpu, view
from tests.kernel.kernels import Failed, Kernel, StartKernel


def real(milli: int, version: int = 1) -> View:
    """Return a view on GPUs that are not simulated."""
    return view(milli, simulated=False, version=version, generation=version)


def uuids(*indices: int) -> str:
    return ",".join(gpu(i).uuid for i in indices)


@pytest.fixture
def file(tmp_path: Path) -> AttachedWriter:
    """Return the file that the server keeps; nothing is attached."""
    writer = AttachedWriter(tmp_path / "attached.json")
    writer(real(0))
    return writer


@pytest.fixture
def env() -> dict[str, str]:
    """Return an environment where the user chose no GPUs."""
    return {}


@pytest.fixture
def guard(file: AttachedWriter, env: dict[str, str]) -> CudaGuard:
    guard = CudaGuard(env, str(file.path))
    guard.refresh()
    return guard


def look() -> int:
    """Stand for the call that makes CUDA look for GPUs."""
    return 7


def test_variable_follows_the_attached_gpus(guard: CudaGuard, file: AttachedWriter, env: dict[str, str]) -> None:
    """CUDA_VISIBLE_DEVICES has the attached uuids, none at first."""
    assert env[VISIBLE] == ""
    file(real(2000, version=2))
    guard.refresh()
    assert env[VISIBLE] == env[OURS] == uuids(0, 1)


def test_gpus_of_amd_are_named_in_their_own_variable(file: AttachedWriter) -> None:
    """HIP reads CUDA's, too: the value from before it was known whose the GPUs are goes, unless the user chose it."""
    amd = replace(real(2000, version=2), kinds=())
    items = tuple(item._replace(gpu=replace(item.gpu, vendor="amd")) for item in amd.gpus)
    for given in ({}, {VISIBLE: "0"}):
        env = dict(given)
        guard = CudaGuard(env, str(file.path))
        guard.refresh()
        assert guard.blocked is not bool(given)
        guard.see(Hint.of(replace(amd, gpus=items)))
        assert env == {**given, ROCR: uuids(0, 1), VARIABLES["amd"][1]: uuids(0, 1)}
        assert not guard.blocked


def test_hip_counts_its_own_gpus_where_there_are_both_vendors(file: AttachedWriter) -> None:
    """Its variable follows what is attached, and goes with the last GPU of AMD's; what the user says there stays."""
    first, second = real(2000, version=2).gpus
    both = (first, second._replace(gpu=replace(second.gpu, vendor="amd")))
    two = replace(real(2000, version=3), kinds=gpu_kinds(item.gpu for item in both), gpus=both)
    for given in ({}, {HIP: "7"}):
        env = dict(given)
        guard = CudaGuard(env, str(file.path))
        guard.refresh()
        guard.see(Hint.of(two))
        assert (env[VISIBLE], env[ROCR]) == (uuids(0), uuids(1))
        assert (env[HIP], env.get(OUR_HIP)) == (given.get(HIP, "0"), None if given else "0")
        guard.see(Hint.of(replace(two, version=4, gpus=both[:1])))
        assert (env[ROCR], env.get(HIP), env.get(OUR_HIP)) == ("", given.get(HIP), None)


def test_users_choice_wins(file: AttachedWriter) -> None:
    """A variable that the user set at the start, or changes later, is never touched again, and nothing is blocked."""
    env = {VISIBLE: "3"}
    guard = CudaGuard(env, str(file.path))
    guard.refresh()
    assert env == {VISIBLE: "3"}
    assert not guard.blocked


def test_users_later_choice_wins(guard: CudaGuard, file: AttachedWriter, env: dict[str, str]) -> None:
    """`os.environ[…] = "-1"` in a cell means: stay on the CPU."""
    env[VISIBLE] = "-1"
    file(real(1000, version=2))
    guard.refresh()
    assert env[VISIBLE] == "-1"
    assert guard.starts(look)() == 7
    assert guard.notice() == ""


def test_child_process_inherits_no_choice(file: AttachedWriter, guard: CudaGuard, env: dict[str, str]) -> None:
    """A value of ours is not mistaken for the user's choice in a process that inherits it."""
    child = dict(env)
    inner = CudaGuard(child, str(file.path))
    file(real(1000, version=2))
    inner.refresh()
    assert child[VISIBLE] == uuids(0)


def test_simulated_gpus_set_nothing(file: AttachedWriter) -> None:
    """On simulated GPUs, or with none to wait for, nothing is set and nothing is blocked."""
    for other in (view(0), view(1000), view(0, limit=0, simulated=False)):
        env: dict[str, str] = {}
        guard = CudaGuard(env, None)
        guard.see(Hint.of(other))
        assert env == {}
        assert guard.starts(look)() == 7


def test_list_of_the_site_is_narrowed(file: AttachedWriter) -> None:
    """A list that a batch system gave the server is narrowed to what is attached, and follows it."""
    env = {VISIBLE: "", OURS: "", "JUPYTER_GPU_CUDA_WANTED": "1,2", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    guard = CudaGuard(env, str(file.path))
    guard.refresh()
    assert env[VISIBLE] == ""
    assert guard.blocked
    file(real(2000, version=2))
    guard.refresh()
    assert env[VISIBLE] == env[OURS] == "1"


def test_no_server_blocks_nothing(tmp_path: Path) -> None:
    """Without a server's file CUDA starts as it always did."""
    env: dict[str, str] = {}
    guard = CudaGuard(env, str(tmp_path / "missing"))
    assert guard.starts(look)() == 7
    assert env == {}


HEAD = "instance a\nversion 1\nsimulated 0\nenforced 0\n"


@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", "end\n", "instance a\nend\n", "x" * 100_000, HEAD, f"{HEAD}gpu GPU-1 0 /dev/nvidia0\n"),
        *(f"{HEAD}gpu a,b 0 /dev/nvidia0\nend\n", f"{HEAD}gpu GPU-1 none\nend\n", f"{HEAD}version one\nend\n"),
    ],
)
def test_broken_file_is_ignored(tmp_path: Path, content: str) -> None:
    """A file that cannot be read counts as none."""
    path = tmp_path / "attached"
    path.write_text(content)
    guard = CudaGuard({}, str(path))
    assert not guard.blocked


def test_first_look_without_gpus_is_stopped(guard: CudaGuard) -> None:
    """The error says what to do; a query is answered with nothing; neither runs the real function."""

    def never() -> int:
        raise AssertionError("the library was poisoned")

    with pytest.raises(NoGpuAttached, match=r"^Your server has no GPU: gpu\.resize\(1\) first\."):
        guard.starts(never)()
    assert guard.answers(never, int)() == 0


def test_started_process_cannot_see_new_gpus(guard: CudaGuard, file: AttachedWriter, env: dict[str, str]) -> None:
    """Once CUDA has looked, a new GPU is hidden from this process: the user gets one message, and children get it."""
    file(real(1000, version=2))
    assert guard.starts(look)() == 7
    assert guard.new_notice() == ""
    file(real(2000, version=3))
    notice = guard.new_notice()
    assert "cannot use GPU 1" in notice
    assert "restart this kernel; or use it from another process: with gpu.run(function), from worker" in notice
    assert guard.new_notice() == ""
    assert env[VISIBLE] == uuids(0, 1)
    assert not guard.blocked


def test_new_gpus_can_be_used_until_cuda_looks(guard: CudaGuard, file: AttachedWriter, env: dict[str, str]) -> None:
    """Also where the GPUs are simulated, or the user chose some: then we decide nothing."""
    assert guard.can_use_new
    file(real(1000, version=2))
    assert guard.can_use_new
    guard.starts(look)()
    assert not guard.can_use_new
    env[VISIBLE] = "0"
    assert guard.can_use_new


def test_failed_look_hides_new_gpus(guard: CudaGuard, file: AttachedWriter) -> None:
    """A library that found none and remembers that cannot use those that come."""
    file(real(1000, version=2))

    def fails() -> None:
        raise RuntimeError("no CUDA-capable device is detected")

    with pytest.raises(CudaStartedTooEarly):
        guard.starts(fails)()
    assert not guard.can_use_new


LOWERED = "Your limit is 1 GPU, set for group <img src=x>\u2028\x1b[2J by root. 1 GPU will be taken back at 14:30 UTC."


def lowered(milli: int, version: int, message: str = LOWERED, *, simulated: bool = False) -> View:
    """Return a view whose user's limit was lowered."""
    now = view(milli, simulated=simulated, version=version, generation=version)
    return replace(now, conditions=(Condition("Other", "x"), Condition(LIMIT_LOWERED, message)))


@pytest.mark.parametrize("simulated", [False, True])
def test_lowered_limit_is_told_once(guard: CudaGuard, file: AttachedWriter, simulated: bool) -> None:
    """Each kernel prints what will be taken back, again when that changes, in one printable line."""
    file(lowered(2000, 2, simulated=simulated))
    shown = guard.new_notice()
    assert shown.startswith("Your limit is 1 GPU, set for group <img src=x>")
    assert shown.isprintable()
    file(lowered(2000, 3, simulated=simulated))
    assert guard.new_notice() == ""
    file(lowered(2000, 4, "Your limit is 0 GPUs.", simulated=simulated))
    assert guard.new_notice() == "Your limit is 0 GPUs."
    file(view(2000, simulated=simulated, version=5, generation=5))
    assert guard.new_notice() == ""


def test_each_notice_is_told_for_itself(guard: CudaGuard, file: AttachedWriter) -> None:
    """A lowered limit does not repeat what was said of a GPU that this process cannot use."""
    file(real(1000, version=2))
    assert guard.starts(look)() == 7
    file(lowered(2000, 3, "Lowered."))
    assert guard.new_notice().startswith("Lowered.\nThis kernel cannot use GPU 1:")
    file(lowered(2000, 4, "Lowered again."))
    assert guard.new_notice() == "Lowered again."


@pytest.mark.parametrize("text", [b"a\xe2\x80\xa8b", b"a\rb"])
def test_notice_of_two_lines_is_not_believed(file: AttachedWriter, text: bytes) -> None:
    """A file whose notice is not one line is not the server's."""
    good = file.path.read_bytes()
    with pytest.raises(ValueError, match="one line"):
        Hint.from_text(good.replace(b"end\n", b"notice " + text + b"\nend\n"))


def test_order_of_devices_is_kept(guard: CudaGuard, env: dict[str, str]) -> None:
    """Device 0 of a library stays device 0, whatever else is attached later."""
    hint = Hint.of(real(2000, version=2))
    first, second = hint.gpus
    guard.see(Hint(hint.instance, 2, False, (second,)))
    guard.starts(look)()
    guard.see(Hint(hint.instance, 3, False, hint.gpus))
    assert env[VISIBLE] == f"{second.uuid},{first.uuid}"


@pytest.mark.parametrize(("enforced", "both", "second"), [(False, "0,1", "1"), (True, "0,1", "0")])
def test_indices_are_used_if_configured(
    env: dict[str, str], tmp_path: Path, enforced: bool, both: str, second: str
) -> None:
    """They follow the bus; if no other GPU can be opened, CUDA counts only the attached ones."""
    env["JUPYTER_GPU_VISIBLE_BY"] = "index"
    guard = CudaGuard(env, str(tmp_path / "missing"))
    gpus = Hint.of(real(2000)).gpus
    guard.see(Hint("one", 0, False, gpus, enforced))
    assert env[VISIBLE] == uuids(0, 1), "CUDA's own order is another one, and a number could mean any GPU."
    env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    guard.see(Hint("one", 1, False, gpus, enforced))
    assert env[VISIBLE] == both
    guard.see(Hint("one", 2, False, gpus[1:], enforced))
    assert env[VISIBLE] == second
    guard.see(Hint("one", 3, False, (), enforced))
    assert env[VISIBLE] == ""


def test_cause_of_an_earlier_failed_look_is_reported(guard: CudaGuard, file: AttachedWriter) -> None:
    """A library that looked too early fails although GPUs are there: the cause replaces its bare message."""
    file(real(1000, version=2))

    def poisoned() -> int:
        raise RuntimeError("No CUDA GPUs are available")

    with pytest.raises(CudaStartedTooEarly, match="There are two ways out"):
        guard.starts(poisoned)()
    assert "cannot use GPU 0" in guard.notice()


def test_other_errors_pass(guard: CudaGuard, file: AttachedWriter) -> None:
    """An unrelated error of the library stays as it is."""
    file(real(1000, version=2))

    def broken() -> int:
        raise MemoryError("out of memory")

    with pytest.raises(MemoryError):
        guard.starts(broken)()
    assert guard.notice() == ""


def test_older_view_is_ignored(guard: CudaGuard, env: dict[str, str]) -> None:
    """A late view never overwrites a newer one; another instance of the server always does."""
    guard.see(Hint.of(real(2000, version=9)))
    guard.see(Hint.of(real(1000, version=8)))
    assert env[VISIBLE] == uuids(0, 1)
    guard.see(Hint("two", 1, False, Hint.of(real(1000)).gpus))
    assert env[VISIBLE] == uuids(0)


def test_started_cuda_is_detected_by_mapped_devices(guard: CudaGuard, file: AttachedWriter) -> None:
    """This also detects libraries that we do not know; NVML alone, which maps no GPU, is not CUDA."""
    cuda = ["/dev/nvidia-uvm", "/dev/nvidiactl", "/dev/nvidia0", "/dev/null"]
    nvml = [*cuda, "/dev/nvidia-caps/nvidia-cap1"]
    assert cuda_nodes(cuda, ["/dev/nvidiactl", "/dev/nvidia0"]) == {"/dev/nvidia0"}
    assert cuda_nodes(nvml, ["/dev/nvidiactl"]) == frozenset()
    guard.see(Hint.of(real(2000, version=2)))
    assert guard.notice(links=nvml, mapped=[]) == ""
    assert "cannot use GPU 1" in guard.notice(links=cuda, mapped=["/dev/nvidia0"])


def test_own_mapped_devices_are_found() -> None:
    """The list has a device that this process maps, and no other file."""
    with Path("/dev/zero").open("r+b") as zero, mmap.mmap(zero.fileno(), 4096, flags=mmap.MAP_PRIVATE):
        assert mapped_devices().count("/dev/zero") == 1
        assert all(name.startswith("/dev/") for name in mapped_devices())


def test_own_open_files_are_found() -> None:
    """The list has a file that this process opens."""
    with Path(os.devnull).open():
        assert os.devnull in open_files()


def test_file_is_written_only_on_change(file: AttachedWriter) -> None:
    """A new version with the same GPUs costs no write."""
    before = file.path.stat().st_mtime_ns
    file(real(0, version=2))
    assert file.path.stat().st_mtime_ns == before
    assert Hint.from_text(file.path.read_bytes()) == Hint.of(real(0))
    assert file.path.stat().st_mode & 0o777 == 0o600
    file.remove()
    assert not file.path.exists()


# ------------------------------------------------------------------------------------------------ real kernels

EARLY_AND_LATE = {
    "torch": ("torch.zeros(1, device='cuda')", "torch.cuda.is_available()", "False"),
    "cupy": ("cupy.zeros(1)", "cupy.cuda.is_available(), cupy.cuda.runtime.getDeviceCount()", "False 0"),
    "cupy.random": ("cupy.random.rand(1)", "cupy.is_available()", "False"),
    "numba.cuda": ("numba.cuda.to_device(1)", "numba.cuda.is_available()", "False"),
    "jax": ("f'1 on {jax.devices(\"cuda\")[0]}'", "None", "None"),
    "tensorflow": (
        "'1 on ' + tensorflow.config.list_physical_devices()[1][4:]",
        "tensorflow.config.list_physical_devices('GPU')",
        "[]",
    ),
}


@pytest.mark.usefixtures("provisioned")
@pytest.mark.parametrize("library", EARLY_AND_LATE)
def test_kernel_without_gpu_uses_one_later(start_kernel: StartKernel, file: AttachedWriter, library: str) -> None:
    """A real kernel fails while it has no GPU; it gets one, and the same process uses it."""
    use, ask, nothing = EARLY_AND_LATE[library]
    kernel = start_kernel(JUPYTER_GPU_ATTACHED=str(file.path))
    pid = kernel.run(f"import os, {library}; print(os.getpid())")
    assert kernel.run(f"print({ask})") == nothing
    with pytest.raises(Failed, match=r"NoGpuAttached: Your server has no GPU: gpu\.resize\(1\) first"):
        kernel.run(f"print({use})")
    file(real(1000, version=2))
    assert kernel.run(f"print({use})") == f"1 on {uuids(0)}"
    assert kernel.run("print(os.getpid())") == pid
    file(real(2000, version=3))
    kernel.run("pass")
    assert "cannot use GPU 1" in kernel.errors


@pytest.mark.parametrize("library", EARLY_AND_LATE)
def test_stand_ins_remember_a_failed_look_without_the_guard(start_kernel: StartKernel, library: str) -> None:
    """They behave as the libraries do: without the guard, the first failure lasts for ever."""
    use, _ask, _ = EARLY_AND_LATE[library]
    kernel = start_kernel(CUDA_VISIBLE_DEVICES="")
    kernel.run(f"import os, {library}")
    with pytest.raises(Failed):
        kernel.run(f"print({use})")
    kernel.run(f"os.environ['CUDA_VISIBLE_DEVICES'] = '{uuids(0)}'")
    with pytest.raises(Failed):
        kernel.run(f"print({use})")


@pytest.mark.usefixtures("provisioned")
def test_cpu_on_purpose_is_no_error(start_kernel: StartKernel, file: AttachedWriter) -> None:
    """JAX stays on the CPU by its own variable or by CUDA's."""
    kernel = start_kernel(JUPYTER_GPU_ATTACHED=str(file.path), JAX_PLATFORMS="cpu")
    assert kernel.run("import jax; print(jax.devices())") == "['cpu:0']"
    kernel = start_kernel(JUPYTER_GPU_ATTACHED=str(file.path))
    kernel.run("import os; os.environ['CUDA_VISIBLE_DEVICES'] = '-1'")
    assert kernel.run("import jax; print(jax.devices())") == "['cpu:0']"


@pytest.mark.usefixtures("provisioned")
def test_unknown_version_of_a_library_is_left_alone(
    start_kernel: StartKernel, file: AttachedWriter, tmp_path: Path
) -> None:
    """A library with unknown internals is imported as without the guard."""
    folder = tmp_path / "other"
    folder.mkdir()
    (folder / "torch.py").write_text("answer = 42\n")
    kernel = start_kernel(JUPYTER_GPU_ATTACHED=str(file.path), PYTHONPATH=f"{folder}:{Path.cwd()}")
    assert kernel.run("import torch; print(torch.answer)") == "42"


@pytest.mark.usefixtures("provisioned")
def test_loader_is_the_librarys_own(start_kernel: StartKernel, file: AttachedWriter) -> None:
    """Loader, source and reload are as without the guard."""
    kernel = start_kernel(JUPYTER_GPU_ATTACHED=str(file.path))
    kernel.run("import torch, inspect, importlib")
    code = "print(type(torch.__loader__).__name__, 'PyTorch' in inspect.getsource(torch))"
    assert kernel.run(code) == "SourceFileLoader True"
    assert kernel.run("importlib.reload(torch); print(torch.cuda.is_available())") == "False"


@pytest.mark.usefixtures("provisioned")
def test_lowered_limit_is_shown_before_the_next_cell(start_kernel: StartKernel, file: AttachedWriter) -> None:
    """A running kernel prints it once, before the cell that is run next, and its output stays as it is."""
    kernel = start_kernel(JUPYTER_GPU_ATTACHED=str(file.path))
    file(lowered(1000, 2, "Your limit is 0 GPUs. 1 GPU will be taken back at 14:30 UTC on 25 November."))
    assert kernel.run("print(1)") == "1"
    assert kernel.errors == "Your limit is 0 GPUs. 1 GPU will be taken back at 14:30 UTC on 25 November.\n"
    assert (kernel.run("print(2)"), kernel.errors) == ("2", "")


@pytest.mark.usefixtures("provisioned")
def test_hook_before_a_cell_is_fast(start_kernel: StartKernel, file: AttachedWriter) -> None:
    """It takes less than a tenth of a millisecond if nothing changed."""
    kernel = start_kernel(JUPYTER_GPU_ATTACHED=str(file.path))
    code = (
        "import time, timeit; e, timer = get_ipython().events, time.thread_time\n"
        "print(min(timeit.repeat(lambda: e.trigger('pre_run_cell', None), number=100, repeat=5, timer=timer)) / 100)"
    )
    assert float(kernel.run(code)) < 1e-4


def _is_loaded(kernel: Kernel) -> bool:
    return kernel.run("print('jupyter_gpu.startup' in get_ipython().extension_manager.loaded)") == "True"


@pytest.mark.usefixtures("provisioned")
def test_restarted_kernel_is_guarded_again(start_kernel: StartKernel, file: AttachedWriter) -> None:
    """A restart is a start."""
    kernel = start_kernel(JUPYTER_GPU_ATTACHED=str(file.path))
    assert _is_loaded(kernel)
    kernel.manager.restart_kernel(now=True)
    kernel.client.wait_for_ready(timeout=60)
    assert _is_loaded(kernel)
