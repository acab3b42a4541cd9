"""NVML in a helper process: the pipe, its deadlines and its death, with a fake driver; and the note without one."""

import json
import os
import secrets
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.model.annotations import decode_inventory, encode
from jupyter_gpu.model.gpu import Device
from jupyter_gpu.model.view import GpuLoad
from jupyter_gpu_node.devices import enforcement
from jupyter_gpu_node.gpus import nvml
from jupyter_gpu_node.gpus.nvml import NvmlSource
from jupyter_gpu_node.gpus.rules.slowness import BEGIN
from jupyter_gpu_node.gpus.rules.xids import CALM
from jupyter_gpu_node.processes import proc
from tests.node.conftest import MANAGED, Child

HARDWARE = Path(__file__).parent / "fake_hardware"


class Clock:
    """Time that passes when told to."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Driver:
    """A fake driver and the sources that use it."""

    def __init__(self, path: Path, nodes: str) -> None:
        self.path = path
        self.nodes = nodes
        self.clock = Clock()
        self.sources: list[NvmlSource] = []
        self.set(gpu("a"), gpu("b"))

    def set(self, *gpus: dict[str, Any], **world: Any) -> None:
        """Set what the driver says from now on."""
        draft = self.path.with_suffix(".draft")
        draft.write_text(json.dumps({"gpus": gpus, "nodes": self.nodes, **world}))
        draft.replace(self.path)

    def source(
        self, deadline: float = 20, leave: Callable[[int], None] | None = None, *, bare: bool = False
    ) -> NvmlSource:
        environment = {"FAKE_NVML": str(self.path), "PYTHONPATH": f"{HARDWARE}:{os.pathsep.join(sys.path)}"}
        options: dict[str, Any] = {"environment": environment, "clock": self.clock, "bare": lambda: bare}
        source = NvmlSource(leave, deadline=deadline, retry=60, **options)
        self.sources.append(source)
        return source


def gpu(letter: str, **more: Any) -> dict[str, Any]:
    return {"uuid": f"GPU-{letter}", **more}


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    name = f"-test-{secrets.token_hex(4)}-"
    nodes = [Path(f"/dev/nvidia{name}{number}") for number in range(3)]
    for number, node in enumerate(nodes):
        os.mknod(node, stat.S_IFCHR | 0o600, os.makedev(4, 40 + number))
    driver = Driver(tmp_path / "nvml.json", name)
    yield driver
    for source in driver.sources:
        source.close()
    for node in nodes:
        node.unlink()


def health(source: NvmlSource) -> list[tuple[str, bool]]:
    return [(gpu.uuid[-1], gpu.healthy) for gpu in source.inventory()]


def helper(source: NvmlSource) -> int:
    assert source.helper is not None
    return source.helper.pid


@pytest.mark.root
def test_inventory(driver: Driver) -> None:
    """Everything a GPU is, as the annotation holds it."""
    driver.set(gpu("a", name="NVIDIA H200"), gpu("b", total=7), gpu("c"), links=[[0, 1]], switches=[[0, 2], [1, 2]])
    source = driver.source()
    first, second, third = gpus = source.inventory()
    assert decode_inventory(encode(gpus)) == gpus
    assert (first.uuid, first.index, first.model, first.memory) == ("GPU-a", 0, "NVIDIA H200", 80 * 2**30)
    assert first.device == Device(4, 40)
    assert (second.memory, second.device) == (7, Device(4, 41))
    assert (first.island, second.island, third.island) == ("group-0", "group-0", None)
    assert [g.switch for g in gpus] == ["group-0"] * 3, "joined through others is joined"
    assert all(g.healthy and not g.simulated for g in gpus)
    assert source.note == ""
    assert source.inventory() == gpus
    driver.set(gpu("a"), gpu("b"), gpu("c"), links=[[1, 2]], switches=[[0, 2]])
    found = driver.source().inventory()
    assert [g.island for g in found] == [None, "group-1", "group-1"]
    assert [g.switch for g in found] == ["group-0", None, "group-0"], "others are further from each other"


@pytest.mark.root
def test_compute_is_that_of_all_cores_at_the_highest_clock(driver: Driver) -> None:
    """An old driver does not tell one or the other, and the GPU can be used all the same."""
    driver.set(gpu("a", cores=16_896, clock=1980), gpu("b", cores=16_896), gpu("c", clock=1980))
    found = driver.source().inventory()
    assert [(one.compute, one.healthy) for one in found] == [(66_908, True), (None, True), (None, True)]


@pytest.mark.root
def test_fabric_is_told_where_there_is_one(driver: Driver) -> None:
    """By the driver's id, which may have zeros within, and the clique; an old driver does not tell it."""
    driver.set(gpu("a", fabric=["00ff" * 8, 7]), gpu("b", fabric=["00" * 16, 0]), gpu("c"))
    found = driver.source().inventory()
    assert [one.fabric for one in found] == ["00ff00ff-00ff-00ff-00ff-00ff00ff00ff.7", None, None]
    assert all(one.healthy for one in found)


@pytest.mark.root
@pytest.mark.parametrize(
    "reason", [{"throttled": 0x8}, {"throttled": 0x40 | 0x1}, {"pending": 1}, {"drained": 1, "throttled": 0x4}]
)
def test_gpu_that_is_slowed_down_or_drained_is_slow(driver: Driver, reason: dict[str, int]) -> None:
    """Some inventories in a row; one that only reaches its limit of power, is idle or does not tell is not."""
    driver.set(gpu("a", **reason), gpu("b", throttled=0x4 | 0x1), gpu("c"))
    source = driver.source()
    found = [[gpu.slow for gpu in source.inventory()] for _ in range(BEGIN)]
    assert found == [[False] * 3] * (BEGIN - 1) + [[True, False, False]]


@pytest.mark.root
def test_loads(driver: Driver) -> None:
    """Per cent and bytes; nothing for a GPU that is not there, None for what it does not tell."""
    driver.set(gpu("a", busy=37, used=5), gpu("b", fails="UtilizationRates"))
    source = driver.source()
    found = source.loads(["GPU-a", "GPU-b", "GPU-c"])
    assert found == {"GPU-a": GpuLoad(37, 5), "GPU-b": GpuLoad(None, 2**30)}
    assert source.loads([]) == {}


@pytest.mark.root
@pytest.mark.parametrize("misfortune", ["hangs", "dies"])
def test_one_gpu_takes_the_helper_down(driver: Driver, misfortune: str) -> None:
    """It alone is unhealthy and left alone for a while; the others are asked on by a fresh helper."""
    source = driver.source(deadline=2)
    assert health(source) == [("a", True), ("b", True)]
    before = helper(source)
    driver.set(gpu("a", **{misfortune: "Name"}), gpu("b"))
    begin = time.monotonic()
    source.deadlines = (20, 2)  # the fresh helper needs a moment to start
    assert health(source) == [("a", False), ("b", True)]
    assert time.monotonic() - begin < 19, "nothing waited as long as for a helper that starts"
    assert helper(source) != before
    assert not Path(f"/proc/{before}").exists(), "killed, and waited for"
    assert "GPU 0 is out of order" in source.note
    (sick, _) = source.inventory()
    assert (sick.device, sick.model) == (Device(4, 40), "NVIDIA Test"), "it stays what it was"
    assert set(source.loads(["GPU-a", "GPU-b"])) == {"GPU-b"}

    after = helper(source)
    driver.set(gpu("a"), gpu("b"))
    assert health(source) == [("a", False), ("b", True)], "not asked again before its time"
    driver.clock.now += 61
    assert health(source) == [("a", True), ("b", True)]
    assert helper(source) == after
    assert source.note == ""


@pytest.mark.root
@pytest.mark.parametrize("place", ["Init", "Count"])
def test_driver_hangs(driver: Driver, place: str) -> None:
    """All GPUs are unhealthy, none is forgotten, and the next questions do not wait for it again."""
    source = driver.source()
    assert health(source) == [("a", True), ("b", True)]
    driver.set(gpu("a"), gpu("b"), hangs=place)
    os.kill(helper(source), signal.SIGKILL)
    source.deadlines = (2, 2)
    assert health(source) == [("a", False), ("b", False)]
    assert "No answer within 2 seconds" in source.note
    begin = time.monotonic()
    assert health(source) == [("a", False), ("b", False)]
    assert source.loads(["GPU-a"]) == {}
    assert time.monotonic() - begin < 2
    driver.set(gpu("a"), gpu("b"))
    driver.clock.now += 61
    source.deadlines = (20, 20)
    assert health(source) == [("a", True), ("b", True)]


@pytest.mark.root
def test_killed_helper_is_replaced(driver: Driver) -> None:
    """Out of memory, say: the next question starts another one, and nothing else is to be seen."""
    source = driver.source()
    source.inventory()
    os.kill(helper(source), signal.SIGKILL)
    assert health(source) == [("a", True), ("b", True)]
    assert source.note == ""


@pytest.mark.root
def test_lost_gpu_is_unhealthy_with_the_drivers_word(driver: Driver) -> None:
    """It keeps its other facts."""
    source = driver.source()
    source.inventory()
    driver.set(gpu("a"), gpu("b", fails="HandleByIndex"))
    _, lost = source.inventory()
    assert (lost.uuid, lost.healthy, lost.health) == ("GPU-b", False, "GPU is lost.")
    driver.set(gpu("a"), gpu("b"))
    assert health(source) == [("a", True), ("b", True)]


@pytest.mark.root
def test_gpu_that_fails_from_the_start_is_missing(driver: Driver) -> None:
    """It is not known which GPU it is: it is missing, and the note says so."""
    driver.set(gpu("a"), gpu("b", fails="UUID"))
    source = driver.source()
    assert health(source) == [("a", True)]
    assert "GPU is lost" in source.note


@pytest.mark.root
def test_removed_gpu_disappears(driver: Driver) -> None:
    """Gone from the driver's list, gone from ours."""
    source = driver.source()
    source.inventory()
    driver.set(gpu("a"))
    assert health(source) == [("a", True)]


@pytest.mark.root
@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ({"worn": 1}, "worn out"),
        ({"mig": 1}, "MIG mode"),
        ({"minor": "/nowhere"}, "No such file"),
        ({"minor": "0/x"}, "Not a directory"),
    ],
)
def test_unusable_gpus_are_unhealthy_with_a_reason(driver: Driver, trouble: dict[str, Any], words: str) -> None:
    """Worn memory, MIG mode, a device node that does not exist: never granted."""
    source = driver.source()
    source.inventory()
    driver.set(gpu("a", **trouble), gpu("b", mig=0))
    sick, well = source.inventory()
    assert not sick.healthy
    assert words in sick.health
    assert sick.device == Device(4, 40), "its device stays guarded"
    assert well.healthy


@pytest.mark.root
def test_instances(driver: Driver) -> None:
    """Instances are those that the driver shows; that a GPU has none is known only where the driver says so."""
    driver.set(
        gpu("a", mig=1, instances=["MIG-1", None, "MIG-GPU-a/2/0"]),
        gpu("b"),
        gpu("c", mig=0),
    )
    source = driver.source()
    assert source.instances() == {}, "nobody asked yet"
    first, second, third = source.inventory()
    assert (first.healthy, second.healthy, third.healthy) == (False, True, True)
    told = {"GPU-a": frozenset({"MIG-1", "MIG-GPU-a/2/0"}), "GPU-b": None, "GPU-c": None}
    assert source.instances() == told
    driver.set(gpu("a", mig=1, instances=["MIG-1"], fails="MigDeviceHandleByIndex"), gpu("b"), gpu("c"))
    source.inventory()
    assert source.instances() == {**told, "GPU-a": frozenset()}, "it is divided, and hides into what"


@pytest.mark.root
def test_gpu_with_unknown_mig_mode_is_not_used(driver: Driver) -> None:
    """It may be in MIG mode, so it is not known to be whole."""
    source = driver.source()
    source.inventory()
    driver.set(gpu("a", fails="MigMode"), gpu("b", fails="MaxMigDeviceCount", mig=1))
    first, second = source.inventory()
    assert not first.healthy
    assert "does not tell whether it is in MIG mode: GPU is lost" in first.health
    assert not second.healthy
    assert source.instances() == {"GPU-b": frozenset()}


@pytest.mark.root
def test_hanging_driver_reports_no_instances(driver: Driver) -> None:
    """Nor for a GPU that is not asked any more: its earlier answer may be out of date."""
    source = driver.source(deadline=0.5)
    source.inventory()
    assert source.instances() == {"GPU-a": None, "GPU-b": None}
    driver.set(gpu("a", hangs="MigMode"), gpu("b"))
    source.inventory()
    assert source.instances() == {"GPU-b": None}
    driver.set(hangs="Count")
    source.inventory()
    assert source.instances() == {}


@pytest.mark.root
def test_xid_errors(driver: Driver) -> None:
    """A hardware error of the driver's log makes the GPU unhealthy, one that a program caused does not."""
    source = driver.source()
    source.inventory()
    driver.set(gpu("a"), gpu("b"), xids=[[0, 31], [0, 43], [1, 79]])
    assert health(source) == [("a", True), ("b", False)]
    assert "Xid 79: it has fallen off the bus" in source.inventory()[1].health


@pytest.mark.root
def test_gpu_recovers_when_the_driver_says_so(driver: Driver) -> None:
    """Not at once; the same source and the same helper go on all the time."""
    source = driver.source()
    source.inventory()
    before = helper(source)
    driver.set(gpu("a", recovery=0), gpu("b", recovery=1), xids=[[1, 95]])
    for _ in range(CALM + 2):
        assert health(source) == [("a", True), ("b", False)]
    assert "Reset the GPU" in source.inventory()[1].health
    driver.set(gpu("a", recovery=0), gpu("b", recovery=0), xids=[[1, 95]])
    assert [health(source)[1][1] for _ in range(CALM + 1)] == [False] * CALM + [True]
    assert helper(source) == before


@pytest.mark.root
def test_gpu_recovers_after_a_reset_that_the_driver_does_not_report(driver: Driver) -> None:
    """It was lost and answers again. One that only goes on answering stays out of use."""
    source = driver.source()
    source.inventory()
    driver.set(gpu("a"), gpu("b"), xids=[[0, 48]])
    assert [health(source)[0][1] for _ in range(2 * CALM)] == [False] * 2 * CALM
    driver.set(gpu("a", fails="HandleByIndex"), gpu("b"), xids=[[0, 48]])
    assert health(source) == [("a", False), ("b", True)]
    driver.set(gpu("a"), gpu("b"), xids=[[0, 48]])
    assert [health(source)[0][1] for _ in range(CALM + 1)] == [False] * CALM + [True]


@pytest.mark.root
def test_hang_is_no_reset(driver: Driver) -> None:
    """A GPU that had an error and then hung for a while does not count as reset."""
    source = driver.source(deadline=2)
    source.inventory()
    driver.set(gpu("a"), gpu("b"), xids=[[0, 48]])
    assert health(source)[0] == ("a", False)
    driver.set(gpu("a", hangs="UUID"), gpu("b"), xids=[[0, 48]])
    assert health(source)[0] == ("a", False)
    driver.clock.now += 61
    driver.set(gpu("a"), gpu("b"), xids=[[0, 48]])
    assert [health(source)[0][1] for _ in range(2 * CALM)] == [False] * 2 * CALM


@pytest.mark.root
def test_error_is_kept_when_another_gpu_hangs(driver: Driver) -> None:
    """It is reported before the question that hangs; the next helper does not hear of it any more."""
    source = driver.source(deadline=2)
    source.inventory()
    driver.set(gpu("a"), gpu("b", hangs="UUID"), xids=[[0, 79]])
    assert health(source) == [("a", False), ("b", False)]
    assert "Xid 79" in source.inventory()[0].health


@pytest.mark.root
def test_errors_are_read_from_every_gpu_that_reports_them(driver: Driver) -> None:
    """One that cannot does not keep the others from it; nor does one that is lost together with its name."""
    driver.set(gpu("a", fails="RegisterEvents"), gpu("b"))
    source = driver.source()
    source.inventory()
    driver.set(gpu("a"), gpu("b", fails="UUID"), xids=[[1, 79]])
    source.inventory()
    driver.set(gpu("a"), gpu("b", recovery=2), xids=[[1, 79]])
    assert "Xid 79" in source.inventory()[1].health


@pytest.mark.root
def test_broken_event_set_is_made_anew(driver: Driver) -> None:
    """Errors that come after it are reported again."""
    source = driver.source()
    source.inventory()
    driver.set(gpu("a"), gpu("b"), broken=True)
    source.inventory()
    driver.set(gpu("a"), gpu("b"))
    source.inventory()
    driver.set(gpu("a"), gpu("b"), xids=[[0, 119]])
    assert health(source) == [("a", False), ("b", True)]


@pytest.mark.root
def test_requested_reset_counts_without_an_error(driver: Driver) -> None:
    """The error came before this process began; it is over when the driver asks for nothing any more."""
    driver.set(gpu("a", recovery=1), gpu("b", recovery=0))
    source = driver.source()
    assert health(source) == [("a", False), ("b", True)]
    driver.set(gpu("a", recovery=0), gpu("b", recovery=0))
    assert health(source) == [("a", True), ("b", True)]


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="not run: this machine has an NVIDIA driver")
def test_without_a_driver_the_inventory_is_empty() -> None:
    """With the real NVML binding and no GPU: an empty inventory that says why, and no helper left behind."""
    source = NvmlSource()
    try:
        assert source.inventory() == ()
        assert "No NVIDIA GPU can be used: " in source.note
        assert source.helper is None
        assert source.inventory() == ()
    finally:
        source.close()


def test_missing_binding_is_reported_in_a_sentence(tmp_path: Path) -> None:
    """A broken installation is a sentence, no traceback."""
    (tmp_path / "pynvml.py").write_text("raise ImportError('no pynvml')")
    source = NvmlSource(environment={"PYTHONPATH": f"{tmp_path}:{os.pathsep.join(sys.path)}"})
    assert source.inventory() == ()
    assert source.note == "No NVIDIA GPU can be used: no pynvml."
    source.close()


def test_helper_that_cannot_start_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process to be had: the inventory is empty, and says why."""
    monkeypatch.setattr(nvml, "COMMAND", ("/nowhere/python",))
    source = NvmlSource()
    assert source.inventory() == ()
    assert "cannot start" in source.note
    source.close()


@pytest.mark.parametrize(
    "answer",
    ["", "garbage", "[]", '{"gpus": 5}', '{"at": "x"}', "x" * 2**21, '{"gpus": [{"index": 0}]}'],
    ids=lambda a: a[:9],
)
def test_invalid_answers_count_as_none(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    """A helper that answers nonsense is as good as none."""
    code = f"import sys; sys.stdin.readline(); print({answer!r}, flush=True); sys.stdin.readline()"
    monkeypatch.setattr(nvml, "COMMAND", (sys.executable, "-c", code))
    source = NvmlSource(deadline=5, first_deadline=5)
    assert source.inventory() == ()
    assert source.note
    source.close()


@pytest.mark.parametrize("names", [5, "MIG-1", [1], [""], ["x" * 97], ["MIG-1"] * 65])
def test_unreadable_instances_are_unknown(names: Any) -> None:
    """Neither which they are, nor that there are none; what is said of others counts."""
    answer = nvml.Answer.from_json({"gpus": [], "instances": {"GPU-a": names, "GPU-b": None, "GPU-c": ["MIG-2"]}})
    assert answer.instances == {"GPU-b": None, "GPU-c": frozenset({"MIG-2"})}


@pytest.mark.root
def test_close(driver: Driver) -> None:
    """The helper ends with its source, and a closed source answers nothing."""
    source = driver.source()
    source.inventory()
    pid = helper(source)
    assert pid in source.processes()
    source.close()
    source.close()
    assert not Path(f"/proc/{pid}").exists()
    assert source.loads(["GPU-a"]) == {}


@pytest.mark.root
def test_helper_ends_with_its_server(driver: Driver, spawn: Callable[..., Child]) -> None:
    """A server killed with -9 leaves no helper that keeps the GPUs open."""
    server = spawn(FAKE_NVML=str(driver.path), PYTHONPATH=f"{HARDWARE}:{os.pathsep.join(sys.path)}")
    server.run("from jupyter_gpu_node.gpus.nvml import NvmlSource; source = NvmlSource(); source.inventory()")
    pid = server.run("source.helper.pid")
    start = proc.process_start_time(pid)
    assert start is not None
    server.end()
    end = time.monotonic() + 20
    while proc.alive(pid, start):
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.root
def test_helper_is_outside_the_pod(driver: Driver, uid: str, spawn: Callable[..., Child]) -> None:
    """Before the server enters its group, and also one that is started after that."""
    server = spawn(FAKE_NVML=str(driver.path), PYTHONPATH=f"{HARDWARE}:{os.pathsep.join(sys.path)}")
    server.run("from jupyter_gpu_node.gpus.nvml import NvmlSource; source = NvmlSource()")
    server.run("from jupyter_gpu_node.devices import enforcement; from tests.node.conftest import MANAGED")
    server.run(f"guard = enforcement.choose(MANAGED, {uid!r}, preference='required'); source.leave = guard.leave")
    assert server.run("len(source.inventory())") == 2
    first = server.run("source.helper.pid")
    os.kill(first, signal.SIGKILL)
    assert server.run("len(source.inventory())") == 2
    assert server.run("source.helper.pid") != first
    assert server.run("guard.processes()") == (server.pid,)


@pytest.mark.gpu
def test_real_gpus() -> None:
    """The driver of this machine agrees with its own tool."""
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout.splitlines()
    source = NvmlSource()
    try:
        gpus = source.inventory()
        assert len(gpus) == len(listed)
        for gpu, line in zip(gpus, listed, strict=True):
            assert gpu.uuid in line
            assert gpu.model in line
            assert gpu.device is not None
            assert Path(gpu.path).stat().st_rdev == os.makedev(gpu.device.major, gpu.device.minor)
        loads = source.loads([gpu.uuid for gpu in gpus])
        assert set(loads) == {gpu.uuid for gpu in gpus}
        assert all(load.memory is not None for load in loads.values())
    finally:
        source.close()


def test_helper_marks_agree() -> None:
    """Helpers are known by a mark that no pod's process carries by accident."""
    assert nvml.MARK != enforcement.MARK
    assert MANAGED


def test_users_of_a_gpu(driver: Driver) -> None:
    """The driver reports pids of all users' programs; a GPU for which it reports none is missing."""
    driver.set(gpu("a", computing=[[7, None], [7, None], [9, None]]), gpu("b", computing=[]), gpu("c"))
    source = driver.source()
    assert source.users(["GPU-a", "GPU-b", "GPU-c", "GPU-gone"]) == {"GPU-a": {7, 9}, "GPU-b": frozenset()}
    driver.set(gpu("a", computing=[[0, None]]), gpu("b", computing=[[8, None]]))
    assert source.users(["GPU-a", "GPU-b"]) == {"GPU-b": {8}}
    assert source.users([]) == {}


def test_peaks_of_gpus(driver: Driver) -> None:
    """The highest sample of the time that was asked for; missing where the driver has none, or does not tell."""
    samples = {"a": [[9.0, 70], [1.5, 3], [0.5, 1]], "b": [[9.0, 5], [0.5, 0]], "c": [], "d": None}
    driver.set(*(gpu(name, **({"samples": some} if some is not None else {})) for name, some in samples.items()))
    source = driver.source()
    asked = [f"GPU-{name}" for name in (*samples, "gone")]
    assert source.peaks(asked, 5) == {"GPU-a": 3, "GPU-b": 0}
    assert source.peaks(asked, 20) == {"GPU-a": 70, "GPU-b": 5}
    assert source.peaks([], 5) == {}


def test_gpu_that_hangs_when_asked_for_users_costs_one_deadline(driver: Driver) -> None:
    """The others are asked by a fresh helper."""
    driver.set(gpu("a", hangs="ComputeRunningProcesses"), gpu("b", computing=[[8, None]]))
    source = driver.source(deadline=2)
    source.inventory()
    assert source.users(["GPU-a", "GPU-b"]) == {"GPU-b": {8}}
    assert health(source) == [("a", False), ("b", True)]


def test_gpu_without_a_device_is_used_only_unguarded(driver: Driver) -> None:
    """In WSL 2 the driver knows no number: where GPUs must be guarded it can't be used, which is said; else it can."""
    driver.set(gpu("a", unnumbered=True), gpu("b", fails="MinorNumber"), gpu("c"))
    guarded = driver.source()
    assert health(guarded) == [("c", True)]
    assert "it has no device of its own" in guarded.note
    bare = driver.source(bare=True)
    assert [(gpu.uuid, gpu.device, gpu.path) for gpu in bare.inventory()][:1] == [("GPU-a", None, "")]
    assert health(bare) == [("a", True), ("c", True)], "any other error is one"
    assert "GPU is lost" in bare.note
