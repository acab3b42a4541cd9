"""Runs device programs as the kernel would, in a few lines: only what such programs use, and nothing forgiven."""

from collections.abc import Sequence

from jupyter_gpu_node.devices.rules.device_program import Instruction

MAX_STEPS = 10_000


def run(program: Sequence[Instruction], access_type: int, major: int, minor: int) -> int:  # noqa: C901 - one table
    """Result of the program for one access; the fields are those of ``struct bpf_cgroup_dev_ctx``."""
    context = {0: access_type, 4: major, 8: minor}
    registers: dict[int, int] = {}
    position = 0
    for _ in range(MAX_STEPS):
        line = program[position]
        position += 1
        value, immediate = registers.get(line.target), line.immediate
        match line.code:
            case 0x61:
                assert line.source == 1, "only the context can be read"
                registers[line.target] = context[line.offset]
            case 0xB7:
                registers[line.target] = immediate
            case 0xBF:
                registers[line.target] = registers[line.source]
            case 0x95:
                return registers[0]
            case 0x05:
                position += line.offset
            case _:
                assert value is not None, f"register {line.target} is read before it is written"
                match line.code:
                    case 0x57:
                        registers[line.target] = value & immediate
                    case 0x77:
                        registers[line.target] = value >> immediate
                    case 0x15:
                        position += line.offset * (value == immediate)
                    case 0x55:
                        position += line.offset * (value != immediate)
                    case 0xA5:
                        position += line.offset * (value < immediate)
                    case 0xB5:
                        position += line.offset * (value <= immediate)
                    case code:
                        raise AssertionError(f"unknown instruction {code:#x}")
    raise AssertionError("the program does not end")
