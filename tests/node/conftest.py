"""Real processes, control groups and devices for the tests of the node package."""

import contextlib
import json
import os
import secrets
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from jupyter_gpu.model.gpu import Device
from jupyter_gpu_node.devices import cgroup
from jupyter_gpu_node.devices.rules.device_rules import DeviceRules
from tests.devices import EACH, first_minor

FIRST_MINOR = first_minor()
COUNT = EACH
DEVICES = tuple(Device(4, FIRST_MINOR + number) for number in range(COUNT))
MANAGED = frozenset(DEVICES) | {Device(195, 0)}
"""More than the tests ever allow: rules that deny nothing cannot be made."""
CLOSED = DeviceRules(MANAGED)

_CHILD = """
import ctypes, errno, json, mmap, os, signal, socket, stat, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
def map_and_close(path, flags):
    descriptor = os.open(path, os.O_RDWR)
    address = libc.mmap(None, 4096, 3, flags, descriptor, 0)
    os.close(descriptor)
    assert address not in (None, 2**64 - 1), os.strerror(ctypes.get_errno())
    return address
def open_device(path, flags=os.O_RDWR):
    return os.open(path, flags | os.O_NOCTTY | os.O_NONBLOCK)
def probe(*paths):
    answers = ""
    for path in paths:
        try:
            os.close(open_device(path))
            answers += "+"
        except PermissionError as error:
            answers += "-" if error.errno == errno.EPERM else "?"
    return answers
for line in sys.stdin:
    code = json.loads(line)
    try:
        try:
            code = compile(code, "told", "eval")
        except SyntaxError:
            code = compile(code, "told", "exec")
        print(repr((None, eval(code))), flush=True)
    except OSError as error:
        print(repr((error.errno, str(error))), flush=True)
    except Exception as error:
        print(repr((0, f"{type(error).__name__}: {error}")), flush=True)
"""


class Child:
    """A process that executes commands."""

    def __init__(self, environment: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        self.pid = self.process.pid
        self.run("None")  # it runs now

    def run(self, code: str) -> Any:
        """Result of an expression or statement there; an error there is raised here."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(dedent(code)) + "\n")
        self.process.stdin.flush()
        problem, result = eval(self.process.stdout.readline())
        if problem is None:
            return result
        raise OSError(problem, result) if problem else RuntimeError(result)

    def probe(self, *paths: Path) -> str:
        """For each path ``+`` if it opens, ``-`` if EPERM."""
        return str(self.run(f"probe({', '.join(repr(str(path)) for path in paths)})"))

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()


@pytest.fixture
def spawn() -> Iterator[Callable[..., Child]]:
    """Makes obedient processes; they end with the test."""
    children: list[Child] = []

    def make(**environment: str) -> Child:
        children.append(Child(environment))
        return children[-1]

    yield make
    for child in children:
        child.end()


def named(top: str, name: str) -> list[Path]:
    """Control groups of this name; others come and go meanwhile, which ``rglob`` does not bear."""
    return [Path(folder) for folder, _, _ in os.walk(top) if folder.endswith(f"/{name}")]


@pytest.fixture
def uid() -> Iterator[str]:
    """UID of a pod that no other test uses; its control groups are removed, whatever happened."""
    name = f"test-{secrets.token_hex(6)}"
    yield name
    for base in (cgroup.mounts().unified, cgroup.mounts().devices):
        if base is None:
            continue
        for group in named(str(base.mount), cgroup.group_name(name)):
            for pid in cgroup.processes(group):
                with contextlib.suppress(OSError):
                    cgroup.enter(group.parent, pid)
            assert cgroup.remove(group)


@pytest.fixture
def nodes() -> Iterator[tuple[Path, ...]]:
    """Device nodes of four unused virtual consoles."""
    # /run/lock and /tmp are often mounted without devices; /dev never is
    directory = Path(tempfile.mkdtemp(prefix="jupyter-gpu-test-", dir="/dev"))
    paths = []
    for device in DEVICES:
        path = directory / f"gpu{device.minor}"
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(device.major, device.minor))
        path.chmod(0o666)
        paths.append(path)
    directory.chmod(0o755)
    yield tuple(paths)
    shutil.rmtree(directory)


@pytest.fixture
def unified() -> Path:
    """The v2 group that this process is in."""
    hierarchy = cgroup.mounts().unified
    assert hierarchy is not None, "this kernel has no cgroup v2"
    return hierarchy.directory(cgroup.membership()[""])


@pytest.fixture
def devices_v1() -> Path:
    """The group of the v1 devices controller that this process is in."""
    hierarchy = cgroup.mounts().devices
    assert hierarchy is not None, "this kernel has no v1 devices controller"
    return hierarchy.directory(cgroup.membership()["devices"])
