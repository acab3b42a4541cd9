"""A node in simulated time: gates, the driver, the rules of devices, the record and the line around the decisions.

All that is carried out takes time, fails or is lost by chance, until `settle`: then nothing fails any more.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from jupyter_gpu.model.gpu import Holder
from jupyter_gpu.model.parking import ParkCause
from jupyter_gpu_node.parking.rules.budget import GroupMemory, NodeMemory
from jupyter_gpu_node.parking.rules.bundles import Bundle
from jupyter_gpu_node.parking.rules.members import Send
from jupyter_gpu_node.parking.rules.messages import (
    Can,
    Cancel,
    Cannot,
    Check,
    Failed,
    FromGate,
    FromNode,
    Need,
    Park,
    Parked,
    ProcessState,
    Reason,
    Restore,
    Running,
    State,
    Step,
    Use,
)
from jupyter_gpu_node.parking.rules.node import PLACES, Key, NodeParking
from jupyter_gpu_node.parking.rules.parking import ParkedBundle, Phase
from jupyter_gpu_node.processes.rules.process_id import ProcessId

GIB = 2**30
BUDGET = NodeMemory(available=40 * GIB, budget=20 * GIB)


class Gate:
    """One process with its gate and its driver, as ``gate/parking/link.c`` behaves."""

    def __init__(self, world: World, pod: Pod, process: ProcessId) -> None:
        self.world, self.pod, self.process = world, pod, process
        self.state, self.order = State.RUNNING, 0
        self.step: Step | None = None
        self.wants_undo = False
        self.waiting: FromNode | None = None
        self.connection = 1
        """Number of the connection; 0: none."""
        self.connections = 1
        self.needs = False
        self.alive = True

    @property
    def is_open(self) -> bool:
        """Whether the process has its GPU open."""
        return self.alive and self.state is not State.PARKED

    def say(self, message: FromGate) -> None:
        """Send a message, if there is a connection."""
        if self.connection:
            self.world.later(self.world.delay(), self.world.arrives, self, self.connection, message)

    def told(self, connection: int, message: FromNode) -> None:
        """Handle a message of the node's."""
        if connection != self.connection or not self.alive:
            return
        match message:
            case Check(order):
                chance = self.world.chance(0.1)
                self.say(Cannot(order, Reason.MANAGED) if chance or self.step else Can(order, self.pod.size, 1))
            case Cancel():
                self.wants_undo = True
            case _ if self.step:
                self.waiting = message
            case Park(order) if self.state is State.RUNNING:
                self.order, self.wants_undo = order, False
                self.begin(Step.LOCK)
            case Restore(_, _, patience) if self.state is State.PARKED:
                self.until = self.world.now + patience / 1000
                self.begin(Step.RESTORE)
            case Park(order):
                self.say(Failed(order, Step.LOCK, self.state, 401))
            case Restore(order):
                self.say(Running(order, 0, 0))

    def begin(self, step: Step) -> None:
        """Begin a step, which ends after a while."""
        self.step = step
        seconds = {Step.LOCK: 0.1, Step.CHECKPOINT: 2.0}.get(step, 1.0) * self.world.random.uniform(0.5, 2)
        if self.world.chance(0.05):
            seconds += 200  # it hangs, but not for ever
        self.world.later(seconds, self.end, step)

    def end(self, step: Step) -> None:
        """End the step."""
        if not self.alive:
            return
        if step is Step.LOCK:
            if self.world.chance(0.1):
                self.over(Failed(self.order, Step.LOCK, self.state, 600))
            elif self.wants_undo or not self.connection:
                self.over(Failed(self.order, Step.LOCK, self.state, 0))
            else:
                self.begin(Step.CHECKPOINT)
        elif step is Step.CHECKPOINT:
            if self.world.chance(0.05):
                self.state = State.BROKEN
                self.over(Failed(self.order, step, self.state, 801))
            else:
                self.state = State.PARKED
                self.over(Parked(self.order, self.pod.size, 1, 2))
        elif self.world.may_open(self) and not self.world.chance(0.05):
            order, self.order, self.needs = self.order, 0, False
            self.state = State.RUNNING
            self.over(Running(order, 1, 2))
        elif self.world.now < self.until:
            self.world.later(1.0, self.end, step)
        else:
            self.over(Failed(self.order, step, self.state, 801))

    def over(self, answer: FromGate) -> None:
        """Answer at the end of the last step, and go on with what came meanwhile."""
        self.step = None
        self.say(answer)
        message, self.waiting = self.waiting, None
        if message:
            self.told(self.connection, message)

    def disconnect(self) -> None:
        """Lose the connection, and connect again later."""
        self.connection, self.waiting = 0, None
        self.world.later(self.world.random.uniform(0.1, 3), self.connect)

    def connect(self) -> None:
        """Connect: tell the state first."""
        if self.connection or not self.alive:
            return
        self.connections += 1
        self.connection = self.connections
        passes = {Step.LOCK: State.PARKING, Step.CHECKPOINT: State.PARKING, Step.RESTORE: State.RETURNING}
        state = passes[self.step] if self.step else self.state
        self.say(ProcessState(state, self.order, self.pod.size))
        if self.needs:
            self.say(Need(True))

    def need(self, wanted: bool) -> None:
        """Let a call wait for the GPU, or stop waiting."""
        if self.state is State.PARKED and self.step is None and wanted != self.needs:
            self.needs = wanted
            self.say(Need(wanted))


@dataclass
class Pod:
    """A pod of one GPU."""

    name: str
    gpu: str
    size: int
    gates: list[Gate] = field(default_factory=list)
    attached: bool = False
    """Whether its record says that it has the GPU."""
    parked: str | None = None
    """The bundle that its record says is parked."""
    allowed: bool = False
    """Whether its rules allow the GPU."""
    worker: bool = False
    """Whether another program of it has the GPU open, one without a gate."""
    revoked: bool = False
    """Whether the scheduler has taken back the GPU that it gave for a return."""


class World:
    """The node. ``pods``: the number of processes of each; they share as many GPUs as ``gpus`` says."""

    def __init__(self, seed: int, pods: Sequence[int], gpus: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.faults = True
        self.node = NodeParking(1)
        self.numbers = itertools.count()
        self.events: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self.owner: dict[str, Pod | None] = {f"GPU-{i}": None for i in range(gpus)}
        self.pods = [Pod(f"pod-{i}", f"GPU-{i % gpus}", self.random.randint(1, 4) * GIB // 4) for i in range(len(pods))]
        self.starts: list[Gate] = []
        for number, (pod, count) in enumerate(zip(self.pods, pods, strict=True)):
            pod.gates = [Gate(self, pod, ProcessId(100 * number + i, number)) for i in range(count)]
            if self.owner[pod.gpu] is None:
                self.give(pod)
            else:  # it was parked before the world began
                pod.parked = Bundle(tuple(gate.process for gate in pod.gates), ()).name
                for gate in pod.gates:
                    gate.state, gate.order = State.PARKED, 1000 + number
                told = {gate.process: ProcessState(State.PARKED, gate.order, pod.size) for gate in pod.gates}
                self.node.found(pod.name, told, 0, recorded=pod.parked)
        self.later(0.5, self.reconcile)

    # --- time and chance ----------------------------------------------------------------------------------------------

    def later(self, seconds: float, do: Callable[..., None], *arguments: object) -> None:
        """Do it after so many seconds."""
        heapq.heappush(self.events, (self.now + seconds, next(self.numbers), do, arguments))

    def chance(self, part: float) -> bool:
        """Return whether a fault happens."""
        return self.faults and self.random.random() < part

    def delay(self) -> float:
        """Return how long a message takes: they stay in order."""
        return 0.01

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while self.events and self.events[0][0] <= end:
            self.now, _, do, arguments = heapq.heappop(self.events)
            do(*arguments)
            self.check()
        self.now = end

    # --- the driver and the rules -------------------------------------------------------------------------------------

    def may_open(self, gate: Gate) -> bool:
        """Return whether the rules let the process open its GPU now."""
        return gate.pod.allowed

    def give(self, pod: Pod) -> None:
        """Give the pod its GPU, as the scheduler does, and record it."""
        assert self.owner[pod.gpu] is None
        self.owner[pod.gpu] = pod
        pod.attached, pod.parked, pod.allowed = True, None, True

    def check(self) -> None:
        """Check what must hold at every moment."""
        for pod in self.pods:
            for gate in pod.gates:
                if gate.is_open or (gate.step is Step.RESTORE and pod.allowed):
                    assert self.owner[pod.gpu] is pod, f"{pod.name} has {pod.gpu} open, which is another's"
            assert self.owner[pod.gpu] is pod or not (pod.allowed or pod.worker)
        busy = [one for one in self.node.bundles.values() if one.is_busy]
        assert len(busy) <= PLACES
        held = [gate for pod in self.pods for gate in pod.gates if gate.alive and gate.state is State.PARKED]
        assert sum(gate.pod.size for gate in held) <= BUDGET.budget + self.before

    before = 0
    """Bytes that were parked before the world began."""

    # --- messages -----------------------------------------------------------------------------------------------------

    def arrives(self, gate: Gate, connection: int, message: FromGate) -> None:
        """Handle a message at the node, unless its connection has ended."""
        if connection != gate.connection or not gate.alive:
            return
        passes = (State.PARKED, State.PARKING, State.RETURNING)
        new = isinstance(message, ProcessState) and self.node.of(gate.process) is None
        if isinstance(message, ProcessState) and new and message.state in passes:
            self.node.found(gate.pod.name, {gate.process: message}, self.now, recorded=gate.pod.parked)
        else:
            self.send(self.node.heard(gate.process, message, self.now))

    def send(self, sends: list[Send]) -> None:
        """Send the node's messages; those to a process that is not connected are lost."""
        gates = {gate.process: gate for pod in self.pods for gate in pod.gates}
        for process, message in sends:
            gate = gates[process]
            if gate.connection and not self.chance(0.02):
                self.later(self.delay(), gate.told, gate.connection, message)
            elif gate.connection:
                gate.disconnect()  # a message is lost only with its connection

    # --- what the node carries out ------------------------------------------------------------------------------------

    def reconcile(self) -> None:
        """Carry out what each bundle needs, and serve the line."""
        self.later(0.5, self.reconcile)
        self.send(self.node.tick(self.now))
        self.send(self.node.admit(self.now))
        for key, bundle in list(self.node.bundles.items()):
            if not self.chance(0.2):
                self.carry_out(key, bundle)
        for pod in self.pods:
            if (
                pod.parked
                and Key(pod.name, pod.parked) not in self.node.bundles
                and not any(g.alive for g in pod.gates)
            ):
                pod.parked = None

    def carry_out(self, key: Key, bundle: ParkedBundle) -> None:
        """Carry out what its phase needs."""
        pod = next(pod for pod in self.pods if pod.name == key.pod)
        match bundle.phase:
            case Phase.CHECKED:
                limit = 2 * GIB if self.chance(0.1) else None
                self.send(self.node.reserve(key, [GroupMemory(limit, GIB, 0)], BUDGET, self.now))
            case Phase.CLOSING:
                pod.allowed = False
                holders = [Holder(gate.process.pid, "python") for gate in pod.gates if gate.is_open]
                holders += [Holder(7, "worker")] if pod.worker else []
                seconds = self.random.choice([0, 0, 0, 6, 40]) if self.faults else 0
                self.later(seconds, self.scanned, bundle, self.now, holders)
            case Phase.RECORDING:
                if pod.parked is None and self.chance(0.1):
                    self.send(bundle.not_recorded(self.now))
                elif pod.parked is None:
                    assert self.owner[pod.gpu] is pod
                    pod.attached, pod.parked, pod.revoked, self.owner[pod.gpu] = False, key.bundle, False, None
                if pod.parked and not self.chance(0.3):  # else it is not known yet
                    bundle.recorded(self.now)
            case Phase.PARKED if bundle.needed and self.owner[pod.gpu] is None:
                self.give(pod)
                pod.allowed = False
                bundle.granted(self.now)
            case Phase.OPENING if bundle.ours or not self.chance(0.3):
                assert not pod.revoked
                pod.allowed = True
                self.send(bundle.opened(self.now))
            case Phase.RUNNING if pod.attached:
                pod.allowed = True
            case _:
                pass

    def scanned(self, bundle: ParkedBundle, began: float, holders: Sequence[Holder]) -> None:
        """Tell what a scan found, which may have begun long ago."""
        self.send(bundle.scanned(began, holders, self.now))

    # --- what happens -------------------------------------------------------------------------------------------------

    def order(self, pod: Pod, cause: ParkCause = ParkCause.LINE) -> None:
        """Order what the pod has open."""
        alive = [gate for gate in pod.gates if gate.alive]
        if alive and pod.attached and all(gate.state is State.RUNNING for gate in alive):
            self.node.order(pod.name, Bundle(tuple(gate.process for gate in alive), (pod.gpu,)), cause, self.now)

    def call_off(self, pod: Pod) -> None:
        """End the pod's orders."""
        for key, bundle in self.node.bundles.items():
            if key.pod == pod.name:
                self.send(bundle.called_off(self.now))

    def want(self, pod: Pod) -> None:
        """Let the user bring it back."""
        for key, bundle in self.node.bundles.items():
            if key.pod == pod.name:
                self.send(bundle.want(self.now))

    def revoke(self, pod: Pod) -> None:
        """Let the scheduler take back what it gave for a return that has not begun."""
        for key, bundle in self.node.bundles.items():
            if key.pod == pod.name and bundle.phase is Phase.OPENING and not bundle.ours:
                pod.revoked = True
                bundle.revoked(self.now)

    def work(self, pod: Pod) -> None:
        """Start a program without a gate, if the rules let it open the GPU, or end it."""
        pod.worker = not pod.worker and pod.allowed

    def use(self, gate: Gate) -> None:
        """Let the program use its GPU."""
        if gate.state is State.RUNNING and gate.step is None and gate.alive:
            gate.say(Use(True, True, 0, gate.pod.size))

    def kill(self, gate: Gate) -> None:
        """End the process: its pod gives the GPU back when it has no other."""
        if not gate.alive:
            return
        gate.alive = False
        self.send(self.node.ended(gate.process, self.now))
        pod = gate.pod
        if not any(one.alive for one in pod.gates) and pod.attached:
            pod.worker = pod.revoked = False
            pod.attached, pod.allowed, self.owner[pod.gpu] = False, False, None

    def restart(self) -> None:
        """End the node side; another one begins with the record, the rules and what the gates tell."""
        self.node = NodeParking(int(self.now * 1000) + 2000)
        for pod in self.pods:
            for gate in pod.gates:
                if gate.connection:
                    gate.disconnect()

    # --- the end ------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Let nothing fail any more, and order whoever is in the way of a need, until nothing changes."""
        self.faults = False
        for pod in self.pods:
            pod.worker = False
        self.run(5)
        if any(gate.step for pod in self.pods for gate in pod.gates):
            self.run(400)  # steps that hang end
        for _ in range(40):
            needy = [key.pod for key, bundle in self.node.bundles.items() if bundle.needed]
            if not needy and all(one.phase in (Phase.RUNNING, Phase.PARKED) for one in self.node.bundles.values()):
                break
            for pod in self.pods:
                holder = self.owner[pod.gpu]
                if holder and holder is not pod and pod.name in needy:
                    self.order(holder)
            self.run(15)
        self.run(5)

    def unparkable(self, pod: Pod) -> bool:
        """Return whether the pod can never be parked."""
        return any(gate.alive and gate.state in (State.BROKEN, State.LOST) for gate in pod.gates)
