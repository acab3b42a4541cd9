"""CUDA_VISIBLE_DEVICES follows the server at the moment in which a program initializes CUDA."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpu.common.attached import AttachedGpu, Hint
from jupyter_gpu.common.rules.visible import BUS_ORDER, NAMED_BY, ORDER, OURS, VISIBLE, WANTED, changes

from .building import GATE, PROGRAMS, SANITIZERS, Built, command, gate_and_driver
from .initializing import LIST_GPUS
from .place import Place, Program

ASKED = (VISIBLE, OURS, WANTED, ORDER, NAMED_BY)
UUIDS = tuple(f"GPU-{i:08x}-0000-0000-0000-{i:012x}" for i in (1, 2, 3, 18))
GPUS = tuple(AttachedGpu(uuid, index, f"/dev/nvidia{index}") for index, uuid in enumerate(UUIDS))

Ask = Callable[[str, Mapping[str, str]], dict[str, str | None]]


def hint(*indices: int, simulated: bool = False, enforced: bool = False) -> Hint:
    """Return the server's report of GPUs with these indices, with a notice that the gate must leave aside."""
    return Hint("one", 1, simulated, tuple(GPUS[i] for i in indices), enforced, "gpu GPU-1 0 /dev/nvidia0")


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Run the rules in C, under sanitizers."""
    program = tmp_path_factory.mktemp("visible") / "visible"
    command("gcc", "-std=gnu11", "-g", "-O1", "-Wall", "-Werror", *SANITIZERS["address"], f"-I{GATE}",
            GATE / "driver" / "visible.c", PROGRAMS / "visible.c", "-o", program)  # fmt: skip
    process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin
    assert process.stdout
    stdin, stdout = process.stdin, process.stdout

    def word() -> bytes:
        text = b""
        while (one := stdout.read(1)) not in (b"\0", b""):
            text += one
        assert one, "The program ended."
        return text

    def ask(file: str, environ: Mapping[str, str]) -> dict[str, str | None]:
        words = [file, *(f"+{environ[name]}" if name in environ else "-" for name in ASKED)]
        stdin.write(b"".join(word.encode() + b"\0" for word in words))
        stdin.flush()
        answer = word().decode()
        if answer == ".":
            return {}
        own = word().decode()
        return {VISIBLE: answer[1:], OURS: answer[1:], WANTED: own[1:] if own[0] == "+" else None}

    yield ask
    stdin.close()
    assert process.wait(30) == 0
    stdout.close()


ENTRIES = st.sampled_from(
    ["0", "1", "2", "3", "17", "-1", "", " 1 ", "1x", "GPU-", "GPU-0000000", "GPU-00000001", "MIG-1", *UUIDS, "9" * 12]
)
VALUES = st.lists(ENTRIES, max_size=5).map(",".join)
ENVIRONMENTS = st.fixed_dictionaries(
    {},
    optional={
        VISIBLE: VALUES,
        OURS: VALUES,
        WANTED: VALUES,
        ORDER: st.sampled_from([BUS_ORDER, "FASTEST_FIRST"]),
        NAMED_BY: st.sampled_from(["uuid", "index"]),
    },
)
HINTS = st.builds(
    lambda indices, simulated, enforced: hint(*sorted(indices), simulated=simulated, enforced=enforced),
    st.sets(st.sampled_from(range(4))), st.booleans(), st.booleans(),
)  # fmt: skip


@settings(max_examples=400)
@given(said=HINTS, environ=ENVIRONMENTS, ours=st.booleans())
def test_rules_in_python_and_c_agree(gate: Ask, said: Hint, environ: dict[str, str], ours: bool) -> None:
    """They do so for any attached GPUs and any environment."""
    if ours and VISIBLE in environ:
        environ = environ | {OURS: environ[VISIBLE]}
    assert gate(said.to_text(), environ) == changes(environ, said)


@settings(max_examples=300)
@given(said=HINTS, environ=ENVIRONMENTS)
def test_only_attached_gpus_are_visible(said: Hint, environ: dict[str, str]) -> None:
    """In soft mode this holds whatever a user chose; applying the rules again, as a child does, changes nothing."""
    made = changes(environ, said)
    if said.simulated:
        assert made == {}
    if not made:
        return
    by_index = {str(gpu.index): gpu.uuid for gpu in said.gpus}
    seen = [by_index.get(one, one) for one in (made[VISIBLE] or "").split(",") if one]
    if not said.enforced:
        assert set(seen) <= {gpu.uuid for gpu in said.gpus}
        assert environ.get(ORDER) == BUS_ORDER or not set((made[VISIBLE] or "").split(",")) & set(by_index)
    child = {name: value for name, value in {**environ, **made}.items() if value is not None}
    assert changes(child, said) == made


@settings(max_examples=300)
@given(text=st.one_of(st.text(max_size=200), HINTS.map(Hint.to_text).flatmap(
    lambda text: st.integers(0, len(text) - 1).map(lambda size: text[:size])
)))  # fmt: skip
def test_incomplete_file_changes_nothing(gate: Ask, text: str) -> None:
    """This holds for garbage and for each beginning of a file."""
    assert gate(text.replace("\0", "").encode("utf-8", "replace").decode(), {}) == {}


@pytest.mark.parametrize(
    ("environ", "attached", "value"),
    [
        ({}, (1, 2), f"{UUIDS[1]},{UUIDS[2]}"),
        ({}, (), ""),
        ({NAMED_BY: "index", ORDER: BUS_ORDER}, (1, 3), "1,3"),
        ({NAMED_BY: "index"}, (1,), UUIDS[1]),
        ({VISIBLE: "0,2", ORDER: BUS_ORDER}, (1, 2), "2"),
        ({VISIBLE: "0,2"}, (1, 2), UUIDS[2]),
        ({VISIBLE: "GPU-00000002"}, (1, 2), UUIDS[1]),
        ({VISIBLE: f"2,GPU-ffffffff,{UUIDS[1]}", ORDER: BUS_ORDER}, (1, 2), "2"),
        ({VISIBLE: "-1"}, (1, 2), ""),
        ({VISIBLE: "7", OURS: "7"}, (0,), UUIDS[0]),
        ({VISIBLE: "7", OURS: "7", WANTED: "0,1", ORDER: BUS_ORDER}, (1,), "1"),
    ],
)
def test_values_follow_attached_gpus(gate: Ask, environ: dict[str, str], attached: tuple[int, ...], value: str) -> None:
    """Without a choice all attached GPUs are listed; a choice is narrowed to attached ones, in CUDA's syntax."""
    said = hint(*attached)
    made = changes(environ, said)
    assert made[VISIBLE] == made[OURS] == value
    assert gate(said.to_text(), environ) == made


def test_choice_stays_where_the_system_enforces_devices(gate: Ask) -> None:
    """So does the absence of one: CUDA sees what it can open. A list of the product's own is updated."""
    said = hint(1, enforced=True)
    for environ in ({}, {VISIBLE: "0"}, {VISIBLE: "1", OURS: "0"}):
        assert gate(said.to_text(), environ) == changes(environ, said) == {}
    ours = {VISIBLE: "", OURS: ""}
    assert gate(said.to_text(), ours) == changes(ours, said)
    assert changes(ours, said)[VISIBLE] == UUIDS[1]
    indexed = {**ours, NAMED_BY: "index", ORDER: BUS_ORDER}
    assert changes(indexed, said)[VISIBLE] == "0"


# --- programs ---------------------------------------------------------------------------------------------------------


class Machine:
    """Four stand-in GPUs, a server's file, and programs that initialize CUDA."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.file = place.folder / "attached"

    def tell(self, said: Hint) -> None:
        """Replace the file in one step, as the server does."""
        new = self.file.with_suffix(".new")
        new.write_text(said.to_text())
        new.replace(self.file)

    def start(self, code: str = "list_gpus()", **env: str) -> Program:
        """Start a program; `env` overrides what is set by default."""
        gpus = ",".join(f"{uuid}:64" for uuid in UUIDS)
        own = {"JUPYTER_GPU_STANDIN_GPUS": gpus, "JUPYTER_GPU_ATTACHED": str(self.file)}
        return Program(["python3", "-c", LIST_GPUS + code], self.place.env() | own | env)

    def output(self, code: str = "list_gpus()", **env: str) -> list[str]:
        """Return the lines of a program."""
        with self.start(code, **env) as program:
            return program.lines()


@pytest.fixture
def machine(place: Place, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return a machine in soft mode, without a choice by the user."""
    for name in ASKED:
        monkeypatch.delenv(name, raising=False)
    return Machine(place)


def test_program_sees_the_gpus_attached_when_it_initializes(machine: Machine) -> None:
    """This holds whatever its environment was at its start: none, an earlier one, or all GPUs."""
    machine.tell(hint(1, 2))
    both = [f"0 2 3 | {UUIDS[1]},{UUIDS[2]}"]
    assert machine.output() == both
    assert machine.output(**{VISIBLE: "", OURS: ""}) == both
    assert machine.output(**{VISIBLE: UUIDS[0], OURS: UUIDS[0]}) == both
    machine.tell(hint())
    assert machine.output(**{VISIBLE: UUIDS[0], OURS: UUIDS[0]}) == ["100 | "]


def test_new_gpu_is_seen_by_the_next_initialization(machine: Machine) -> None:
    """Until the driver has found one GPU; children get what is attached then."""
    machine.tell(hint())
    with machine.start(
        "list_gpus(); input(); list_gpus(); input(); list_gpus(); subprocess.run([sys.executable, '-c', "
        "sys.orig_argv[2].split('list_gpus(); input()')[0] + 'list_gpus()'])"
    ) as program:
        assert program.line() == "100 |"
        machine.tell(hint(0))
        program.tell("go on")
        assert program.line() == f"0 1 | {UUIDS[0]}"
        machine.tell(hint(0, 3))
        program.tell("go on")
        assert program.line() == f"0 1 | {UUIDS[0]}"
        assert program.line() == f"0 1 18 | {UUIDS[0]},{UUIDS[3]}"


def test_choice_of_the_user_is_narrowed(machine: Machine) -> None:
    """It is remembered for later and for children, which see more of it with the next GPU."""
    machine.tell(hint(1))
    chosen = {VISIBLE: "0,1", ORDER: BUS_ORDER}
    assert machine.output(**chosen) == ["0 2 | 1"]
    assert machine.output(**chosen | {VISIBLE: "1"}) == ["0 2 | 1"]
    assert machine.output(**chosen | {VISIBLE: "-1"}) == ["100 | "]
    assert machine.output(**chosen | {VISIBLE: "GPU-ffffffff"}) == ["100 | "]
    code = (
        f"list_gpus(); open({str(machine.file)!r}, 'w').write({hint(0, 1).to_text()!r}); list_gpus(); "
        "subprocess.run([sys.executable, '-c', sys.orig_argv[2].partition('list_gpus(); open')[0] + 'list_gpus()'])"
    )
    machine.tell(hint())
    assert machine.output(code, **chosen) == ["100 | ", "0 1 2 | 0,1", "0 1 2 | 0,1"]


def test_variable_stays_without_a_server_s_report(machine: Machine) -> None:
    """No file, half a file, simulated GPUs, an enforced pod, another machine: the variable stays as it is."""
    asked = {VISIBLE: UUIDS[3], OURS: UUIDS[3]}
    as_ever = [f"0 18 | {UUIDS[3]}"]
    assert machine.output(**asked) == as_ever
    machine.file.write_text(hint(0).to_text()[:-2])
    assert machine.output(**asked) == as_ever
    machine.file.write_text(hint(0).to_text() + "\n" * 20_000)
    assert machine.output(**asked) == as_ever
    machine.tell(hint(0, simulated=True))
    assert machine.output(**asked) == as_ever
    machine.tell(hint(0, enforced=True))
    assert machine.output() == ["0 1 2 3 18 | -"]
    machine.tell(hint(0))
    assert machine.output(JUPYTER_GPU_GATE_BOOT="0" * 36, **asked) == as_ever
    assert machine.output(JUPYTER_GPU_GATE="", **asked) == [f"0 1 | {UUIDS[0]}"]
    machine.file.unlink()
    os.mkfifo(machine.file)
    assert machine.output(**asked) == as_ever


def test_shim_leaves_the_variable_alone(built: Built, short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a pod the system enforces devices, and no variable changes what its gate does."""
    for name in ASKED:
        monkeypatch.delenv(name, raising=False)
    machine = Machine(Place(built, short, "shim"))
    machine.tell(hint(0))
    assert machine.output() == ["0 1 2 3 18 | -"]


@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_many_threads_initialize_at_once(
    tmp_path_factory: pytest.TempPathFactory, short: Path, sanitizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under sanitizers, after the attached GPUs have changed, each thread gets an answer and nothing is reported."""
    for name in ASKED:
        monkeypatch.delenv(name, raising=False)
    machine = Machine(Place(gate_and_driver(tmp_path_factory.mktemp("visible"), SANITIZERS[sanitizer]), short))
    source, program = machine.place.folder / "threads.c", machine.place.folder / "threads"
    source.write_text(THREADS)
    gate = machine.place.built.gate
    command("gcc", "-g", "-O1", *SANITIZERS[sanitizer], "-pthread", source, "-o", program, "-L", gate,
            "-l:libcuda.so.1", "-Wl,--allow-shlib-undefined")  # fmt: skip
    gpus = ",".join(f"{uuid}:64" for uuid in UUIDS)
    own = {"JUPYTER_GPU_STANDIN_GPUS": gpus, "JUPYTER_GPU_ATTACHED": str(machine.file), VISIBLE: "", OURS: ""}
    # Nothing can prevent a change from coinciding with the driver's own reading of the variable.
    machine.tell(hint(2) if sanitizer == "thread" else hint())
    with Program([str(program)], machine.place.env() | own) as running:
        assert running.line() == "ready"
        machine.tell(hint(2))
        running.tell("end")
        assert running.lines() == ["32"]


THREADS = """
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
int cuInit(unsigned);
static _Atomic int found;
static void *initialize(void *nothing) {
    int result;
    while ((result = cuInit(0)) == 100) {}
    if (result == 0) atomic_fetch_add(&found, 1);
    return nothing;
}
int main(void) {
    pthread_t threads[32];
    for (int i = 0; i < 32; i++) pthread_create(&threads[i], NULL, initialize, NULL);
    puts("ready");
    fflush(stdout);
    getchar();
    for (int i = 0; i < 32; i++) pthread_join(threads[i], NULL);
    return printf("%d\\n", found) < 0;
}
"""
