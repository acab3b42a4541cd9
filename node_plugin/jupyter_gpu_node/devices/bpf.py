"""Programs on control groups. The only caller of bpf(2).

A program is attached with PROG_ATTACH and ALLOW_MULTI: it stays when the process that attached it dies, and goes with
its control group. A link would vanish with its last descriptor and open all devices. Replacing is one atomic step.
Needs CAP_SYS_ADMIN, or CAP_BPF with CAP_NET_ADMIN for everything but `find`: a process with only these pins
what it loads in a bpffs, to have a descriptor of it again after a restart.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from jupyter_gpu_node.devices.rules.device_program import Instruction, assemble

_NUMBER = {"x86_64": 321, "aarch64": 280}.get(platform.machine())
_OBJ_PIN, _OBJ_GET = 6, 7
_PROG_LOAD, _PROG_ATTACH, _PROG_DETACH, _PROG_GET_FD_BY_ID, _OBJ_GET_INFO, _PROG_QUERY = 5, 8, 9, 13, 15, 16
_PROG_TYPE_CGROUP_DEVICE = 15
_CGROUP_DEVICE = 6
_ALLOW_MULTI, _REPLACE = 2, 4
_MAX_PROGRAMS = 64  # of one kind on one control group, set by the kernel
_LOG_BYTES = 64 * 1024
_ID_OFFSET, _NAME_OFFSET, _NAME_BYTES, _INFO_BYTES = 4, 64, 16, 232  # of struct bpf_prog_info
_CODE_BYTES_OFFSET, _CODE_OFFSET, _MOST_CODE = 20, 32, 64 * 1024  # of its translated instructions

_libc = ctypes.CDLL(None, use_errno=True)


class BpfError(OSError):
    """A failure of bpf(2): ``errno`` says how, the text what was tried, ``log`` what the verifier says."""

    def __init__(self, code: int, what: str, log: str = "") -> None:
        super().__init__(code, f"{what}: {os.strerror(code)}{_hint(code)}")
        self.log = log


def _hint(code: int) -> str:
    hints = {1: " (it needs CAP_SYS_ADMIN, or CAP_BPF and CAP_NET_ADMIN)", 38: " (this kernel has no BPF)"}
    return hints.get(code, "")


class Program:
    """A loaded program; close it when it is attached or not needed."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def close(self) -> None:
        """Let go of it; it lives on where it is attached."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def load(program: Iterable[Instruction], name: str) -> Program:
    """Hand ``program`` to the kernel under ``name`` (letters, digits, ``_``; at most 15)."""
    code = assemble(program)
    try:
        return Program(_load(code, name, None))
    except BpfError as error:
        log = ctypes.create_string_buffer(_LOG_BYTES)  # once more, for what the verifier says
        try:
            return Program(_load(code, name, log))
        except BpfError:
            raise BpfError(error.errno or 0, "Loading the device rules", log.value.decode(errors="replace")) from None


def _load(code: bytes, name: str, log: ctypes.Array[ctypes.c_char] | None) -> int:
    instructions = ctypes.create_string_buffer(code, len(code))
    license_name = ctypes.create_string_buffer(b"BSD")
    attributes = struct.pack(
        "=IIQQIIQII16sII",
        _PROG_TYPE_CGROUP_DEVICE,
        len(code) // 8,
        ctypes.addressof(instructions),
        ctypes.addressof(license_name),
        1 if log else 0,
        len(log) if log else 0,
        ctypes.addressof(log) if log else 0,
        0,
        0,
        name.encode(),
        0,
        _CGROUP_DEVICE,
    )
    return _bpf(_PROG_LOAD, attributes, "Loading the device rules")[0]


def attach(group: Path, program: Program, replaces: Program | None = None) -> None:
    """Put ``program`` on the control group, in one step instead of ``replaces`` if given."""
    flags = _ALLOW_MULTI | (_REPLACE if replaces else 0)
    with _directory(group) as target:
        attributes = struct.pack(
            "=5I", target, program.descriptor, _CGROUP_DEVICE, flags, replaces.descriptor if replaces else 0
        )
        _bpf(_PROG_ATTACH, attributes, f"Attaching the device rules to {group}")


def detach(group: Path, program: Program) -> None:
    """Take ``program`` off the control group."""
    with _directory(group) as target:
        attributes = struct.pack("=5I", target, program.descriptor, _CGROUP_DEVICE, 0, 0)
        _bpf(_PROG_DETACH, attributes, f"Detaching the device rules from {group}")


def find(group: Path, name: str) -> Program | None:
    """Return our program on the control group, by the name it was loaded under; None: none. For after a restart."""
    for identifier in attached(group):
        program = Program(_bpf(_PROG_GET_FD_BY_ID, struct.pack("=3I", identifier, 0, 0), "Opening the device rules")[0])
        if _name(program) == name:
            return program
        program.close()
    return None


def pin(program: Program, path: Path) -> None:
    """Give ``program`` a name in a bpffs; it lives as long as that. The file must not be there."""
    name = ctypes.create_string_buffer(bytes(path))
    _bpf(_OBJ_PIN, struct.pack("=QII", ctypes.addressof(name), program.descriptor, 0), f"Pinning the rules as {path}")


def pinned(path: Path) -> Program:
    """Return the program that was pinned there."""
    name = ctypes.create_string_buffer(bytes(path))
    return Program(_bpf(_OBJ_GET, struct.pack("=QII", ctypes.addressof(name), 0, 0), f"Opening the rules {path}")[0])


def identifier(program: Program) -> int:
    """Return the kernel's number of the program; no other has it for as long as it lives."""
    (number,) = struct.unpack_from("=I", _info(program), _ID_OFFSET)
    return int(number)


def code(program: Program) -> bytes:
    """Return the instructions as the kernel runs them: its verifier may have removed some. Empty: not available."""
    text = ctypes.create_string_buffer(_MOST_CODE)
    asked = bytearray(_INFO_BYTES)
    struct.pack_into("=I", asked, _CODE_BYTES_OFFSET, _MOST_CODE)
    struct.pack_into("=Q", asked, _CODE_OFFSET, ctypes.addressof(text))
    (length,) = struct.unpack_from("=I", _info(program, bytes(asked)), _CODE_BYTES_OFFSET)
    return text.raw[:length] if length <= _MOST_CODE else b""


def attached(group: Path) -> tuple[int, ...]:
    """Return the ids of the device programs on the control group itself."""
    identifiers = (ctypes.c_uint32 * _MAX_PROGRAMS)()
    with _directory(group) as target:
        attributes = struct.pack(
            "=4IQII", target, _CGROUP_DEVICE, 0, 0, ctypes.addressof(identifiers), _MAX_PROGRAMS, 0
        )
        _, answer = _bpf(_PROG_QUERY, attributes, f"Reading the device rules of {group}")
    (count,) = struct.unpack_from("=I", answer, 24)
    return tuple(identifiers[:count])


def _name(program: Program) -> str:
    return _info(program)[_NAME_OFFSET : _NAME_OFFSET + _NAME_BYTES].split(b"\0")[0].decode(errors="replace")


def _info(program: Program, asked: bytes = bytes(_INFO_BYTES)) -> bytes:
    info = ctypes.create_string_buffer(asked, _INFO_BYTES)
    attributes = struct.pack("=IIQ", program.descriptor, _INFO_BYTES, ctypes.addressof(info))
    _bpf(_OBJ_GET_INFO, attributes, "Reading what the device rules are")
    return info.raw


@contextmanager
def _directory(group: Path) -> Iterator[int]:
    descriptor = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _bpf(command: int, attributes: bytes, what: str) -> tuple[int, bytes]:
    """Call bpf(2): return its result, and the attributes as it left them. Descriptors it makes are close-on-exec."""
    if _NUMBER is None:
        raise BpfError(38, what)
    union = ctypes.create_string_buffer(attributes, len(attributes))
    result = _libc.syscall(_NUMBER, command, union, len(attributes))
    if result < 0:
        raise BpfError(ctypes.get_errno(), what)
    return result, union.raw
