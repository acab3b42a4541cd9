"""Device rules as a program of type ``BPF_PROG_TYPE_CGROUP_DEVICE``. Pure: no system call here.

The kernel runs the program on each ``open()`` and ``mknod()`` of a device by a process in the cgroup, with this context
(``struct bpf_cgroup_dev_ctx`` of linux/bpf.h), and refuses the call with EPERM if it returns 0::

    u32 access_type    type (1 block, 2 character) | access (1 mknod, 2 read, 4 write) << 16
    u32 major
    u32 minor

The program denies reading and writing of the denied character devices and allows all else. It leaves mknod alone: a
node that cannot be opened does no harm, and container runtimes make theirs inside the cgroup. All programs of a cgroup
and its ancestors must agree, so those of the container runtime and of systemd stay in force beside it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from .device_rules import DeviceRules

ACCESS_MKNOD, ACCESS_READ, ACCESS_WRITE = 1, 2, 4
TYPE_BLOCK, TYPE_CHARACTER = 1, 2

# Operation codes: class | source or size | operation, linux/bpf_common.h and linux/bpf.h
LOAD_U32 = 0x61
MOVE = 0xB7
MOVE_REGISTER = 0xBF
AND = 0x57
SHIFT_RIGHT = 0x77
JUMP = 0x05
JUMP_EQUAL = 0x15
JUMP_NOT_EQUAL = 0x55
JUMP_LESS = 0xA5
JUMP_LESS_OR_EQUAL = 0xB5
EXIT = 0x95

R0, R1, R2, R3, R4, R5 = range(6)
_ALLOW, _DENY = "allow", "deny"


class Instruction(NamedTuple):
    """One BPF instruction, ``struct bpf_insn``."""

    code: int
    target: int = 0
    source: int = 0
    offset: int = 0
    """Offset of the load in bytes, or of the jump in instructions from the next one."""
    immediate: int = 0


class _Jump(NamedTuple):
    """A conditional jump whose label is not resolved yet."""

    code: int
    register: int
    value: int
    label: str


def compile(rules: DeviceRules) -> tuple[Instruction, ...]:  # noqa: A001 - the field's word for it
    """Return the shortest straightforward program: minors in a row become one range. Equal rules give equal programs.

    `ValueError` for rules that deny nothing: what is managed is always more than what a pod can be given.
    """
    denied = rules.denied
    if not denied:
        raise ValueError("Device rules that deny nothing at all are a mistake.")
    lines: list[Instruction | _Jump | str] = [
        Instruction(LOAD_U32, R2, R1, 0),
        Instruction(MOVE_REGISTER, R5, R2),
        Instruction(AND, R5, immediate=0xFFFF),
        _Jump(JUMP_NOT_EQUAL, R5, TYPE_CHARACTER, _ALLOW),
        Instruction(SHIFT_RIGHT, R2, immediate=16),
        Instruction(AND, R2, immediate=ACCESS_READ | ACCESS_WRITE),
        _Jump(JUMP_EQUAL, R2, 0, _ALLOW),
        Instruction(LOAD_U32, R3, R1, 4),
        Instruction(LOAD_U32, R4, R1, 8),
    ]
    for major, devices in groupby(denied, key=lambda device: device.major):
        lines += _one_major(major, tuple(device.minor for device in devices))
    lines += [_ALLOW, Instruction(MOVE, R0, immediate=1), Instruction(EXIT)]
    lines += [_DENY, Instruction(MOVE, R0, immediate=0), Instruction(EXIT)]
    return _resolve(lines)


def _one_major(major: int, minors: Sequence[int]) -> Iterable[Instruction | _Jump | str]:
    after = f"after {major}"
    yield _Jump(JUMP_NOT_EQUAL, R3, major, after)
    for first, last in ranges(minors):
        if first == last:
            yield _Jump(JUMP_EQUAL, R4, first, _DENY)
        else:  # ranges ascend, so a minor below this one is in none
            yield _Jump(JUMP_LESS, R4, first, _ALLOW)
            yield _Jump(JUMP_LESS_OR_EQUAL, R4, last, _DENY)
    yield _Jump(JUMP, 0, 0, _ALLOW)
    yield after


def ranges(numbers: Iterable[int]) -> Iterable[tuple[int, int]]:
    """Yield (first, last) of each unbroken row of ascending distinct numbers."""
    for _, row in groupby(enumerate(numbers), key=lambda item: item[1] - item[0]):
        members = [number for _, number in row]
        yield members[0], members[-1]


def _resolve(lines: Sequence[Instruction | _Jump | str]) -> tuple[Instruction, ...]:
    labels: dict[str, int] = {}
    position = 0
    for line in lines:
        if isinstance(line, str):
            labels[line] = position
        else:
            position += 1
    program: list[Instruction] = []
    for line in lines:
        if isinstance(line, _Jump):
            distance = labels[line.label] - len(program) - 1
            program.append(Instruction(line.code, line.register, 0, distance, line.value))
        elif isinstance(line, Instruction):
            program.append(line)
    return tuple(program)


def assemble(program: Iterable[Instruction]) -> bytes:
    """Return the code as the kernel of a little-endian machine reads it (x86-64, 64-bit ARM)."""
    return b"".join(
        struct.pack("<BBhi", line.code, line.target | line.source << 4, line.offset, line.immediate) for line in program
    )


def disassemble(program: Iterable[Instruction]) -> str:
    """Return one numbered line for each instruction, in the notation of the kernel's own verifier."""
    return "\n".join(f"{number}: {_text(number, line)}" for number, line in enumerate(program))


def _text(number: int, line: Instruction) -> str:
    goto = f"goto {number + 1 + line.offset}"
    compare = {JUMP_EQUAL: "==", JUMP_NOT_EQUAL: "!=", JUMP_LESS: "<", JUMP_LESS_OR_EQUAL: "<="}
    if line.code in compare:
        return f"if r{line.target} {compare[line.code]} {line.immediate} {goto}"
    return {
        LOAD_U32: f"r{line.target} = *(u32 *)(r{line.source} + {line.offset})",
        MOVE: f"r{line.target} = {line.immediate}",
        MOVE_REGISTER: f"r{line.target} = r{line.source}",
        AND: f"r{line.target} &= {line.immediate:#x}",
        SHIFT_RIGHT: f"r{line.target} >>= {line.immediate}",
        JUMP: goto,
        EXIT: "exit",
    }[line.code]
