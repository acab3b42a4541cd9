"""bpf(2) on the running kernel: programs that really decide over open()."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_gpu.model.gpu import Device
from jupyter_gpu_node.devices import bpf, cgroup
from jupyter_gpu_node.devices.rules.device_program import EXIT, LOAD_U32, R0, R1, Instruction, compile  # noqa: A004
from jupyter_gpu_node.devices.rules.device_rules import DeviceRules
from tests.node.conftest import CLOSED, DEVICES, MANAGED, Child

pytestmark = pytest.mark.root

NAME = "jupyter_gpu_t"
Spawn = Callable[..., Child]


def load(*allowed: Device, managed: frozenset[Device] = MANAGED) -> bpf.Program:
    return bpf.load(compile(DeviceRules(managed, frozenset(allowed))), NAME)


@pytest.fixture
def child(uid: str, unified: Path, spawn: Spawn) -> tuple[Path, Child]:
    """A process in a group of its own."""
    group = cgroup.create(unified, uid)
    child = spawn()
    cgroup.enter(group, child.pid)
    return group, child


def test_attach_replace_detach(child: tuple[Path, Child], nodes: tuple[Path, ...]) -> None:
    """The program in force decides from the next open() on, and nothing else does."""
    group, process = child
    assert process.probe(*nodes) == "++++"
    closed, second = load(), load(DEVICES[1])
    bpf.attach(group, closed)
    assert process.probe(*nodes, Path("/dev/null")) == "----+"
    bpf.attach(group, second, replaces=closed)
    assert process.probe(*nodes) == "-+--"
    bpf.detach(group, second)
    assert process.probe(*nodes) == "++++"


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY, os.O_RDWR])
def test_each_way_to_open_is_denied(child: tuple[Path, Child], nodes: tuple[Path, ...], flags: int) -> None:
    """Reading alone and writing alone are denied as well."""
    group, process = child
    bpf.attach(group, load())
    with pytest.raises(PermissionError):
        process.run(f"open_device({str(nodes[0])!r}, {flags})")


def test_mknod_is_allowed(child: tuple[Path, Child], nodes: tuple[Path, ...]) -> None:
    """A runtime makes its nodes inside the group; the node made there opens no more than any other."""
    group, process = child
    bpf.attach(group, load())
    node = nodes[0].with_name("own")
    process.run(f"os.mknod({str(node)!r}, stat.S_IFCHR | 0o666, os.makedev(4, {DEVICES[0].minor}))")
    assert process.probe(node) == "-"


def test_an_open_descriptor_survives(child: tuple[Path, Child], nodes: tuple[Path, ...]) -> None:
    """Rules guard open() only: why a release needs proof. Opening it anew through /proc is guarded."""
    group, process = child
    descriptor = process.run(f"open_device({str(nodes[0])!r})")
    bpf.attach(group, load())
    assert process.run(f"os.fstat({descriptor}).st_rdev") == os.makedev(4, DEVICES[0].minor)
    with pytest.raises(PermissionError):
        process.run(f"open_device('/proc/self/fd/{descriptor}')")


def test_groups_below_are_under_the_program(child: tuple[Path, Child], nodes: tuple[Path, ...]) -> None:
    """A program below can deny more, never allow again what is denied above."""
    group, process = child
    inner = group / "inner"
    inner.mkdir()
    cgroup.enter(inner, process.pid)
    bpf.attach(group, load(DEVICES[0], DEVICES[1]))
    bpf.attach(inner, bpf.load(compile(DeviceRules(frozenset(DEVICES[:1]))), NAME))
    assert process.probe(*nodes) == "-+--"


def test_program_outlives_the_process_that_attached_it(
    child: tuple[Path, Child], nodes: tuple[Path, ...], spawn: Spawn
) -> None:
    """Killed with -9, it leaves the rules in force; the next process finds them by name and replaces them."""
    group, process = child
    other = spawn()
    other.run(
        "from jupyter_gpu_node.devices import bpf; from tests.node.devices.test_bpf import load; "
        "from pathlib import Path"
    )
    other.run(f"bpf.attach(Path({str(group)!r}), load())")
    other.end()
    assert process.probe(*nodes) == "----"
    found = bpf.find(group, NAME)
    assert found is not None
    bpf.attach(group, load(DEVICES[3]), replaces=found)
    assert process.probe(*nodes) == "---+"


def test_find_distinguishes_programs(child: tuple[Path, Child]) -> None:
    """Only the program of that name, and only on that very group."""
    group, _ = child
    assert bpf.find(group, NAME) is None
    bpf.attach(group, bpf.load(compile(CLOSED), "another"))
    assert bpf.find(group, NAME) is None
    bpf.attach(group, load())
    found = bpf.find(group, NAME)
    assert found is not None
    bpf.detach(group, found)
    assert bpf.find(group, NAME) is None
    assert bpf.find(group, "another") is not None


def test_descriptors_are_not_inherited() -> None:
    """A kernel must not get hold of the program."""
    program = load()
    assert not os.get_inheritable(program.descriptor)
    program.close()
    program.close()  # twice is harmless


def test_refused_program_names_the_reason() -> None:
    """The verifier's words are in the error."""
    with pytest.raises(bpf.BpfError, match="Loading the device rules") as caught:
        bpf.load((Instruction(LOAD_U32, R0, R1, 400), Instruction(EXIT)), NAME)
    assert "invalid bpf_context access" in caught.value.log


def test_replacing_a_detached_program_fails(child: tuple[Path, Child]) -> None:
    """Nothing is attached: two programs of ours never stand side by side by mistake."""
    group, _ = child
    with pytest.raises(bpf.BpfError) as caught:
        bpf.attach(group, load(), replaces=load())
    assert isinstance(caught.value, OSError)
    assert str(group) in str(caught.value)
    assert bpf.find(group, NAME) is None


def test_missing_capabilities_are_named(spawn: Spawn) -> None:
    """A process without capabilities gets an error that names them."""
    process = spawn()
    process.run("from jupyter_gpu_node.devices import bpf; from tests.node.devices.test_bpf import load")
    process.run("os.setgid(65534) or os.setuid(65534)")
    with pytest.raises(PermissionError, match="CAP_BPF"):
        process.run("load()")
