"""System calls that Python's standard library lacks, through the C library. All but bpf(2), which is in `bpf`."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from typing import NamedTuple

AT_FDCWD = -100
_AT_STATX_DONT_SYNC = 0x4000
_STATX_TYPE_MODE_INO = 0x1 | 0x2 | 0x100
_KCMP_FILES = 2
_KCMP = {"x86_64": 312, "aarch64": 272}.get(platform.machine())

_libc = ctypes.CDLL(None, use_errno=True)
_libc.statx.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_char_p)
# struct statx: mode at 28, inode at 32, numbers of the device at 128 and of the file system's device at 136
_unpack = struct.Struct("@28xH2xQ88x4I").unpack_from


class FileStatus(NamedTuple):
    """The result of `status_at` for a file."""

    mode: int
    inode: int
    rdev: tuple[int, int]
    """Major and minor number if it is a device."""
    dev: tuple[int, int]
    """Major and minor number of the file system."""


def status_at(directory: int, path: bytes) -> FileStatus | None:
    """Call statx(2) for ``path`` below the open ``directory``, following links; None if there is nothing.

    Takes what the kernel knows already: stat(2) would ask the server of a network or FUSE file system, which may
    never answer. Raises `PermissionError` if the link may not be followed; a file that cannot tell what it is
    for any other reason lies on a broken file system, where no device can be opened.
    """
    buffer = ctypes.create_string_buffer(256)
    if _libc.statx(directory, path, _AT_STATX_DONT_SYNC, _STATX_TYPE_MODE_INO, buffer):
        code = ctypes.get_errno()
        if code in (errno.EACCES, errno.EPERM):
            raise PermissionError(code, os.strerror(code), path)
        return None
    mode, inode, *numbers = _unpack(buffer)
    return FileStatus(mode, inode, (numbers[0], numbers[1]), (numbers[2], numbers[3]))


def same_files(first: int, second: int) -> bool:
    """Tell whether two threads share their file descriptors; False also where the kernel does not say."""
    if _KCMP is None:
        return False
    return bool(_libc.syscall(_KCMP, first, second, _KCMP_FILES, 0, 0) == 0)
