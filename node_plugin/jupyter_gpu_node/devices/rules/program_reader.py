"""Interpreter of device programs in force, whichever program made them: read back from the kernel and run here. Pure.

After a restart this is the only witness of what a pod may open. The kernel's verifier may have shortened the program,
and another version may have made it; so it is not compared but run, device by device, as the kernel would. An
instruction that our programs never have makes it unreadable: then nothing is known.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from jupyter_gpu.model.gpu import Device

from . import device_program as code
from .device_program import Instruction

_BYTES = 8
_MAJOR, _MINOR = 4, 8  # in the context; the type of access is at 0
_OPEN = (code.ACCESS_READ | code.ACCESS_WRITE) << 16 | code.TYPE_CHARACTER
_JUMPS = {
    code.JUMP_EQUAL: int.__eq__,
    code.JUMP_NOT_EQUAL: int.__ne__,
    code.JUMP_LESS: int.__lt__,
    code.JUMP_LESS_OR_EQUAL: int.__le__,
}
_SUMS = {code.AND: int.__and__, code.SHIFT_RIGHT: int.__rshift__}


def parse(text: bytes) -> tuple[Instruction, ...]:
    """Parse the kernel's notation, the opposite of `assemble`; ValueError if it is cut off."""
    if len(text) % _BYTES:
        raise ValueError("The device program is cut off.")
    return tuple(
        Instruction(operation, registers & 15, registers >> 4, offset, immediate)
        for operation, registers, offset, immediate in struct.iter_unpack("<BBhi", text)
    )


def allows(program: Sequence[Instruction], device: Device) -> bool:
    """Tell whether ``device`` can be opened; `ValueError` if the program is none of ours."""
    context = {0: _OPEN, _MAJOR: device.major, _MINOR: device.minor}
    registers: dict[int, int] = {}
    position = 0
    try:
        while True:  # ends: only forward jumps are taken
            line = program[position]
            position += 1
            if line.code == code.EXIT:
                return registers[code.R0] != 0
            position += _step(line, registers, context)
    except (IndexError, KeyError):
        raise ValueError("The device program in force is not one of ours.") from None


def _step(line: Instruction, registers: dict[int, int], context: dict[int, int]) -> int:
    """Execute one instruction, and return how many to jump over. KeyError for anything that our programs never have."""
    if line.offset < 0:
        raise KeyError(line.offset)
    if line.code == code.JUMP:
        return line.offset
    if line.code in _JUMPS:
        return line.offset if _JUMPS[line.code](registers[line.target], line.immediate) else 0
    if line.code in _SUMS:
        registers[line.target] = _SUMS[line.code](registers[line.target], line.immediate)
    elif line.code == code.MOVE:
        registers[line.target] = line.immediate
    elif line.code == code.MOVE_REGISTER:
        registers[line.target] = registers[line.source]
    elif line.code == code.LOAD_U32 and line.source == code.R1:
        registers[line.target] = context[line.offset]
    else:
        raise KeyError(line.code)
    return 0
