"""Simulated GPUs: real devices for root, plain files for others, and loads that programs report."""

import json
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jupyter_gpu.model.annotations import decode_inventory, encode
from jupyter_gpu.model.gpu import Device
from jupyter_gpu_node.devices import enforcement
from jupyter_gpu_node.gpus import simulated, simulated_programs
from jupyter_gpu_node.gpus.rules import simulated_sensors
from jupyter_gpu_node.gpus.simulated import SimulatedGpus, uuid_of
from jupyter_gpu_node.gpus.simulated_instances import write as divide
from jupyter_gpu_node.processes import proc
from tests.node.conftest import Child

Spawn = Callable[..., Child]


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory that other users reach as well."""
    with tempfile.TemporaryDirectory(prefix="jupyter-gpu-test.") as name:
        Path(name).chmod(0o755)
        yield Path(name) / "simulated"


def as_nobody(child: Child) -> Child:
    child.run(
        "from jupyter_gpu_node.gpus import simulated, simulated_programs"
    )  # here: another user may not read the installation
    child.run("os.setgid(65534) or os.setuid(65534)")
    return child


def test_inventory(home: Path) -> None:
    """The same GPUs for every server; valid as an inventory; pairs share island and switch."""
    gpus = SimulatedGpus(home, 4).inventory()
    assert gpus == SimulatedGpus(home, 4).inventory()
    assert decode_inventory(encode(gpus)) == gpus
    assert [gpu.index for gpu in gpus] == [0, 1, 2, 3]
    assert len({gpu.uuid for gpu in gpus}) == 4
    assert all(gpu.simulated and gpu.healthy and gpu.memory == 24 * 2**30 for gpu in gpus)
    assert all(gpu.uuid.startswith("GPU-5ea1") and len(gpu.uuid) == len("GPU-") + 36 for gpu in gpus)
    assert [gpu.island for gpu in gpus] == ["island-0", "island-0", "island-1", "island-1"]
    assert [gpu.switch for gpu in gpus] == ["switch-0", "switch-0", "switch-1", "switch-1"]


def test_slow_gpu_says_so(home: Path) -> None:
    """As long as it is; of GPUs that are there only."""
    gpus = SimulatedGpus(home, 2)
    simulated.set_slow(home, uuid_of(1), slow=True)
    assert [gpu.slow for gpu in gpus.inventory()] == [False, True]
    for _ in range(2):
        simulated.set_slow(home, uuid_of(1), slow=False)
        assert not any(gpu.slow for gpu in gpus.inventory())
    with pytest.raises(ValueError, match="not a simulated GPU"):
        simulated.set_slow(home, "../../x", slow=True)


@pytest.mark.root
def test_root_has_devices(home: Path) -> None:
    """Nodes of virtual consoles that everybody may open, and that really open."""
    for index, gpu in enumerate(SimulatedGpus(home, 3).inventory()):
        found = Path(gpu.path).lstat()
        assert gpu.device == Device(4, 40 + index)
        assert stat.S_ISCHR(found.st_mode)
        assert found.st_rdev == os.makedev(4, 40 + index)
        assert stat.S_IMODE(found.st_mode) == 0o666
        os.close(os.open(gpu.path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK))
    assert stat.S_IMODE(home.stat().st_mode) == 0o1777


@pytest.mark.root
def test_others_have_files_until_root_comes(home: Path, spawn: Spawn) -> None:
    """Plain files that every user may open; a root that comes later turns them into devices for all."""
    home.mkdir()
    home.chmod(0o777)
    child = as_nobody(spawn())
    child.run(f"source = simulated.SimulatedGpus({str(home)!r}, 2)")
    assert child.run("[gpu.device for gpu in source.inventory()]") == [None, None]
    for path in child.run("[gpu.path for gpu in source.inventory()]"):
        assert stat.S_ISREG(Path(path).lstat().st_mode)
        assert stat.S_IMODE(Path(path).lstat().st_mode) == 0o666

    ours = SimulatedGpus(home, 2).inventory()
    assert [gpu.device for gpu in ours] == [Device(4, 40), Device(4, 41)]
    assert home.stat().st_uid == 0
    assert stat.S_IMODE(home.stat().st_mode) == 0o1777
    assert child.run("[str(gpu.device) for gpu in source.inventory()]") == ["4:40", "4:41"]
    assert child.run("[gpu.uuid for gpu in source.inventory()]") == [gpu.uuid for gpu in ours]
    child.run("os.close(open_device(source.inventory()[0].path))")


@pytest.mark.root
def test_mount_without_devices(spawn: Spawn, tmp_path: Path) -> None:
    """If the directory's mount forbids devices, as /run/lock often does, they lie in /dev and can be opened."""
    child = spawn()
    child.run("libc.unshare(0x20000) and 1/0; libc.mount(b'none', b'/', None, 0x44000, None) and 1/0")
    child.run("libc.mount(b'none', b'/dev', b'tmpfs', 0, None) and 1/0")  # a /dev of its own
    child.run(f"libc.mount(b'none', {str(tmp_path).encode()!r}, b'tmpfs', 4, None) and 1/0")  # MS_NODEV
    child.run(
        f"from jupyter_gpu_node.gpus import simulated; source = simulated.SimulatedGpus({str(tmp_path / 's')!r}, 2)"
    )
    paths = child.run("[gpu.path for gpu in source.inventory()]")
    assert paths == ["/dev/jupyter-gpu/gpu0", "/dev/jupyter-gpu/gpu1"]
    child.run(f"os.close(open_device({paths[1]!r}))")


@pytest.mark.root
def test_container_that_forbids_these_devices(home: Path, spawn: Spawn, uid: str) -> None:
    """A root that may not open them gets plain files rather than dead GPUs."""
    child = spawn()
    enforcement.choose([Device(4, 40)], uid, child.pid, "required")
    child.run(f"from jupyter_gpu_node.gpus import simulated; source = simulated.SimulatedGpus({str(home)!r}, 2)")
    assert child.run("[str(gpu.device) for gpu in source.inventory()]") == ["None", "4:41"]
    assert child.run("[gpu.healthy for gpu in source.inventory()]") == [True, True]
    assert sorted(path.name for path in home.iterdir()) == ["gpu0", "gpu1", "health", "instances", "load", "slow"]


@pytest.mark.parametrize("count", [-1, 25, 10**9])
def test_impossible_counts(home: Path, count: int) -> None:
    """Refused before anything is made."""
    with pytest.raises(ValueError, match="0 to 24"):
        SimulatedGpus(home, count)
    assert not home.exists()


def test_zero_gpus_is_a_valid_count(home: Path) -> None:
    """The note says that there are none."""
    source = SimulatedGpus(home, 0)
    assert source.inventory() == ()
    assert "set to 0" in source.note


@pytest.mark.parametrize("kind", ["link", "file"])
def test_link_in_place_of_the_directory_is_refused(home: Path, tmp_path: Path, kind: str) -> None:
    """A link or file in the place of the directory is refused, and what it points to is left alone."""
    target = tmp_path / "target"
    target.mkdir(mode=0o700)
    home.symlink_to(target) if kind == "link" else home.touch()
    with pytest.raises(NotADirectoryError, match="in the way"):
        SimulatedGpus(home, 1)
    assert stat.S_IMODE(target.stat().st_mode) == 0o700
    assert not list(target.iterdir())


@pytest.mark.root
def test_link_in_place_of_a_gpu_is_not_followed(home: Path, tmp_path: Path, spawn: Spawn) -> None:
    """Root replaces it by a device; for others that GPU is out of order. No process writes through it."""
    SimulatedGpus(home, 0)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (home / "gpu0").symlink_to(victim)
    child = as_nobody(spawn())
    child.run(f"(gpu,) = simulated.SimulatedGpus({str(home)!r}, 1).inventory()")
    assert not child.run("gpu.healthy")
    (gpu,) = SimulatedGpus(home, 1).inventory()
    assert gpu.healthy
    assert victim.read_text() == "precious"


def test_health(home: Path) -> None:
    """Sick, gone and back again, for demonstrations and tests of everything above."""
    source = SimulatedGpus(home, 2)
    simulated.set_health(home, uuid_of(0), "The fan stopped.")
    assert [(gpu.healthy, gpu.health) for gpu in source.inventory()] == [(False, "The fan stopped."), (True, "")]
    simulated.unplug(home, uuid_of(0))
    assert [gpu.index for gpu in source.inventory()] == [1]
    simulated.set_health(home, uuid_of(0), None)
    simulated.set_health(home, uuid_of(0), None)
    assert [gpu.healthy for gpu in source.inventory()] == [True, True]
    with pytest.raises(ValueError, match="not a simulated GPU"):
        simulated.set_health(home, "../../x", "y")


def test_instances(home: Path) -> None:
    """A GPU in MIG mode is not granted as a whole, and reports its parts; for tests of everything above."""
    source = SimulatedGpus(home, 3)
    assert source.instances() == {}, "nobody asked yet"
    source.inventory()
    assert source.instances() == {uuid_of(0): None, uuid_of(1): None, uuid_of(2): None}
    divide(home, uuid_of(0), frozenset({"MIG-b", "MIG-a"}))
    divide(home, uuid_of(1), frozenset())
    simulated.unplug(home, uuid_of(2))
    assert ["MIG mode" in gpu.health for gpu in source.inventory()] == [True, True]
    assert source.instances() == {uuid_of(0): {"MIG-a", "MIG-b"}, uuid_of(1): frozenset()}
    divide(home, uuid_of(0), None)
    divide(home, uuid_of(0), None)
    assert [gpu.healthy for gpu in source.inventory()] == [True, False]


@pytest.mark.root
def test_only_root_can_divide_a_gpu(home: Path, spawn: Spawn) -> None:
    """Another user's file about instances is not believed."""
    source = SimulatedGpus(home, 1)
    child = as_nobody(spawn())
    child.run("from jupyter_gpu_node.gpus import simulated_instances")
    child.run(
        f"from pathlib import Path; simulated_instances.write(Path({str(home)!r}), simulated.uuid_of(0), frozenset())"
    )
    assert [gpu.healthy for gpu in source.inventory()] == [True]
    assert source.instances() == {uuid_of(0): None}


@pytest.mark.root
def test_only_root_can_make_a_gpu_unhealthy(home: Path, spawn: Spawn) -> None:
    """Another user's file about the health of a shared GPU is not believed."""
    source = SimulatedGpus(home, 1)
    child = as_nobody(spawn())
    child.run(f"simulated.set_health({str(home)!r}, simulated.uuid_of(0), 'mine now')")
    assert [gpu.healthy for gpu in source.inventory()] == [True]


def test_loads(home: Path, spawn: Spawn) -> None:
    """The loads of several programs add up, at most to a whole GPU; one that ended has none."""
    source = SimulatedGpus(home, 2)
    first, second, idle = uuid_of(0), uuid_of(1), simulated_sensors.load(0, 0)
    assert source.loads([first, "GPU-unknown"]) == {first: idle}
    simulated.write_load(home, first, 0.25, 2**30)
    child = spawn()
    child.run(
        f"from jupyter_gpu_node.gpus import simulated; simulated.write_load({str(home)!r}, {first!r}, 0.5, 2**30)"
    )
    assert source.loads([first, second]) == {first: simulated_sensors.load(0.75, 2**31), second: idle}
    child.run(f"simulated.write_load({str(home)!r}, {first!r}, 1, 2**40)")
    assert source.loads([first]) == {first: simulated_sensors.load(1, simulated.MEMORY)}
    child.end()
    assert source.loads([first]) == {first: simulated_sensors.load(0.25, 2**30)}
    assert [path.name for path in (home / "load").iterdir()] == [f"{os.getpid()}.{first}"], "stale ones are removed"
    simulated.clear_load(home, first)
    simulated.clear_load(home, first)
    assert source.loads([first]) == {first: idle}


def test_details(home: Path, spawn: Spawn) -> None:
    """Details have the memory of each program, fitting limits and rates, and NVLink only beside another GPU."""
    source, alone = SimulatedGpus(home, 2), SimulatedGpus(home, 1)
    first, second = uuid_of(0), uuid_of(1)
    simulated.write_load(home, first, 0.25, 2**30)
    child = spawn()
    child.run(
        f"from jupyter_gpu_node.gpus import simulated; simulated.write_load({str(home)!r}, {first!r}, 0.5, 2**40)"
    )
    found = source.details([first, second, "GPU-unknown"])
    assert found.keys() == {first, second}
    assert sorted((use.pid, use.memory) for use in found[first].processes or ()) == sorted(
        [(os.getpid(), 2**30), (child.pid, simulated.MEMORY)]
    )
    assert found[second] == simulated_sensors.reading(0, [], linked=True)
    assert found[first].nvlink != found[second].nvlink
    assert alone.details([first])[first].nvlink is None
    load = source.loads([first])[first]
    assert load.temperature is not None
    assert load.temperature < (found[first].slowdown or 0)
    assert (load.power or 0) < (found[first].power_limit or 0)


@pytest.mark.parametrize(
    "change",
    [{"start": 1}, {"busy": 2}, {"busy": "x"}, {"busy": True}, {"memory": -1}, {"memory": 1.5}, {"busy": None}],
    ids=str,
)
def test_bad_records_do_not_count(home: Path, change: dict[str, object]) -> None:
    """A record of an earlier process with this pid, or one that says nonsense, is removed."""
    source = SimulatedGpus(home, 1)
    path = home / "load" / f"{os.getpid()}.{uuid_of(0)}"
    good = {"start": proc.process_start_time(os.getpid()), "busy": 0.5, "memory": 1}
    path.write_text(json.dumps(good))
    assert source.loads([uuid_of(0)])[uuid_of(0)].utilisation == 50
    path.write_text(json.dumps({**good, **change}))
    assert source.loads([uuid_of(0)])[uuid_of(0)].utilisation == 0
    assert not path.exists()


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff", b" " * 5000, b'{"busy": NaN}'], ids=repr)
def test_garbage_does_not_count(home: Path, content: bytes) -> None:
    """Half-written, oversize or binary files do no harm."""
    source = SimulatedGpus(home, 1)
    (home / "load" / f"{os.getpid()}.{uuid_of(0)}").write_bytes(content)
    (home / "load" / "README").write_bytes(content)
    assert source.loads([uuid_of(0)]) == {uuid_of(0): simulated_sensors.load(0, 0)}
    assert (home / "load" / "README").exists(), "what is not ours stays"


def test_pipes_and_links_do_not_hang(home: Path) -> None:
    """A named pipe or a link under the name of a load is not read."""
    source = SimulatedGpus(home, 2)
    os.mkfifo(home / "load" / f"{os.getpid()}.{uuid_of(0)}")
    (home / "load" / f"{os.getpid()}.{uuid_of(1)}").symlink_to("/etc/passwd")
    os.mkfifo(home / "health" / uuid_of(0))
    assert all(load.utilisation == 0 for load in source.loads([uuid_of(0), uuid_of(1)]).values())
    assert all(gpu.healthy for gpu in source.inventory())


@pytest.mark.root
def test_loads_of_other_users(home: Path, spawn: Spawn) -> None:
    """Every user reports for its own processes, and only for those."""
    source = SimulatedGpus(home, 1)
    child = as_nobody(spawn())
    child.run(f"simulated.write_load({str(home)!r}, simulated.uuid_of(0), 0.5, 7)")
    assert source.loads([uuid_of(0)]) == {uuid_of(0): simulated_sensors.load(0.5, 7)}
    child.run(f"simulated.clear_load({str(home)!r}, simulated.uuid_of(0))")
    child.run(f"""
        from pathlib import Path
        from jupyter_gpu_node.gpus import simulated_programs
        simulated_programs.write(Path({str(home / "load")!r}), simulated.uuid_of(0), 1, 7, pid={os.getpid()})
    """)
    assert source.loads([uuid_of(0)]) == {uuid_of(0): simulated_sensors.load(0, 0)}


@pytest.mark.parametrize(("busy", "memory"), [(-0.1, 0), (1.1, 0), (float("nan"), 0), (0.5, -1), (0.5, 2**60)])
def test_impossible_loads(home: Path, busy: float, memory: int) -> None:
    """Refused where they are made."""
    SimulatedGpus(home, 1)
    with pytest.raises(ValueError, match="A load is"):
        simulated.write_load(home, uuid_of(0), busy, memory)
    with pytest.raises(ValueError, match="not the uuid"):
        simulated.write_load(home, "../x", 0.5, 0)


def test_drafts_of_dead_programs_are_removed(home: Path, spawn: Spawn) -> None:
    """A program killed while it wrote leaves a draft, which is never read; the next reader removes it."""
    source = SimulatedGpus(home, 1)
    child = spawn()
    mine = home / "load" / f".{os.getpid()}.{uuid_of(0)}.{os.getpid()}"
    dead = home / "load" / f".{child.pid}.{uuid_of(0)}.{child.pid}"
    for path in (mine, dead):
        path.write_text("{")
    child.end()
    source.loads([uuid_of(0)])
    assert mine.exists()
    assert not dead.exists()
    assert simulated_programs.read(home / "nowhere") == ()


def test_gpus_stay_the_same_in_another_pod_of_the_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine id that a container sees is another one with each pod."""
    before = uuid_of(0), uuid_of(0, "node1")
    monkeypatch.setattr(simulated, "machine_id", lambda: "another-pod")
    assert (uuid_of(0) != before[0], uuid_of(0, "node1") == before[1]) == (True, True)
    assert uuid_of(0, "node2") != before[1]
