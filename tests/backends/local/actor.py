"""A process that executes a test's commands: a Jupyter server with its backend, or a kernel that opens devices.

One JSON object per message on its socket, one answer for each. A server's kernels are told through
sockets of their own, so that they can be spoken to when the server is dead.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jupyter_gpu.backends.local import LocalBackend

FLAGS = os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK
PR_SET_DUMPABLE, PR_SET_KEEPCAPS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE = 4, 8, 47, 2
CLONE_NEWNS = 0x00020000
CAP_DAC_READ_SEARCH, CAPABILITIES_V3 = 2, 0x20080522


class Actor:
    """An actor: the commands that it takes are its methods."""

    backend: LocalBackend
    state_dir: Path | None

    def __init__(self) -> None:
        self.files: dict[str, int] = {}
        self.maps: dict[str, mmap.mmap] = {}
        self.children: list[subprocess.Popen[bytes]] = []
        self.works = threading.Event()
        self.options: dict[str, Any] = {}

    # -- like a kernel ------------------------------------------------------------------------------------------------

    def open(self, path: str) -> str:
        """Open and keep open; the answer is the name of the error, or empty."""
        try:
            self.files[path] = os.open(path, FLAGS)
        except OSError as error:
            return errno.errorcode[error.errno or 0]
        return ""

    def close(self, path: str) -> None:
        """Close what was opened or received."""
        os.close(self.files.pop(path))

    def work(self) -> None:
        """Compute on a processor from now on, until `rest`."""
        self.works.set()

        def compute() -> None:
            while self.works.is_set():
                pass

        threading.Thread(target=compute, daemon=True).start()

    def rest(self) -> None:
        """Compute no more."""
        self.works.clear()

    def tries(self, paths: list[str]) -> list[bool]:
        """Return the paths that can be opened now; each is closed again at once."""
        found = []
        for path in paths:
            try:
                os.close(os.open(path, FLAGS))
            except PermissionError:
                found.append(False)
            else:
                found.append(True)
        return found

    def map(self, path: str) -> None:
        """Map a plain file and close it: the mapping is what stays."""
        descriptor = os.open(path, os.O_RDWR)
        os.ftruncate(descriptor, 4096)
        self.maps[path] = mmap.mmap(descriptor, 4096)
        os.close(descriptor)

    def unmap(self, path: str) -> None:
        """End the mapping."""
        self.maps.pop(path).close()

    def send(self, path: str, to: str) -> None:
        """Pass the open descriptor over a socket, and close it here."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as carrier:
            carrier.connect(to)
            socket.send_fds(carrier, [b"x"], [self.files[path]])
            carrier.recv(1)
        self.close(path)

    def receive(self, path: str, at: str) -> None:
        """Take a descriptor that is passed; told before the sender is."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(at)
        listener.listen(1)

        def take() -> None:
            carrier, _ = listener.accept()
            _, (descriptor,), _, _ = socket.recv_fds(carrier, 1, 1)
            self.files[path] = descriptor
            carrier.send(b"x")
            carrier.close()
            listener.close()
            asyncio.get_running_loop().remove_reader(listener)

        asyncio.get_running_loop().add_reader(listener, take)

    def number(self, path: str) -> int:
        """Return the number of a descriptor that was received."""
        return self.files.pop(path)

    def become(self, user: int, *, reads: bool = False, mask: int = 0) -> None:
        """Another user from now on. Nothing can be imported after that where Python belongs to root.

        ``reads``: it and its programs may read every file, so that Python can be used wherever it is.
        """
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(PR_SET_KEEPCAPS, int(reads), 0, 0, 0)
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
        os.umask(mask)  # usually none: boards of simulated GPUs are used by all
        if reads:  # as what every program inherits (capabilities(7), ambient)
            alone = (ctypes.c_uint32 * 6)(*[1 << CAP_DAC_READ_SEARCH] * 3)
            raised = libc.capset((ctypes.c_uint32 * 2)(CAPABILITIES_V3, 0), alone)
            assert raised == libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_DAC_READ_SEARCH, 0, 0) == 0
        libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)  # else its own entries in /proc belong to root

    def own_mounts(self, commands: list[list[str]]) -> None:
        """A mount namespace of its own, in which these commands run; as systemd and containers make it."""
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.unshare(CLONE_NEWNS) == 0, os.strerror(ctypes.get_errno())
        for command in (["mount", "--make-rprivate", "/"], *commands):
            subprocess.run(command, check=True)

    def spawn(self, channel: int) -> int:
        """A kernel: another program, started by this one; its pid."""
        command = [sys.executable, "-I", "-S", __file__, "kernel", str(channel)]
        self.children.append(subprocess.Popen(command, pass_fds=[channel]))
        os.close(channel)
        return self.children[-1].pid

    async def run(self, command: list[str], out: str, env: dict[str, str]) -> int:
        """Start a program that writes to a file, as kernels are started; its pid."""
        env = {**os.environ, **env}
        if backend := getattr(self, "backend", None):
            env.update(await backend.search_path(env))
        with Path(out).open("wb") as file:
            program = subprocess.Popen(command, env=env, stdout=file, stderr=file)
        self.children.append(program)
        return program.pid

    def returned(self, pid: int) -> int | None:
        """With which status that program ended; None if it runs."""
        return next(child.poll() for child in self.children if child.pid == pid)

    def without_gate(self) -> None:
        """Run as if the package had been built without a compiler."""
        from jupyter_gpu_node.shares import gate_files

        gate_files.local = lambda: None

    def real_gpus(self, count: int, using: str = "", every: float = 10) -> None:
        """Present simulated GPUs as real; a server that is started then must ask for no simulated ones.

        ``using``: file with the pids that the driver reports. ``every``: seconds between two scans for strangers.
        """
        from jupyter_gpu.backends.local.scans import strangers

        from .looks_real import pretend

        pretend(count, Path(using) if using else None)
        strangers.EVERY = every

    def put(self, **variables: str) -> None:
        """Set variables of the environment, as the user that starts a server does."""
        os.environ.update(variables)

    def wsl(self, driver: str, dxg: str) -> None:
        """Behave as in WSL 2: the driver answers from a file, and all GPUs have one device."""
        from jupyter_gpu.backends.local.site import surroundings

        hardware = Path(__file__).parents[2] / "node" / "gpus" / "fake_hardware"
        os.environ.update(FAKE_NVML=driver, PYTHONPATH=f"{hardware}:{os.pathsep.join(sys.path)}")
        surroundings.DXG = Path(dxg)

    def amd(self, system: str) -> None:
        """Find AMD's GPUs in a tree of files."""
        from jupyter_gpu_node.gpus import vendors

        self.options["vendors"] = (vendors.AMD._replace(open=partial(vendors._open_amd, system=Path(system))),)

    # -- like a server ------------------------------------------------------------------------------------------------

    async def start(self, *, patient: bool = True, **options: Any) -> dict[str, Any]:
        """A backend with these options; its first view, ``patient``: with the GPUs that were found."""
        from jupyter_gpu.backends.local import LocalBackend, Settings
        from jupyter_gpu.backends.local.backend import FIRST_RECONCILE

        path = options.pop("state_dir")
        self.state_dir = Path(path) if path else None
        self.backend = LocalBackend(Settings(state_dir=self.state_dir, **{**options, **self.options}))
        await self.backend.start()
        if not patient:
            return self.view()
        await asyncio.sleep(FIRST_RECONCILE)  # timers and jobs run in order: the first one is over
        await self.backend.details()
        return await self.until_known()

    async def until_known(self) -> dict[str, Any]:
        """The first view after the GPUs were found."""
        while not self.backend.view().total:
            await asyncio.sleep(0.002)
        return self.view()

    async def request(self, **wish: Any) -> dict[str, Any]:
        """The view after it."""
        from jupyter_gpu.model.annotations import Wish

        await self.backend.request(Wish.from_fields(wish))
        return self.view()

    async def sample(self) -> dict[str, Any]:
        """Load of its GPUs and use of its shares."""
        return (await self.backend.sample()).to_json()

    async def machine(self, shown: str) -> dict[str, Any]:
        """All GPUs and their owners."""
        from jupyter_gpu.model.machine import Shown

        return (await self.backend.machine(Shown(shown))).to_json()

    def environment(self) -> dict[str, str]:
        """Return the variables that its kernels need."""
        return dict(self.backend.environment)

    def view(self) -> dict[str, Any]:
        """The present one."""
        return self.backend.view().to_json()

    async def until(self, phase: str, attached: int = -1) -> float:
        """Wait for a phase, and perhaps an amount; the time when it was there, on the clock of the machine."""
        seen = asyncio.Event()
        stop = self.backend.subscribe(lambda _: seen.set())
        while True:
            status = self.backend.view().status
            if status.phase == phase and attached in (-1, status.attached):
                stop()
                return time.monotonic()
            seen.clear()
            await seen.wait()

    async def stop(self) -> None:
        """End the backend, not the process."""
        await self.backend.stop()

    async def notify(self) -> None:
        """Have the backend read everything again, as a notification from another server does."""
        from jupyter_gpu.backends.local.records.store import StateStore

        folder = StateStore(self.state_dir).pods
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"", str(folder / f"{self.backend.view().instance}.sock"))

    def set_wall_clock(self, seconds: int) -> None:
        """For this process alone: the machine's clock is not ours to set."""
        time.time = lambda: float(seconds)
        time.time_ns = lambda: seconds * 10**9

    def crash_at(self, point: str) -> None:
        """From now on."""
        os.environ["JUPYTER_GPU_CRASH_AT"] = point

    def pid(self) -> int:
        """Return the pid of this process."""
        return os.getpid()

    def freeze(self) -> None:
        """Stop until a SIGCONT arrives."""
        os.kill(os.getpid(), signal.SIGSTOP)


async def serve(channel: socket.socket) -> None:
    """Answer until the test closes the socket."""
    actor = Actor()
    reader, writer = await asyncio.open_connection(sock=channel)
    while line := await reader.readline():
        message = json.loads(line)
        try:
            method: Callable[..., Any] = getattr(actor, message.pop("do"))
            value = method(**message)
            answer = {"value": await value if asyncio.iscoroutine(value) else value}
        except Exception as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        writer.write(json.dumps(answer).encode() + b"\n")
        await writer.drain()


def nursery(orders: socket.socket) -> None:
    """Fork an actor for each socket that arrives, and answer with its pid: much sooner than Python starts.

    Everything an actor needs is imported here, once; so it can also become a user who may not read it.
    """
    import jupyter_gpu_node.gpus.simulated
    from jupyter_gpu.backends.local import backend
    from tests.devices import first_minor

    backend.load()
    jupyter_gpu_node.gpus.simulated.FIRST_MINOR = first_minor()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them: their sockets tell when they are gone
    while True:
        text, descriptors, _, _ = socket.recv_fds(orders, 1, 1)
        if not text:
            return
        if child := os.fork():
            os.close(descriptors[0])
            orders.sendall(b"%10d" % child)
            continue
        orders.close()
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        asyncio.run(serve(socket.socket(fileno=descriptors[0])))
        os._exit(0)


if __name__ == "__main__":
    role, number = sys.argv[1:]
    channel = socket.socket(fileno=int(number))
    if role == "nursery":
        nursery(channel)
    else:
        asyncio.run(serve(channel))
