"""Soft mode on a machine with GPUs: terminals, kernels of any language and commands see what is attached.

Servers, terminals and kernels are real. The GPUs are stand-ins that do not say that they are simulated, behind the gate
that this installation has.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tornado.websocket import websocket_connect

from jupyter_gpu_node.gpus import simulated
from tests.gate.building import build_driver, command
from tests.gate.initializing import LIST_GPUS
from tests.kernel import servers
from tests.kernel.servers import Server, await_, serve

SERVER = """
import os, sys
from dataclasses import replace
from jupyter_gpu_node.gpus import nvml, simulated
simulated.FIRST_MINOR = int(sys.argv.pop(1))
class Found(simulated.SimulatedGpus):
    simulated = False
    def inventory(self):
        return tuple(replace(gpu, simulated=False) for gpu in super().inventory())
nvml.NvmlSource = lambda leave, bare: Found(os.environ["TEST_GPUS"], 3)
from jupyter_server.serverapp import main
main()
"""
CLI = f"{shlex.quote(sys.executable)} -m jupyter_gpu.cli"
LOOKS = f"{shlex.quote(sys.executable)} -c {shlex.quote(LIST_GPUS + 'list_gpus()')}"


class Machine:
    """A machine with three GPUs and a driver, and a server in soft mode."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.uuids: list[str] = []

    def have(self, amount: float) -> None:
        """Request so many as the slider does, and wait until they are attached."""
        self.server.gpus(amount)
        await_(lambda: self.server.status()["settled"])

    @property
    def attached(self) -> list[str]:
        """Return the uuids, by index."""
        found = [gpu for gpu in self.server.status()["gpus"] if gpu["state"] == "attached"]
        return [gpu["uuid"] for gpu in sorted(found, key=lambda gpu: gpu["index"])]

    def terminal(self) -> Terminal:
        """Open a new terminal of the server."""
        return Terminal(self, self.server.rest("POST", "api/terminals", {})["name"])

    @contextlib.contextmanager
    def run(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """Run `jupyter gpu run …` as a script of this user; until it has ended, killed if the test fails."""
        command = [sys.executable, "-m", "jupyter_gpu.cli", "run", *words]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, env=self.server.terminal, stdout=pipe, stderr=pipe, text=True) as process:
            try:
                yield process
                process.wait(60)
            finally:
                process.kill()


class Terminal:
    """A shell in a real terminal of the server."""

    def __init__(self, machine: Machine, name: str) -> None:
        self._machine, self._name = machine, name

    def say(self, command: str) -> str:
        """Return what ``command`` prints, both streams."""
        out = self._machine.folder / f"out-{uuid.uuid4().hex}"
        asyncio.run(self._type(f"{{ {command}\n}} > {out}.new 2>&1; mv {out}.new {out}\n"))
        await_(out.exists)
        return out.read_text().strip()

    async def _type(self, text: str) -> None:
        server = self._machine.server
        url = server.url.replace("http", "ws", 1) + f"terminals/websocket/{self._name}?token={server.token}"
        connection = await websocket_connect(url)
        while json.loads(str(await connection.read_message()))[0] != "setup":
            pass
        await connection.write_message(json.dumps(["stdin", text]))
        while "mv " not in str(await connection.read_message()):
            pass
        connection.close()
        while await connection.read_message() is not None:
            pass


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """Run the machine, with nothing attached at first."""
    folder = Path("/tmp") / f"jg-{os.getpid()}-{os.urandom(4).hex()}"
    driver = folder / "driver"
    driver.mkdir(parents=True)
    build_driver(driver)
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("CUDA_")]:
            patch.delenv(name)
        patch.setattr(servers, "SERVER", SERVER)
        patch.setenv("LD_LIBRARY_PATH", str(driver))
        patch.setenv("TEST_GPUS", str(folder / "gpus"))
        patch.setenv("SHELL", "/bin/sh")
        patch.delenv("LD_PRELOAD", raising=False)
        try:
            with _serving(folder, patch) as made:
                yield made
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _serving(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Machine]:
    boards, own = folder / "boards", folder / "own"
    uuids = [simulated.uuid_of(index) for index in range(3)]
    for name in (boards, own):
        name.mkdir()
    patch.setenv("JUPYTER_GPU_STANDIN", str(boards))
    patch.setenv("JUPYTER_GPU_STANDIN_GPUS", ",".join(f"{one}:64" for one in uuids))
    original = servers.environment
    standin = {name: value for name, value in os.environ.items() if name.startswith("JUPYTER_GPU_STANDIN")}
    patch.setattr(servers, "environment", lambda folder: original(folder) | standin)
    with serve(own, folder / "state", "--GpuExtension.enforcement=soft", gpus=0, terminals=True) as server:
        await_(lambda: server.status()["total"] == 3000)
        machine = Machine(server, own)
        machine.uuids = uuids
        yield machine


@pytest.fixture(autouse=True)
def nothing(machine: Machine) -> Iterator[None]:
    """Begin each test with nothing attached."""
    machine.have(0)
    yield
    machine.have(0)


def _bytes(uuids: list[str]) -> str:
    return " ".join(str(int(uuid[10:12], 16)) for uuid in uuids)


def test_terminal_programs_see_the_attached_gpus(machine: Machine) -> None:
    """A terminal opened without a GPU sees none; programs that it starts later see what is attached then."""
    terminal = machine.terminal()
    assert terminal.say('echo "<$CUDA_VISIBLE_DEVICES>" $CUDA_DEVICE_ORDER') == "<> PCI_BUS_ID"
    assert terminal.say(LOOKS) == "100 |"
    machine.have(2)
    both = machine.attached
    assert len(both) == 2
    assert terminal.say(LOOKS) == f"0 {_bytes(both)} | {','.join(both)}"
    other = machine.terminal()
    assert other.say("echo $CUDA_VISIBLE_DEVICES") == ",".join(both)
    assert other.say(f"env -u LD_LIBRARY_PATH LD_LIBRARY_PATH={machine.folder.parent / 'driver'} {LOOKS}") == (
        f"0 {_bytes(both)} | {','.join(both)}"
    ), "A program that does not meet the gate."
    assert terminal.say("echo $CUDA_VISIBLE_DEVICES") == ""
    assert terminal.say(f"{CLI} status").endswith('To follow: eval "$(jupyter gpu env)"')
    assert terminal.say(f'eval "$({CLI} env)"\necho $CUDA_VISIBLE_DEVICES') == ",".join(both)
    assert "eval" not in terminal.say(f"{CLI} status")
    machine.have(1)
    assert other.say(LOOKS) == f"0 {_bytes(machine.attached)} | {machine.attached[0]}"


def test_list_in_a_terminal_is_narrowed(machine: Machine) -> None:
    """By the panel's numbers, only the attached GPUs of the list are seen."""
    machine.have(2)
    one, two = machine.attached
    index = {uuid: str(position) for position, uuid in enumerate(machine.uuids)}
    terminal = machine.terminal()
    assert terminal.say(f"CUDA_VISIBLE_DEVICES={index[two]} {LOOKS}") == f"0 {_bytes([two])} | {index[two]}"
    assert terminal.say(f"CUDA_VISIBLE_DEVICES=0,1,2 {LOOKS}") == (
        f"0 {_bytes([one, two])} | {index[one]},{index[two]}"
    )
    assert terminal.say(f"CUDA_VISIBLE_DEVICES=-1 {LOOKS}") == "100 |"


KERNEL = """#!/bin/sh
cd "$1"
echo "<$CUDA_VISIBLE_DEVICES>" > began
while :; do
    for code in code-*; do
        test -e "$code" && sh "$code" > "out-$code.new" 2>&1 && rm "$code" && mv "out-$code.new" "out-$code"
    done
    sleep 0.05
done
"""


@contextlib.contextmanager
def _kernel(machine: Machine, **env: str) -> Iterator[Any]:
    """Run a kernel whose language is the shell's, and return a function that runs code in it."""
    folder = machine.folder / f"kernel-{uuid.uuid4().hex}"
    spec = Path(machine.server.env["HOME"]) / ".local/share/jupyter/kernels" / folder.name
    folder.mkdir()
    spec.mkdir(parents=True)
    (folder / "kernel.sh").write_text(KERNEL)
    argv = ["sh", str(folder / "kernel.sh"), str(folder), "{connection_file}"]
    (spec / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "sh", "language": "sh", "env": env}))
    kernel = machine.server.rest("POST", "api/kernels", {"name": folder.name})["id"]

    def run(code: str) -> str:
        name = f"code-{uuid.uuid4().hex}"
        (folder / f".{name}").write_text(code)
        (folder / f".{name}").rename(folder / name)
        await_((folder / f"out-{name}").exists)
        return (folder / f"out-{name}").read_text().strip()

    try:
        await_((folder / "began").exists)
        yield run
    finally:
        machine.server.rest("DELETE", f"api/kernels/{kernel}")


def test_kernel_of_another_language_sees_the_attached_gpus(machine: Machine) -> None:
    """It has no guard: its environment counts at its start, and the gate at each first look of a program."""
    with _kernel(machine) as run:
        assert run('echo "<$CUDA_VISIBLE_DEVICES>"') == "<>"
        assert run(LOOKS) == "100 |"
        machine.have(1)
        assert run(LOOKS) == f"0 {_bytes(machine.attached)} | {machine.attached[0]}"
    with _kernel(machine) as run:
        assert run('echo "<$CUDA_VISIBLE_DEVICES>"') == f"<{machine.attached[0]}>"


def test_list_of_a_kernel_spec_is_narrowed_at_the_first_look(machine: Machine) -> None:
    """The GPU may be attached later."""
    with _kernel(machine, CUDA_VISIBLE_DEVICES="0,1,2") as run:
        assert run('echo "<$CUDA_VISIBLE_DEVICES>"') == "<0,1,2>"
        assert run(LOOKS) == "100 |"
        machine.have(1)
        assert run(LOOKS).startswith(f"0 {_bytes(machine.attached)} | ")


def test_programs_of_a_notebook_see_the_attached_gpus(machine: Machine) -> None:
    """`%%bash` and `!python` do, while a cell runs and after it."""
    code = f"import subprocess; print(subprocess.run({LOOKS!r}, shell=True, capture_output=True, text=True).stdout)"
    resized = (
        "from jupyter_gpu import gpu; import os; before = dict(os.environ); gpu.resize(1)\n"
        f"import subprocess; done = subprocess.run({LOOKS!r}, shell=True, env=before, capture_output=True, text=True)\n"
        "print(done.stdout)"
    )
    with machine.server.kernel() as kernel:
        assert kernel.run(code) == "100 |"
        seen = kernel.run(resized)
        assert seen == f"0 {_bytes(machine.attached)} | {machine.attached[0]}"
        assert kernel.run(code) == seen


def test_release_closes_a_gpu_that_only_nvml_has_open(machine: Machine) -> None:
    """PyTorch's question for the number of GPUs leaves it open; the kernel would otherwise wait for itself."""
    library = machine.folder / "libnvidia-ml.so.1"
    source = Path(__file__).with_name("standin_nvml.c")
    command("gcc", "-shared", "-fPIC", "-pthread", source, "-o", library, "-Wl,-soname,libnvidia-ml.so.1")
    machine.have(1)
    cell = f"""
import ctypes, os
from jupyter_gpu import gpu
path = gpu.devices[0].path
with open({str(machine.folder / "list")!r}, "w") as file: file.write("GPU-0 " + path)
os.environ["STANDIN_NVML"] = file.name
nvml = ctypes.CDLL({str(library)!r})
nvml.nvmlInit_v2(), nvml.nvmlInit_v2()
def opened(): return path in [os.path.realpath(f"/proc/self/fd/{{name}}") for name in os.listdir("/proc/self/fd")]
before = opened()
gpu.release(timeout=20)
print(before, opened(), gpu.devices)
gpu.resize(1)
print(nvml.nvmlShutdown(), nvml.nvmlShutdown(), nvml.nvmlShutdown())
"""
    with machine.server.kernel() as kernel:
        assert kernel.run(cell).splitlines() == ["True False ()", "0 0 1"]


def test_view_names_the_limits_of_soft_mode(machine: Machine) -> None:
    """In soft mode it names the variables of programs, and which programs can see every GPU all the same."""
    said = {one["type"]: one["message"] for one in machine.server.status()["conditions"]}
    assert "CUDA_VISIBLE_DEVICES" in said["SoftMode"]
    assert "That is not enforced: a program that finds the driver in a way of its own sees all" in said["SoftMode"]


@pytest.mark.root
def test_enforced_mode_sets_nothing(machine: Machine) -> None:
    """Terminals and kernels see what they can open; the list for a shell is the same as in soft mode."""
    folder = Path("/tmp") / f"jg-{os.getpid()}-{os.urandom(4).hex()}"
    folder.mkdir()
    try:
        required = "--GpuExtension.enforcement=required"
        with serve(folder, machine.folder.parent / "state", required, gpus=0, terminals=True) as server:
            await_(lambda: server.status()["total"] == 3000)
            guarded = Machine(server, folder)
            guarded.have(1)
            everything = f"0 {_bytes(machine.uuids)} | -"
            assert guarded.terminal().say(LOOKS) == everything, "The stand-in driver opens no device."
            with _kernel(guarded) as run:
                assert run(LOOKS) == everything
            assert json.loads(server.cli("env", "--json").stdout)["CUDA_VISIBLE_DEVICES"] == ",".join(guarded.attached)
            choice = server.cli(
                "run", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES", env={"CUDA_VISIBLE_DEVICES": "0,1"}
            )
            assert choice.stdout == "0,1\n"
            guarded.have(0)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_env_prints_the_attached_gpus(machine: Machine) -> None:
    """Nothing attached: no GPU is seen. By uuid or index; without a server, nothing is printed."""
    cli = machine.server.cli
    none = cli("env")
    assert none.returncode == 0
    assert "export CUDA_VISIBLE_DEVICES=''" in none.stdout.splitlines()
    assert "No GPU is attached" in none.stderr
    machine.have(2)
    said = json.loads(cli("env", "--shell", "json").stdout)
    assert said["CUDA_VISIBLE_DEVICES"] == ",".join(machine.attached)
    assert said["JUPYTER_GPU_CUDA_WANTED"] is None
    index = json.loads(cli("env", "--json", "--by", "index").stdout)["CUDA_VISIBLE_DEVICES"]
    assert [machine.uuids[int(one)] for one in index.split(",")] == machine.attached
    away = cli("env", env={"JUPYTER_GPU_URL": "http://127.0.0.1:9"})
    assert (away.returncode, away.stdout) == (5, "")


def test_run_holds_gpus_while_the_command_runs(machine: Machine) -> None:
    """The command sees them, exit status and signals are its own, and at its end they are given back."""
    mark = machine.folder / "go-on"
    show = f'echo "$CUDA_VISIBLE_DEVICES"; until [ -e {mark} ]; do sleep 0.1; done; exit 7'
    with machine.run("--gpus", "2", "--", "sh", "-c", show) as running:
        assert running.stdout
        assert running.stdout.readline().strip().split(",") == machine.attached
        assert len(machine.attached) == 2
        said = {one["type"]: one["message"] for one in machine.server.status()["conditions"]}
        assert "jupyter gpu run" in said["Held"]
        mark.touch()
    assert running.returncode == 7
    await_(lambda: machine.attached == [])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_killed_command_gives_back(machine: Machine, number: signal.Signals) -> None:
    """The signal reaches the command itself: it is the process that was started."""
    with machine.run("--gpus", "1", "--", "sh", "-c", "echo $$; exec sleep 1000") as running:
        assert running.stdout
        assert int(running.stdout.readline()) == running.pid
        assert len(machine.attached) == 1
        running.send_signal(number)
    assert running.returncode == -number
    await_(lambda: machine.attached == [])


def test_run_without_gpus_option_uses_the_attached_gpus(machine: Machine) -> None:
    """It takes and gives back nothing; with nothing attached it says so."""
    with machine.run("sh", "-c", 'echo "<$CUDA_VISIBLE_DEVICES>"') as running:
        out, said = running.communicate(timeout=60)
    assert (running.returncode, out) == (0, "<>\n")
    assert "No GPU is attached" in said
    machine.have(1)
    with machine.run("--", "sh", "-c", 'echo "<$CUDA_VISIBLE_DEVICES>"') as running:
        out, said = running.communicate(timeout=60)
    assert (running.returncode, out, said) == (0, f"<{machine.attached[0]}>\n", "")
    assert len(machine.attached) == 1


def test_command_that_cannot_be_run_takes_nothing(machine: Machine) -> None:
    """No such command, no program, none at all, too many GPUs: exit codes are those of shells and our own."""
    text = machine.folder / "text"
    text.write_text("no program")
    text.chmod(0o755)
    for words, code, words_of in [
        (("--gpus", "1", "--", "no-such-command"), 127, "no-such-command: there is no such command"),
        (("--gpus", "1", "--", str(text)), 126, "cannot be run"),
        (("--gpus", "1"), 2, "a command is missing"),
        (("--gpus", "x", "--", "true"), 2, "x"),
        (("--gpus", "9", "--", "true"), 1, "Only 3 GPUs"),
    ]:
        with machine.run(*words) as running:
            _, said = running.communicate(timeout=60)
        assert (running.returncode, words_of in said) == (code, True), said
        await_(lambda: machine.attached == [])
        assert machine.server.status()["amounts"]["requested"] == 0


def test_run_waits_for_its_gpus(machine: Machine, tmp_path: Path) -> None:
    """Another server has them; with a time limit the wait ends, and its request is withdrawn."""
    other = Path("/tmp") / f"jg-{os.getpid()}-{os.urandom(4).hex()}"
    other.mkdir()
    state = machine.folder.parent / "state"
    try:
        with serve(other, state, "--GpuExtension.enforcement=soft", gpus=0) as neighbour:
            await_(lambda: neighbour.status()["total"] == 3000)
            neighbour.gpus(2)
            with machine.run("--gpus", "2", "--timeout", "1", "--", "true") as running:
                _, said = running.communicate(timeout=60)
            assert running.returncode == 3, said
            await_(lambda: machine.server.status()["amounts"]["requested"] == 0)
            mark = tmp_path / "ran"
            with machine.run("--gpus", "2", "--", "touch", str(mark)) as running:
                await_(lambda: machine.server.status()["phase"] == "Waiting")
                assert not mark.exists()
                neighbour.gpus(0)
            assert running.returncode == 0
            assert mark.exists()
    finally:
        shutil.rmtree(other, ignore_errors=True)
