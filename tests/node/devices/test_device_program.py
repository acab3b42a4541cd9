"""Device rules as BPF instructions: the expected text, and the meaning on random rules."""

from itertools import pairwise
from textwrap import dedent

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jupyter_gpu.model.gpu import Device
from jupyter_gpu_node.devices.rules.device_program import assemble, compile, disassemble, ranges  # noqa: A004
from jupyter_gpu_node.devices.rules.device_rules import DeviceRules
from tests.node.devices.interpreter import run

BLOCK, CHARACTER = 1, 2
MKNOD, READ, WRITE = 1, 2, 4


def rules(*denied: str, allowed: tuple[str, ...] = ()) -> DeviceRules:
    granted = frozenset(Device.parse(text) for text in allowed)
    return DeviceRules(frozenset(Device.parse(text) for text in denied) | granted, granted)


def text(given_rules: DeviceRules) -> str:
    return disassemble(compile(given_rules))


HEAD = """\
0: r2 = *(u32 *)(r1 + 0)
1: r5 = r2
2: r5 &= 0xffff
3: if r5 != 2 goto {allow}
4: r2 >>= 16
5: r2 &= 0x6
6: if r2 == 0 goto {allow}
7: r3 = *(u32 *)(r1 + 4)
8: r4 = *(u32 *)(r1 + 8)
"""


def test_rules_that_cover_no_device_are_refused() -> None:
    """A program that only allows would open every GPU: unknown GPUs must not count as none to guard."""
    with pytest.raises(ValueError, match="would open every GPU"):
        DeviceRules.closed(())
    with pytest.raises(ValueError, match="deny nothing"):
        compile(rules(allowed=("195:0", "195:1")))


def test_one_device() -> None:
    """One denied GPU beside an allowed one."""
    expected = HEAD.format(allow=12) + dedent("""\
        9: if r3 != 195 goto 12
        10: if r4 == 0 goto 14
        11: goto 12
        12: r0 = 1
        13: exit
        14: r0 = 0
        15: exit""")
    assert text(rules("195:0", allowed=("195:1",))) == expected


def test_ranges_and_majors() -> None:
    """Minors in a row are one range; each major has its own part; all of it ascending."""
    expected = HEAD.format(allow=17) + dedent("""\
        9: if r3 != 4 goto 12
        10: if r4 == 40 goto 19
        11: goto 17
        12: if r3 != 195 goto 17
        13: if r4 < 0 goto 17
        14: if r4 <= 2 goto 19
        15: if r4 == 7 goto 19
        16: goto 17
        17: r0 = 1
        18: exit
        19: r0 = 0
        20: exit""")
    assert text(rules("195:7", "195:2", "4:40", "195:0", "195:1")) == expected


def test_equal_rules_give_equal_programs() -> None:
    """In whatever order the devices are listed."""
    names = ["195:3", "4:40", "195:0", "195:9", "4:63"]
    assert compile(rules(*names)) == compile(rules(*reversed(names)))


def test_bytes() -> None:
    """As ``struct bpf_insn`` lies in memory: code, registers, offset, immediate."""
    code = assemble(compile(rules("195:0")))
    assert code[:8].hex() == "6112000000000000"  # r2 = *(u32 *)(r1 + 0)
    assert code[3 * 8 : 4 * 8].hex() == "5505080002000000"  # if r5 != 2 goto +8
    assert code[-16:].hex() == "b700000000000000" + "9500000000000000"


@pytest.mark.parametrize(("count", "most"), [(8, 18), (64, 18), (256, 18)])
def test_program_size_does_not_grow_with_the_gpus(count: int, most: int) -> None:
    """A machine's GPUs have minors in a row."""
    assert len(compile(rules(*(f"195:{minor}" for minor in range(count))))) <= most


devices = st.builds(
    Device,
    st.sampled_from([0, 1, 4, 195, 4095]),
    st.integers(0, 12) | st.sampled_from([2**19, 2**20 - 2, 2**20 - 1]),
)


@settings(deadline=None, max_examples=200)
@given(
    managed=st.frozensets(devices, max_size=20).map(lambda some: some | {Device(7, 7)}),
    allowed=st.frozensets(devices, max_size=20),
    asked=devices,
    kind=st.sampled_from([BLOCK, CHARACTER]),
    access=st.integers(0, 7),
)
@example(frozenset({Device(4, 1)}), frozenset(), Device(4, 1), CHARACTER, READ | MKNOD)
def test_program_denies_exactly_the_denied_devices(
    managed: frozenset[Device], allowed: frozenset[Device], asked: Device, kind: int, access: int
) -> None:
    """Only reading or writing of a managed character device that is not allowed is denied."""
    program = compile(DeviceRules(managed, allowed))
    candidates = {asked, *managed, *(Device(d.major, d.minor + 1) for d in managed if d.minor < 2**20 - 1)}
    for device in candidates:
        denied = kind == CHARACTER and access & (READ | WRITE) and device in managed and device not in allowed
        assert run(program, access << 16 | kind, device.major, device.minor) == (0 if denied else 1)


@given(st.sets(st.integers(0, 40)))
def test_ranges(numbers: set[int]) -> None:
    """Ranges hold exactly the numbers, ascending, and no two of them touch."""
    found = list(ranges(sorted(numbers)))
    assert [n for first, last in found for n in range(first, last + 1)] == sorted(numbers)
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(found))
