"""The gate's connection to the part of its node that parks: the real server and rules, on the stand-in driver."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from jupyter_gpu.model.parking import Obstacle, ParkCause
from jupyter_gpu_node.parking.rules.budget import NodeMemory
from jupyter_gpu_node.parking.rules.bundles import Bundle
from jupyter_gpu_node.parking.rules.checks import Refusal
from jupyter_gpu_node.parking.rules.messages import (
    Ability,
    Can,
    Cancel,
    Cannot,
    Check,
    Failed,
    FromGate,
    Need,
    Park,
    Parked,
    ProcessState,
    Reason,
    Restore,
    Running,
    State,
    Step,
)
from jupyter_gpu_node.parking.rules.node import NodeParking
from jupyter_gpu_node.parking.rules.parking import ParkedBundle, Phase
from jupyter_gpu_node.processes.rules.process_id import ProcessId
from tests.parking.serve import Serving

from .building import Built, build_entries
from .place import GPU, MIB, Place, Program
from .standin.board import Board
from .stub import Stub

QUICK = {f"JUPYTER_GPU_STANDIN_PARK_{name}": "0" for name in ("BASE", "IN", "OUT")}
PLENTY = NodeMemory(1 << 50, 1 << 50)


class Parking(Serving):
    """The server, and what it heard of the only process."""

    played = 0
    """Messages that the rules have heard."""

    @property
    def process(self) -> ProcessId:
        """The process, once it has introduced itself."""
        self.until(lambda: self.server.gates)
        return self.gates()[0].process

    def told(self, kind: type[FromGate], times: int = 1) -> FromGate:
        """Wait until such a message has come so often; return the last one."""
        self.until(lambda: len(self._of(kind)) >= times)
        return self._of(kind)[-1]

    def _of(self, kind: type[FromGate]) -> list[FromGate]:
        return [message for _, _, message in self.heard_all if isinstance(message, kind)]


@pytest.fixture(scope="module")
def program(built: Built) -> str:
    """Return a program with the gate in it."""
    return str(build_entries(built.program("link"), built.driver, source="link.c"))


@pytest.fixture
def env(place: Place, short: Path) -> Iterator[dict[str, str]]:
    """Return the environment of the program, whose share has the whole GPU."""
    sockets = short / "a" / "shares"
    sockets.mkdir(parents=True)
    with Stub(sockets / f"{GPU}.sock") as stub:
        stub.keep_granting(60_000_000)
        inside = {name: value for name, value in place.env().items() if name != "LD_LIBRARY_PATH"}
        yield inside | QUICK | {"JUPYTER_GPU_GATE": str(sockets)}


def _does(program: Program, line: str) -> str:
    program.tell(line)
    return program.line()


def _threads(program: Program) -> int:
    return len(list(Path(f"/proc/{program.process.pid}/task").iterdir()))


def test_gate_introduces_itself(short: Path, program: str, env: dict[str, str]) -> None:
    """By its driver, abilities, GPUs and use."""
    with Parking(short, "a") as parking, Program([program], env) as started:
        process = parking.process
        assert process.pid == started.process.pid
        found = parking.gates()[0].introduction
        assert found.hello
        assert found.hello.driver >= 13000
        assert found.hello.abilities == Ability.PARK | Ability.SHUT
        assert found.gpus == (GPU,)
        assert found.state == ProcessState(State.RUNNING)
        assert _does(started, "read") == "read there"
        parking.until(lambda: found.use.size >= 8 * MIB)
        parking.until(lambda: not found.use.busy)
        assert _does(started, "work 1") == "work"
        parking.until(lambda: found.use.busy)


def test_nothing_is_started_without_a_socket(short: Path, program: str, env: dict[str, str]) -> None:
    """A later start of CUDA finds one that has come meanwhile."""
    with Program([program], env) as started:
        assert _does(started, "init") == "init"
        threads = _threads(started)
        with Parking(short, "a") as parking:
            assert not parking.gates()
            assert _does(started, "init") == "init"
            assert parking.process.pid == started.process.pid
            assert _threads(started) == threads + 1


def test_park_and_return_by_the_rules(place: Place, short: Path, program: str, env: dict[str, str]) -> None:
    """An order closes the GPU; a need brings the data back."""
    with Parking(short, "a") as parking, Program([program], env) as started:
        process, node = parking.process, NodeParking(1)
        assert _does(started, "read") == "read there"
        node.order("a", Bundle((process,), (GPU,)), ParkCause.USER, 0)
        (bundle,) = node.bundles.values()
        parking.do(lambda: parking.server.send(node.admit(0)))
        _play(parking, node, bundle, Phase.PARKED)
        assert Board(place.folder / "boards", GPU).live() == {}
        assert _does(started, "need 1") == "need"
        parking.told(Need)
        _play(parking, node, bundle, Phase.RUNNING)
        assert bundle.failure is None
        assert _does(started, "read") == "read there"


def _play(parking: Parking, node: NodeParking, bundle: ParkedBundle, phase: Phase) -> None:
    """Carry out what the bundle needs, until that phase."""
    end = time.monotonic() + 60
    while bundle.phase is not phase or parking.played < len(parking.heard_all):
        assert time.monotonic() < end, (bundle.phase, parking.heard_all)
        sends = []
        for _, process, message in parking.heard_all[parking.played :]:
            parking.played += 1
            sends += node.heard(process, message, 0)
        for key in list(node.bundles):
            sends += node.reserve(key, [], PLENTY, 0)
        sends += bundle.scanned(0, [], 0)
        bundle.recorded(0)
        bundle.granted(0)
        sends += bundle.opened(0)
        parking.do(partial(parking.server.send, sends))
        time.sleep(0.01)


def test_park_is_called_off_before_the_checkpoint(short: Path, program: str, env: dict[str, str]) -> None:
    """The lock waits for work; after it the park is undone, and the next one works."""
    with Parking(short, "a") as parking, Program([program], env) as started:
        process = parking.process
        assert _does(started, "work 500") == "work"
        parking.send(process, Park(7, 5000), Cancel(7))
        failed = parking.told(Failed)
        assert isinstance(failed, Failed)
        assert (failed.order, failed.state, failed.code) == (7, State.RUNNING, 0)
        assert _does(started, "read") == "read there"
        parking.send(process, Park(8, 5000))
        parked = parking.told(Parked)
        assert isinstance(parked, Parked)
        assert (parked.order, parked.size >= 8 * MIB) == (8, True)
        parking.send(process, Check(9))
        assert parking.told(Cannot) == Cannot(9, Reason.HANGS)
        parking.send(process, Restore(8, 1))
        assert parking.told(Failed, 2) == Failed(8, Step.RESTORE, State.PARKED, 801)
        parking.send(process, Restore(8))
        assert isinstance(parking.told(Running), Running)


def test_end_of_the_connection_undoes_a_park(short: Path, program: str, env: dict[str, str]) -> None:
    """Until the checkpoint has begun; the next server finds a process that runs."""
    with Program([program], env) as started:
        with Parking(short, "a") as first:
            assert _does(started, "init") == "init"
            process = first.process
            assert _does(started, "work 3000") == "work"
            first.send(process, Park(7, 60_000))
            time.sleep(0.2)
        assert _does(started, "read") == "read there"
        with Parking(short, "a") as second:
            second.until(lambda: second.server.gates)
            second.until(lambda: second.server.gates[0].introduction.state == ProcessState(State.RUNNING))
            second.send(process, Check(9))
            can = second.told(Can)
            assert isinstance(can, Can)
            assert (can.order, can.size >= 8 * MIB, can.contexts) == (9, True, 1)


def test_next_server_brings_back_what_is_parked(short: Path, program: str, env: dict[str, str]) -> None:
    """The process stays parked while there is none, and tells the next one its order and its need."""
    with Program([program], env) as started:
        with Parking(short, "a") as first:
            assert _does(started, "init") == "init"
            first.send(first.process, Park(7, 2000))
            first.told(Parked)
            assert _does(started, "need 1") == "need"
            assert first.told(Need) == Need(True)
        with Parking(short, "a") as second:
            process = second.process
            state = second.told(ProcessState)
            assert isinstance(state, ProcessState)
            assert (state.state, state.order, state.size >= 8 * MIB) == (State.PARKED, 7, True)
            assert second.told(Need) == Need(True)
            second.send(process, Restore(7, 0, 1000))
            assert isinstance(second.told(Running), Running)
            assert _does(started, "read") == "read there"


def test_failed_checkpoint_is_told(short: Path, program: str, env: dict[str, str]) -> None:
    """The process runs, and refuses each further order."""
    with Parking(short, "a") as parking, Program([program], env) as started:
        process, node = parking.process, NodeParking(1)
        _does(started, "fault checkpoint-801")
        node.order("a", Bundle((process,), (GPU,)), ParkCause.USER, 0)
        (bundle,) = node.bundles.values()
        parking.do(lambda: parking.server.send(node.admit(0)))
        _play(parking, node, bundle, Phase.RUNNING)
        assert bundle.failure == Refusal(Obstacle.BROKEN, 801)
        parking.send(process, Check(9))
        assert parking.told(Cannot) == Cannot(9, Reason.BROKEN)
        assert _does(started, "read") == "read there"


def test_child_does_not_keep_the_connection(short: Path, program: str, env: dict[str, str]) -> None:
    """The end of its parent is seen at once."""
    with Parking(short, "a") as parking, Program([program], env) as started:
        process = parking.process
        assert _does(started, "fork") == "fork"
        started.process.kill()
        parking.until(lambda: parking.gone == [("a", process)])
