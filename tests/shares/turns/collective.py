"""Programs on several GPUs whose kernels wait for each other, with a manager for each GPU, in simulated time. Pure.

A program launches the same on each of its GPUs: kernels, and now and then one that ends only when its peers run on all
of its GPUs. One thread launches for all, or each GPU has its own. Gates are as the real one: two launches in flight,
none without a lease, and a lease is given back when what was let through has ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jupyter_gpu_node.shares.rules.protocol import Ask, Done, FromClient, FromServer, Grant, Revoke
from jupyter_gpu_node.shares.rules.turns.actions import Action, Close, LeaseOverdue, Send
from jupyter_gpu_node.shares.rules.turns.arbiter import Arbiter
from jupyter_gpu_node.shares.rules.turns.gangs import Gangs, groups
from jupyter_gpu_node.shares.rules.turns.lease_manager import LeaseManager
from jupyter_gpu_node.shares.rules.turns.rule import Rule
from jupyter_gpu_node.shares.rules.turns.served_share import ShareClient
from jupyter_gpu_node.shares.rules.turns.terms import Terms
from jupyter_gpu_node.shares.rules.turns.timing import Timing

TIMING = Timing()
STEP = 100
"""Microseconds of a step: a message takes one, too."""
DEPTH = 2
IDLE = 500
LATE = 5_000


@dataclass(frozen=True)
class Kind:
    """A kind of program: ``kernels``, in turn, each in µs on every GPU; which of them wait for their peers."""

    kernels: Sequence[int] = (1_000,)
    meets: Sequence[bool] = (True,)
    threads: bool = False
    """Each GPU has its own."""
    first: str = ""
    """The GPU on which one thread launches first, if not in their order."""


@dataclass(eq=False)
class Gate:
    """The gate of one program on one GPU."""

    client: ShareClient
    to: deque[FromClient] = field(default_factory=deque)
    fro: deque[FromServer] = field(default_factory=deque)
    queue: deque[int] = field(default_factory=deque)
    """Numbers of launches in flight."""
    left: int = 0
    """Time left of the first of them."""
    launched: int = 0
    ended: int = 0
    waits: bool = False
    """A launch waits for a lease."""
    stage: str = "free"
    until: int = 0
    once: bool = False
    number: int = 0
    given: int = 0
    idle: int = 0
    work: int = 0
    asked: int | None = None
    alive: bool = True
    """It is connected."""
    busy: int = 0
    """GPU time in all, of kernels that did not wait."""

    def enters(self, now: int) -> bool:
        """Whether a launch may pass; else it waits."""
        if len(self.queue) >= DEPTH:
            return False
        if self.stage == "held" and now < self.until:
            if self.once:
                self.until = 0
            return True
        self.waits = True
        return False

    def tick(self, now: int) -> None:
        """Act as the gate's thread does."""
        while self.fro:
            self.hear(self.fro.popleft(), now)
        if self.stage == "free" and self.waits:
            self.to.append(Ask())
            self.stage = "asked"
        self.idle = 0 if self.queue or (self.waits and now < self.until) else self.idle + STEP
        if self.stage == "held" and self.idle >= IDLE:
            self.stage = "closing"
        if self.stage == "closing":
            if not self.queue:
                self.to.append(Done(0 if self.waits else None, self.work, self.number))
                self.stage, self.given, self.asked = "asked" if self.waits else "free", self.number, None
            elif self.asked is not None and now >= self.asked + LATE:
                self.to.append(Ask(0, True))
                self.asked = None

    def hear(self, message: FromServer, now: int) -> None:
        if isinstance(message, Grant) and message.number > self.given and self.stage != "closing":
            if message.number != self.number:
                self.work = self.idle = 0
            self.stage, self.number, self.once, self.until = "held", message.number, message.once, now + message.time
        elif isinstance(message, Revoke) and message.number == self.number > self.given and self.stage == "held":
            self.stage, self.until, self.asked = "closing", 0, now


class Program:
    """On all of its GPUs."""

    def __init__(self, kind: Kind, gates: Mapping[str, Gate]) -> None:
        self.kind, self.gates = kind, gates

    def launch(self, now: int) -> None:
        gates = [gate for gate in self.gates.values() if gate.alive]
        for gate in gates:
            gate.waits = False
        if self.kind.threads:
            for gate in gates:
                while gate.enters(now):
                    self.put(gate)
            return
        order = sorted(self.gates, key=lambda gpu: gpu != self.kind.first)
        while True:
            gate = min((self.gates[gpu] for gpu in order), key=lambda one: one.launched)
            if not gate.alive or not gate.enters(now):
                return
            self.put(gate)

    def put(self, gate: Gate) -> None:
        gate.queue.append(gate.launched)
        if len(gate.queue) == 1:
            gate.left = self.length(gate.launched)
        gate.launched += 1

    def length(self, number: int) -> int:
        return self.kind.kernels[number % len(self.kind.kernels)]

    def run(self) -> None:
        """One step of its GPUs."""
        heads = {name: gate.queue[0] if gate.queue else -1 for name, gate in self.gates.items()}
        for gate in self.gates.values():
            if not gate.queue:
                continue
            gate.work += STEP
            first = gate.queue[0]
            meets = self.kind.meets[first % len(self.kind.meets)]
            if meets and not all(heads[n] == first or one.ended > first for n, one in self.gates.items()):
                continue
            gate.left -= STEP
            gate.busy += STEP
            if gate.left <= 0:
                gate.queue.popleft()
                gate.ended += 1
                if gate.queue:
                    gate.left = self.length(gate.queue[0])

    @property
    def done(self) -> int:
        """Launches that ended on all GPUs."""
        return min(gate.ended for gate in self.gates.values())


class Machine:
    """GPUs, shares by GPU and pod, and programs. Without ``gangs`` each GPU decides for itself."""

    def __init__(self, shares: Mapping[str, Mapping[str, int]], timing: Timing = TIMING, *, gangs: bool = True) -> None:
        self.now = 0
        self.timing = timing
        self.managers = {gpu: LeaseManager(Arbiter(self.timing, 0), 0) for gpu in shares}
        self.programs: dict[str, Program] = {}
        self.late: list[tuple[str, str]] = []
        self.several: set[str] = set()
        self.held: set[str] = set()
        """Programs that had turns at the last update."""
        self.gangs = Gangs() if gangs else None
        self.rules: dict[str, Rule] = {}
        self.by_client: dict[ShareClient, Gate] = {}
        for gpu, pods in shares.items():
            self.act(self.managers[gpu].set({pod: Terms(milli) for pod, milli in pods.items()}, 0))

    def start(self, pod: str, kind: Kind, name: str = "", only: Sequence[str] = ()) -> Program:
        """A program of that pod, on all its GPUs."""
        gates = {}
        for gpu, manager in self.managers.items():
            if pod in manager.shares and (not only or gpu in only):
                client, out = manager.join(pod, self.now)
                gates[gpu] = self.by_client[client] = Gate(client)
                self.act(out)
        if len(gates) > 1:
            self.several.add(pod)
        self.update_rules()
        self.programs[name or pod] = Program(kind, gates)
        return self.programs[name or pod]

    def kill(self, pod: str) -> None:
        """At any moment; each GPU notices it by itself."""
        program = self.programs.pop(pod)
        self.several.discard(pod)
        for gpu, gate in program.gates.items():
            self.act(self.managers[gpu].leave(gate.client, self.now))
            self.update_rules()

    def set(self, gpu: str, shares: Mapping[str, int]) -> None:
        """The shares of that GPU from now on."""
        self.act(self.managers[gpu].set({pod: Terms(milli) for pod, milli in shares.items()}, self.now))
        self.update_rules()

    def run(self, time: int) -> None:
        end = self.now + time
        while self.now < end:
            self.now += STEP
            for program in self.programs.values():
                program.launch(self.now)
                for gpu, gate in program.gates.items():
                    while gate.to:
                        self.act(self.managers[gpu].receive(gate.client, gate.to.popleft(), self.now))
                        self.update_rules()
            for program in self.programs.values():
                program.run()
                for gate in program.gates.values():
                    gate.tick(self.now)
            for manager in self.managers.values():
                if (wake := manager.wake) is not None and wake <= self.now:
                    self.act(manager.tick(self.now))
                    self.update_rules()
            if self.gangs and self.gangs.wake is not None and self.gangs.wake <= self.now:
                self.update_rules()

    def update_rules(self) -> None:
        """Apply the rules twice: what follows from the first time is seen at once."""
        if self.gangs is None or not (self.several or any(rule != Rule() for rule in self.rules.values())):
            return
        for _ in range(2):
            rules = self.gangs.rules_for(self.managers, sorted(self.several), self.now)
            for gpu, manager in self.managers.items():
                if rules.get(gpu, Rule()) != self.rules.get(gpu, Rule()):
                    self.rules[gpu] = rules.get(gpu, Rule())
                    self.act(manager.apply_rule(self.rules[gpu], self.now))
        self.check()

    def check(self) -> None:
        """Two of a group have turns only where they had them before they became one: none begins, all are asked."""
        held, self.held = self.held, {manager.holder.name for manager in self.managers.values() if manager.holder}
        demands = {
            pod: {gpu: s for gpu, manager in self.managers.items() if (s := manager.demand(pod))}
            for pod in self.several
        }
        for group in groups({pod: found for pod, found in demands.items() if len(found) > 1}):
            turns = {pod for pod, found in group.items() if any(s.holds for s in found.values())}
            if len(turns) > 1:
                assert turns <= held, f"{turns} have turns at {self.now}"
                assert all(s.asked or s.once for pod in turns for s in group[pod].values() if s.holds)

    def act(self, outs: list[Action]) -> None:
        for out in outs:
            match out:
                case Send(client, message):
                    self.by_client[client].fro.append(message)
                case LeaseOverdue(share, since, _):
                    self.late.append((share, str(since)))
                case Close(client):
                    self.by_client[client].alive = False
