"""AMD's GPUs, read from a tree of files as the Linux kernel has it; no AMD GPU is needed."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

from jupyter_gpu.model.gpu import Device
from jupyter_gpu.model.view import GpuLoad
from jupyter_gpu_node.devices import cgroup
from jupyter_gpu_node.devices.enforcement import BpfEnforcement
from jupyter_gpu_node.devices.rules.device_rules import DeviceRules
from jupyter_gpu_node.gpus import vendors
from jupyter_gpu_node.gpus.amd import AmdSource
from jupyter_gpu_node.gpus.busy_sampler import BusySampler
from jupyter_gpu_node.gpus.registry import Registry
from tests.backends.local.stage import wait_for
from tests.node.conftest import Child
from tests.node.gpus.amd_files import GIB, AmdFiles

CALL = """
def opened(path):
    try:
        os.close(open_device(path))
    except OSError as error:
        return error.errno
    return 0
"""


@pytest.fixture
def files(tmp_path: Path) -> AmdFiles:
    """A machine with a CPU and no GPU yet."""
    return AmdFiles(tmp_path / "sys")


@pytest.fixture
def drm() -> Iterator[tuple[Path, ...]]:
    """Devices with the numbers of a card, and of two GPUs of AMD's."""
    directory = Path(tempfile.mkdtemp(prefix="jupyter-gpu-test-", dir="/dev"))  # /tmp is often mounted without devices
    paths = tuple(directory / name for name in ("card1", "renderD128", "renderD129"))
    for path, minor in zip(paths, (1, 128, 129), strict=True):
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(226, minor))
    yield paths
    shutil.rmtree(directory)


def source(files: AmdFiles, deadline: float = 30) -> AmdSource:
    """The source of these files."""
    return AmdSource(files.system, deadline)


def test_gpus_are_found(files: AmdFiles) -> None:
    """By the numbers of their devices; the CPU is none of them."""
    files.add(numa=1)
    files.add(product="", hive=5, numa=-1)
    made = source(files)
    first, second = made.inventory()
    assert (first.uuid, first.model, first.memory, first.numa) == (files.uuid(0), "AMD Instinct MI210", 64 * GIB, 1)
    assert (second.uuid, second.model, second.numa, second.island) == (files.uuid(1), "AMD gfx90a", None, "hive-5")
    assert [(gpu.index, gpu.device, gpu.path) for gpu in (first, second)] == [
        (0, Device(226, 128), "/dev/dri/renderD128"),
        (1, Device(226, 129), "/dev/dri/renderD129"),
    ]
    assert all(gpu.healthy and gpu.vendor == "amd" for gpu in (first, second))
    assert (made.note, made.simulated, made.processes(), made.details([first.uuid])) == ("", False, frozenset(), {})
    made.close()


def test_machine_without_the_driver_has_no_gpus(tmp_path: Path) -> None:
    """And says why."""
    made = AmdSource(tmp_path, 30)
    assert made.inventory() == ()
    assert "no driver" in made.note
    assert made.holders(["GPU-1"]) == {}
    assert made.loads(["GPU-1"]) == {}


def test_places_on_the_bus_are_known_to_the_registry(files: AmdFiles) -> None:
    """Other plugins name GPUs by them; that of a GPU that is gone stays known, as it may be meant all the same."""
    files.add()
    files.add(location=0x1C5A8)
    registry = Registry(lambda: source(files))
    assert registry.buses() == {}
    registry.take()
    assert registry.buses() == {files.uuid(0): "0000:03:00", files.uuid(1): "0000:c5:15"}
    shutil.rmtree(files.node(0))
    registry.take(now=True)
    assert registry.buses().keys() == {files.uuid(0), files.uuid(1)}


def test_gpu_that_is_not_understood_is_left_out_with_the_reason(files: AmdFiles) -> None:
    """The others are there."""
    files.add()
    files.add()
    files.describe(1, unique_id=None)
    made = source(files)
    assert [gpu.uuid for gpu in made.inventory()] == [files.uuid(0)]
    assert made.note == "The AMD GPU of node 2 cannot be used: The field 'unique_id' is missing."


def test_node_that_is_gone_or_hidden_is_told_of(files: AmdFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver hides a GPU from programs that may not open it."""
    files.add()
    files.add()
    (files.node(0) / "properties").unlink()
    made = source(files)
    assert [gpu.uuid for gpu in made.inventory()] == [files.uuid(1)]
    assert "node 1 cannot be used" in made.note

    def hidden(_folder: Path) -> None:
        raise PermissionError

    monkeypatch.setattr("jupyter_gpu_node.gpus.amd._node", hidden)
    late = source(files)
    assert late.inventory() == ()
    assert "must be privileged" in late.note


def test_gpus_that_were_read_stay_known_when_the_driver_hides_them(
    files: AmdFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for a server that has guarded itself: for as long as the same chip is behind the device."""
    for _ in range(4):
        files.add()
    files.heat(0)
    made = source(files)
    before = made.inventory()

    def hidden(folder: Path) -> None:
        if folder.name != "0":
            raise PermissionError

    monkeypatch.setattr("jupyter_gpu_node.gpus.amd._node", hidden)
    assert (made.inventory(), made.note) == (before, "")
    (files.device(1) / "unique_id").write_text("another\n")
    (files.device(2) / "mem_info_vram_total").unlink()
    shutil.rmtree(files.node(3))
    shutil.rmtree(files.device(3).parent)
    found = {gpu.uuid: gpu.healthy for gpu in made.inventory()}
    assert found == {files.uuid(0): True, files.uuid(2): False}
    assert "shows a GPU only to programs that may open it" in made.note


def test_hot_gpu_is_slow_after_some_inventories(files: AmdFiles) -> None:
    """As the driver says it; other reasons, and a driver that says nothing, make no GPU slow."""
    files.add()
    files.add()
    files.heat(0)
    files.heat(1, why=0xFF)
    made = source(files)
    found = [[gpu.slow for gpu in made.inventory()] for _ in range(3)]
    assert found == [[False, False], [False, False], [True, False]]
    (files.device(0) / "gpu_metrics").unlink()
    assert [gpu.slow for gpu in made.inventory()] == [True, False]


def test_use_is_sampled_while_somebody_asks(files: AmdFiles) -> None:
    """Unknown at first, then the peak; a GPU that does not tell, and one that nobody knows, are never known."""
    files.add()
    files.add()
    files.add()
    (files.device(1) / "gpu_busy_percent").unlink()
    (files.device(2) / "gpu_busy_percent").write_text("0\n")
    made = source(files)
    made.inventory()
    asked = [files.uuid(0), files.uuid(1), files.uuid(2), "GPU-of-another"]
    assert made.peaks(asked, 0.5) == {}
    found: dict[str, int] = {}
    wait_for(lambda: found.update(made.peaks(asked, 0.1)) or len(found) == 2, "samples")
    assert found == {files.uuid(0): 37, files.uuid(2): 0}
    thread = made._busy._thread
    made.close()
    assert thread is not None
    thread.join(30)
    assert not thread.is_alive()


def test_nobody_samples_when_nobody_asks() -> None:
    """The thread ends, and a new question starts another."""
    read: list[tuple[str, ...]] = []

    def busy(uuids: Collection[str]) -> dict[str, int | None]:
        read.append(tuple(uuids))
        return dict.fromkeys(uuids, 0)

    sampler = BusySampler(busy, forgotten=0.3)
    for _ in range(2):
        assert sampler.peaks(["g"], 60) == {}
        thread = sampler._thread
        assert thread is not None
        thread.join(30)
        assert sampler._thread is None
    assert set(read) == {("g",)}
    sampler.close()
    assert sampler.peaks(["g"], 60) == {}
    assert sampler._thread is None


def test_gpu_in_a_reset_is_unhealthy_until_it_is_over(files: AmdFiles) -> None:
    """The driver tells of no memory meanwhile."""
    files.add()
    made = source(files)
    total = files.device(0) / "mem_info_vram_total"
    text = total.read_text()
    total.unlink()
    (found,) = made.inventory()
    assert (found.healthy, found.health) == (False, "Its driver does not answer, or resets it.")
    total.write_text(text)
    (found,) = made.inventory()
    assert found.healthy


def test_driver_that_hangs_costs_one_deadline(files: AmdFiles) -> None:
    """All GPUs are unhealthy until it answers; a question that hangs is not asked twice."""
    files.add()
    made = source(files)
    (known,) = made.inventory()
    made._inventories._deadline = 0.5
    total = files.device(0) / "mem_info_vram_total"
    text = total.read_text()
    total.unlink()
    os.mkfifo(total)  # to open it waits for a writer, as a read waits for a driver that hangs
    hanging = set()
    for _ in range(3):
        (found,) = made.inventory()
        hanging.add(made._inventories._thread)
        assert (found.uuid, found.healthy) == (known.uuid, False)
        assert "does not answer" in found.health
        assert "does not answer" in made.note
    with total.open("w") as pipe:
        pipe.write(text)
    (thread,) = hanging
    assert thread is not None
    thread.join()
    total.unlink()
    total.write_text(text)
    made._inventories._deadline = 30
    assert made.inventory() == (known,)


def test_load_is_that_of_the_card(files: AmdFiles) -> None:
    """The load is that of the GPUs that were asked for; newer drivers name the power otherwise."""
    files.add()
    files.add()
    (files.device(1) / "hwmon/hwmon5/power1_average").rename(files.device(1) / "hwmon/hwmon5/power1_input")
    (files.device(1) / "gpu_busy_percent").write_text("101\n")
    made = source(files)
    assert made.loads([files.uuid(0)]) == {}, "nothing is known before the first inventory"
    made.inventory()
    assert made.loads([files.uuid(0), "GPU-of-another"]) == {files.uuid(0): GpuLoad(37, 3 * GIB, 41, 97.0)}
    assert made.loads([files.uuid(1)]) == {files.uuid(1): GpuLoad(None, 3 * GIB, 41, 97.0)}


def test_driver_tells_for_which_processes_it_keeps_a_gpu(files: AmdFiles) -> None:
    """Also of a GPU that is gone, and none of GPUs that it does not have."""
    files.add()
    files.add()
    made = source(files)
    files.keep(4711, 0)
    files.keep(4712, 0, 1)
    (files.kfd / "proc/note").mkdir()
    assert made.holders([files.uuid(0)]) == {}, "nothing is known before the first inventory"
    made.inventory()
    assert made.holders([files.uuid(0), "GPU-of-another"]) == {files.uuid(0): {4711, 4712}}
    (files.node(0) / "properties").unlink()
    made.inventory()
    assert made.holders([files.uuid(0), files.uuid(1)]) == {files.uuid(0): {4711, 4712}, files.uuid(1): {4712}}


def test_process_whose_record_cannot_be_read_counts_for_every_gpu(files: AmdFiles) -> None:
    """One that has ended counts for none."""
    files.add()
    made = source(files)
    made.inventory()
    (files.kfd / "proc/4711").write_text("no folder")
    (files.kfd / "proc/4712").symlink_to(files.kfd / "proc/nowhere")
    assert made.holders([files.uuid(0)]) == {files.uuid(0): {4711}}


def test_registry_covers_cards_beside_the_devices_that_render(files: AmdFiles) -> None:
    """A card leads to the same GPU."""
    files.add()
    registry = Registry(lambda: source(files), vendors.devices((vendors.NVIDIA, vendors.AMD)))
    registry.take()
    assert [gpu.uuid for gpu in registry.gpus] == [files.uuid(0)]
    assert {Device(226, 0), Device(226, 128), Device(226, 191), Device(226, 511), Device(195, 0)} <= registry.devices
    files.keep(4711, 0)
    assert registry.holders([files.uuid(0)]) == {files.uuid(0): {4711}}
    assert registry.holders([]) == {}


@pytest.mark.root
def test_granted_gpu_opens_and_its_card_does_not(
    files: AmdFiles, unified: Path, uid: str, spawn: Callable[..., Child], drm: tuple[Path, ...]
) -> None:
    """With devices of their real numbers: where no driver has one, an open that is permitted fails otherwise."""
    files.add()
    files.add()
    _, second = source(files).inventory()
    assert second.device is not None
    child = spawn()
    child.run(CALL)

    def refused() -> list[bool]:
        return [child.run(f"opened({str(path)!r})") == errno.EPERM for path in drm]

    if any(refused()):
        pytest.skip("this machine itself denies these devices")
    guard = BpfEnforcement.create(vendors.AMD.devices, uid, unified)
    cgroup.enter(guard.group, child.pid)
    assert refused() == [True, True, True]
    guard.apply(DeviceRules(vendors.AMD.devices, frozenset({second.device})))
    assert refused() == [True, True, False]
    guard.apply(DeviceRules.closed(vendors.AMD.devices))
    assert refused() == [True, True, True]
    cgroup.enter(unified, child.pid)
    assert guard.close()
