"""The devices, mounts and environment of a container with a slot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_gpu.model.gpu import Device, Gpu
from jupyter_gpu_node.gpus import vendors
from jupyter_gpu_node.kubelet import device_nodes
from jupyter_gpu_node.kubelet.rules import allocation
from jupyter_gpu_node.kubelet.rules.allocation import AllocationRefused, DeviceNode, Mount
from jupyter_gpu_node.settings import Driver, Settings, Simulated

REAL = Settings()
BOTH = Settings(vendors=(vendors.NVIDIA, vendors.AMD))
PRETENDED = Settings(simulated=Simulated(2))
LIB = "usr/lib/x86_64-linux-gnu"
LISTING = {
    LIB: ["libcuda.so", "libcuda.so.1", "libcuda.so.570.1", "libnvidia-ml.so.1", "libc.so.6", "libnvidia-nvvm.so.4"],
    "usr/bin": ["bash", "nvidia-smi"],
}


def real(index: int, healthy: bool = True) -> Gpu:
    """A GPU of NVIDIA's driver."""
    return Gpu(f"GPU-{index}", index, "H100", 2**36, Device(195, index), f"/dev/nvidia{index}", healthy=healthy)


def amd(index: int) -> Gpu:
    """A GPU of AMD's driver."""
    minor = 128 + index
    return Gpu(f"GPU-a{index}", index, "MI210", 2**36, Device(226, minor), f"/dev/dri/renderD{minor}", vendor="amd")


def pretended(index: int) -> Gpu:
    """A simulated one."""
    path = f"/dev/jupyter-gpu/gpu{index}"
    return Gpu(f"GPU-{index}", index, "Simulated GPU", 2**30, Device(4, 56 + index), path, simulated=True)


def test_real_gpus_have_their_own_names_and_the_drivers_devices() -> None:
    """All that exist, by index, those out of order too: they may be granted while the container runs."""
    gpus = [real(1, healthy=False), real(0)]
    nodes = allocation.nodes(gpus, REAL)
    wanted = ["/dev/nvidia0", "/dev/nvidia1", *vendors.NVIDIA.control]
    assert nodes == tuple(DeviceNode(path, path, "rw") for path in wanted)
    present = ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm"]
    made = allocation.prepare("slot-0001", gpus, present, [], REAL)
    assert [node.host for node in made.devices] == present


def test_container_gets_the_control_devices_of_the_vendors_that_are_there() -> None:
    """A node without NVIDIA's GPUs has none of its driver, and is not waited for; cards are never given."""
    assert [node.host for node in allocation.nodes([amd(1), amd(0)], BOTH)] == [
        *("/dev/dri/renderD128", "/dev/dri/renderD129", "/dev/kfd"),
    ]
    mixed = ["/dev/nvidia0", "/dev/dri/renderD129", *vendors.NVIDIA.control, "/dev/kfd"]
    assert [node.host for node in allocation.nodes([amd(1), real(0)], BOTH)] == mixed
    assert [node.host for node in allocation.nodes([real(0)], BOTH)] == ["/dev/nvidia0", *vendors.NVIDIA.control]
    assert allocation.nodes([pretended(0)], replace(BOTH, simulated=Simulated(2))) == allocation.nodes(
        [pretended(0)], PRETENDED
    )
    render = "/dev/dri/renderD128"
    assert allocation.unusable([amd(0)], [render, "/dev/kfd"], BOTH) == ""
    assert "/dev/kfd is not there" in allocation.unusable([amd(0)], [render], BOTH)
    assert [node.host for node in allocation.prepare("slot-0001", [amd(0)], [], [], BOTH).devices] == [
        render,
        "/dev/kfd",
    ]


def test_simulated_gpus_have_names_of_their_own() -> None:
    """Without a driver there are no control devices."""
    assert allocation.nodes([pretended(0), pretended(1)], PRETENDED) == (
        DeviceNode("/var/lib/jupyter-gpu/devices/gpu0", "/dev/jupyter-gpu/gpu0"),
        DeviceNode("/var/lib/jupyter-gpu/devices/gpu1", "/dev/jupyter-gpu/gpu1"),
    )


def test_gpu_without_a_device_is_left_out() -> None:
    """One that is simulated by a plain file, or fell off the bus: no runtime could make a node of it."""
    assert allocation.nodes([replace(pretended(0), device=None)], PRETENDED) == ()
    assert allocation.prepare("slot-0001", [replace(pretended(0), device=None)], [], [], PRETENDED).devices == ()


def test_the_environment_keeps_the_nvidia_runtime_out_and_cuda_asleep() -> None:
    """The loader's path is set only where there are libraries to find."""
    made = allocation.prepare("slot-0001", [real(0)], [], [], REAL)
    assert made.environment == {
        "JUPYTER_GPU_NODE_SOCKET": "/run/jupyter-gpu/node.sock",
        "NVIDIA_VISIBLE_DEVICES": "void",
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    }
    assert made.mounts == (Mount("/run/jupyter-gpu/slots/slot-0001", "/run/jupyter-gpu"),)
    driver = [Mount("/a", "/b")]
    with_driver = allocation.prepare("slot-0001", [real(0)], [], driver, REAL)
    assert with_driver.environment["LD_LIBRARY_PATH"] == "/usr/local/nvidia/lib:/usr/local/nvidia/lib64"
    assert with_driver.mounts[1:] == (Mount("/a", "/b"),)


def test_environment_of_the_settings_comes_last() -> None:
    """It can also leave the loader's path alone."""
    driver = Driver(library_path="", environment={"NCCL_DEBUG": "WARN"})
    made = allocation.prepare("slot-0001", [real(0)], [], [Mount("/a", "/b")], replace(REAL, driver=driver))
    assert "LD_LIBRARY_PATH" not in made.environment
    assert made.environment["NCCL_DEBUG"] == "WARN"


def test_the_drivers_files_are_found_on_the_host() -> None:
    """Links too, and nothing else of the system."""
    found = allocation.find_driver(LISTING, Driver())
    names = ["libcuda.so", "libcuda.so.1", "libcuda.so.570.1", "libnvidia-ml.so.1", "libnvidia-nvvm.so.4"]
    assert found == (
        *(Mount(f"/{LIB}/{name}", f"/usr/local/nvidia/lib64/{name}") for name in names),
        Mount("/usr/bin/nvidia-smi", "/usr/local/nvidia/bin/nvidia-smi"),
    )


def test_a_driver_in_a_container_of_its_own_is_found_below_its_root() -> None:
    """As the GPU operator installs it; the path of the mount is the host's, wherever this process looks."""
    driver = Driver(root=Path("/run/nvidia/driver"), seen=Path("/driver"), target=Path("/opt/nvidia"))
    found = allocation.find_driver({LIB: ["libcuda.so.1"]}, driver)
    assert found == (Mount(f"/run/nvidia/driver/{LIB}/libcuda.so.1", "/opt/nvidia/lib64/libcuda.so.1"),)


def test_without_libcuda_there_is_no_driver() -> None:
    """Other libraries of NVIDIA alone are of no use."""
    assert allocation.find_driver({LIB: ["libnvidia-ml.so.1"], "usr/bin": ["nvidia-smi"]}, Driver()) == ()
    assert allocation.find_driver({}, Driver()) == ()


def test_the_gate_stands_at_every_name_of_the_driver() -> None:
    """The real one is only where the gate looks for it; other libraries and programs stay as they are."""
    driver = allocation.find_driver(LISTING, Driver())
    gated = allocation.gated(driver, "/state/gate/libcuda.so.1")
    seen = {mount.container: mount.host for mount in gated}
    names = ("libcuda.so", "libcuda.so.1", "libcuda.so.570.1")
    assert {seen[f"/usr/local/nvidia/lib64/{name}"] for name in names} == {"/state/gate/libcuda.so.1"}
    assert seen["/run/jupyter-gpu/driver/libcuda.so.1"] == f"/{LIB}/libcuda.so.1"
    assert seen["/usr/local/nvidia/lib64/libnvidia-ml.so.1"] == f"/{LIB}/libnvidia-ml.so.1"
    assert len(gated) == len(driver) + 1
    assert (allocation.has_gate(driver), allocation.has_gate(gated)) == (False, True)


@pytest.mark.parametrize(("version", "stands"), [("580.126.09", True), ("570.1", False)])
def test_what_stands_before_nvml_does_so_where_a_process_can_be_parked(version: str, stands: bool) -> None:
    """At every name of it, and NVML itself where it is looked for; an older NVML lacks functions that stand there."""
    names = ("libnvidia-ml.so", "libnvidia-ml.so.1", f"libnvidia-ml.so.{version}")
    driver = allocation.find_driver({**LISTING, LIB: ["libcuda.so.1", *names]}, Driver())
    gated = allocation.gated(driver, "/state/gate/libcuda.so.1", "/state/gate/libnvidia-ml.so.1")
    seen = {mount.container: mount.host for mount in gated}
    found = {seen[f"/usr/local/nvidia/lib64/{name}"] for name in names}
    real = {f"/{LIB}/{name}" for name in names}
    assert found == ({"/state/gate/libnvidia-ml.so.1"} if stands else real)
    assert seen.get("/run/jupyter-gpu/driver/libnvidia-ml.so.1") == (f"/{LIB}/libnvidia-ml.so.1" if stands else None)
    assert seen["/run/jupyter-gpu/driver/libcuda.so.1"] == f"/{LIB}/libcuda.so.1"
    alone = {mount.container: mount.host for mount in allocation.gated(driver, "/state/gate/libcuda.so.1")}
    assert {alone[f"/usr/local/nvidia/lib64/{name}"] for name in names} == real


def test_gate_is_not_mounted_without_a_driver() -> None:
    """No mount is made of nothing; nor before NVML where that is missing."""
    assert allocation.gated((), "/gate", "/nvml") == ()
    driver = allocation.find_driver({LIB: ["libcuda.so.1", "libnvidia-ml.so.580.1"]}, Driver())
    assert "/nvml" not in {mount.host for mount in allocation.gated(driver, "/gate", "/nvml")}


@pytest.mark.parametrize(
    ("asked", "words"),
    [([], "asks for 0 slots"), (["slot-0000", "slot-0001"], "asks for 2 slots"), (["slot-9999"], "does not exist")],
)
def test_unknown_slot_is_refused(asked: list[str], words: str) -> None:
    """With what to do."""
    with pytest.raises(AllocationRefused, match=words):
        allocation.one_slot(asked, {"slot-0000", "slot-0001"})
    assert allocation.one_slot(["slot-0001"], {"slot-0000", "slot-0001"}) == "slot-0001"


CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm")


def test_no_slot_while_a_new_container_could_use_no_gpu() -> None:
    """Its devices are final: no GPU was seen, the driver is silent, or the node of a GPU that works is missing."""
    assert allocation.unusable([], [], REAL).endswith("no GPU that its driver tells of.")
    assert "tells of. No library." in allocation.unusable([], [], REAL, silent="No library.")
    gpus = [real(0), real(1, healthy=False)]
    assert "asked now. It hangs." in allocation.unusable(gpus, ["/dev/nvidia0", *CONTROL], REAL, silent="It hangs.")
    assert "/dev/nvidia0 is not there" in allocation.unusable(gpus, CONTROL, REAL)
    assert "/dev/nvidia-uvm is not there" in allocation.unusable(gpus, ["/dev/nvidia0", "/dev/nvidiactl"], REAL)
    assert allocation.unusable(gpus, ["/dev/nvidia0", *CONTROL], REAL) == ""
    assert "/dev/nvidia1 is not there" in allocation.unusable([real(1, healthy=False)], CONTROL, REAL)
    lost = replace(pretended(0), device=None, healthy=False, health="It fell off.")
    assert allocation.unusable([lost], [], PRETENDED) == "No GPU of this node has a device. It fell off."
    assert allocation.unusable([pretended(0)], ["/var/lib/jupyter-gpu/devices/gpu0"], PRETENDED) == ""


def test_node_without_gpus_offers_slots_where_that_is_chosen(tmp_path: Path) -> None:
    """Containers get the socket and no device; not where a GPU is on the bus, or may be, whatever the driver says."""
    assert allocation.unusable([], [], REAL, silent="No library.", bare=True) == ""
    assert "asked now" in allocation.unusable([real(0)], [], REAL, silent="It hangs.", bare=True)
    made = allocation.prepare("slot-0001", [], [], [], REAL, bare=True)
    assert (made.devices, [mount.container for mount in made.mounts]) == ((), ["/run/jupyter-gpu"])
    chosen = Settings(without_gpus=True)
    assert not device_nodes.is_bare(chosen, tmp_path / "none")
    for number, (maker, kind) in enumerate([("0x8086", "0x030000"), ("0x1af4", "0x020000"), ("0x10de", "0x0c0330")]):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "vendor").write_text(f"{maker}\n")
        (tmp_path / str(number) / "class").write_text(f"{kind}\n")
    assert device_nodes.is_bare(chosen, tmp_path)
    assert not device_nodes.is_bare(REAL, tmp_path)
    for maker, kind in [("0x10de", "0x030200"), ("0x10de", "0x030000"), ("0x1002", "0x038000"), ("0x1e00", "0x120000")]:
        (tmp_path / "0" / "vendor").write_text(maker)
        (tmp_path / "0" / "class").write_text(kind)
        assert not device_nodes.is_bare(chosen, tmp_path)
    (tmp_path / "0" / "class").write_text("odd")
    assert not device_nodes.is_bare(chosen, tmp_path)
    assert device_nodes.is_bare(replace(PRETENDED, without_gpus=True), tmp_path)


def test_container_waits_for_devices_that_should_exist() -> None:
    """A driver that went away a moment ago costs no pod its life: devices are given, and asked for before the start."""
    with pytest.raises(AllocationRefused, match="not known now"):
        allocation.prepare("slot-0001", [], [], [], REAL)
    gpus = [real(0), real(1, healthy=False)]
    made = allocation.prepare("slot-0001", gpus, [], [], REAL)
    assert [node.host for node in made.devices] == ["/dev/nvidia0", *CONTROL]
    sick = [real(0, healthy=False), real(1, healthy=False)]
    made = allocation.prepare("slot-0001", sick, [], [], REAL)
    assert [node.host for node in made.devices] == ["/dev/nvidia0", "/dev/nvidia1", *CONTROL]
    there = {"/dev/nvidia0"}
    paths = ["/dev/nvidia0", "/dev/nvidia1"]
    assert "/dev/nvidia1 of a GPU is not there now" in allocation.absent(paths, there.__contains__, REAL)
    assert allocation.absent(["/dev/nvidia0"], there.__contains__, REAL) == ""
    own = {"/var/lib/jupyter-gpu/devices/gpu0"}
    assert allocation.absent(["/dev/jupyter-gpu/gpu0"], own.__contains__, PRETENDED) == ""
    assert "devices/gpu1" in allocation.absent(["/dev/jupyter-gpu/gpu1"], own.__contains__, PRETENDED)
