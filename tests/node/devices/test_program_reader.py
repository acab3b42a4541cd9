"""The rules in force, read back from the program in the kernel."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.gpu import Device, Gpu
from jupyter_gpu_node.devices import guarded_pod
from jupyter_gpu_node.devices.pins import Pins
from jupyter_gpu_node.devices.pod_cgroups import PodCgroups
from jupyter_gpu_node.devices.rules import program_reader
from jupyter_gpu_node.devices.rules.device_program import EXIT, MOVE, R0, Instruction, assemble
from jupyter_gpu_node.devices.rules.device_program import compile as compile_rules
from jupyter_gpu_node.devices.rules.device_rules import DeviceRules
from tests.node.conftest import DEVICES, MANAGED, Child

devices = st.builds(Device, st.sampled_from([4, 195]), st.integers(0, 9) | st.integers(250, 255))


@given(st.frozensets(devices, min_size=1), st.frozensets(devices), devices)
def test_parsed_program_allows_the_same_devices_as_the_rules(
    managed: frozenset[Device], allowed: frozenset[Device], one: Device
) -> None:
    """There and back through the kernel's notation."""
    rules = DeviceRules(managed | {Device(4, 63)}, allowed - {Device(4, 63)})
    program = program_reader.parse(assemble(compile_rules(rules)))
    assert program_reader.allows(program, one) == (one not in rules.denied)


@pytest.mark.parametrize(
    "program",
    [
        (),
        (Instruction(EXIT),),
        (Instruction(MOVE, R0, immediate=1),),
        (Instruction(0x85, immediate=14), Instruction(EXIT)),
        (Instruction(0x05, offset=-1),),
        (Instruction(0x61, R0, 2, 0), Instruction(EXIT)),
        (Instruction(0x61, R0, 1, 16), Instruction(EXIT)),
        (Instruction(0xBF, R0, 3), Instruction(EXIT)),
    ],
)
def test_foreign_program_is_refused(program: tuple[Instruction, ...]) -> None:
    """Calls, backward jumps, reads of unwritten registers: nothing is known then."""
    with pytest.raises(ValueError, match="not one of ours"):
        program_reader.allows(program, Device(195, 0))


def test_truncated_program_is_refused() -> None:
    """Instructions have eight bytes."""
    with pytest.raises(ValueError, match="cut off"):
        program_reader.parse(b"1234567")


GPUS = tuple(
    Gpu(uuid=f"GPU-{index}", index=index, model="m", memory=1, device=device) for index, device in enumerate(DEVICES)
)


@pytest.mark.root
@pytest.mark.parametrize("count", range(len(DEVICES)))
def test_rules_of_an_earlier_process_are_read_from_the_kernel(
    unified: Path, spawn: Callable[..., Child], count: int
) -> None:
    """They are known to the next process, to the device."""
    uid = f"00000000-0000-4000-8000-{count:012}"
    top = unified / "jga-roster"
    group = top / "kubepods" / "besteffort" / f"pod{uid}"
    group.mkdir(parents=True)
    try:
        rules = DeviceRules(MANAGED, frozenset(DEVICES[:count]))
        Pins(None).create(uid, group, compile_rules(rules)).close()
        made = guarded_pod.guard_pod(Pins(None), PodCgroups(top), uid, MANAGED, GPUS)
        assert made is not None
        guard, new = made
        assert not new
        assert not guard.known
        assert guard.allowed == {gpu.uuid for gpu in GPUS[:count]}
        guard.close()
    finally:
        for directory in (group, group.parent, group.parent.parent, top):
            directory.rmdir()
