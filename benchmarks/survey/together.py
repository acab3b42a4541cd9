"""Programs of one pod that park at once and in turn, kills while parked under load, and fifty parks of one training."""

from __future__ import annotations

import functools
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from . import parking, process
from .answers import Case, ask, say
from .failures import Program

_SIZE = 2**30


def member(size: str) -> None:
    """Park and return as the lines of standard input say; answer each with results, and milliseconds of the steps."""
    program = Program(int(size))
    print("ready", flush=True)
    for line in sys.stdin:
        word = line.strip()
        program.steps.milliseconds.clear()
        if word == "park":
            found: object = program.park()
        elif word == "back":
            found = program.back()
        elif word == "work":
            while True:
                program.driver.spin(0.005)
                program.driver.call("cuCtxSynchronize")
        else:
            found = program.works()
        print(found, [(name, ms) for name, _, ms in program.steps.milliseconds], flush=True)


class _Member:
    """A program of the pod."""

    def __init__(self, size: int = _SIZE) -> None:
        command = [sys.executable, "-m", "benchmarks.survey.together", "member", str(size)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def tell(self, word: str) -> None:
        """Say what to do."""
        assert self.process.stdin
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        """Return its next line."""
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def end(self, *, kill: bool = False) -> float:
        """End it; return the seconds that it took."""
        began = time.monotonic()
        if kill:
            self.process.send_signal(signal.SIGKILL)
        else:
            assert self.process.stdin
            self.process.stdin.close()
        self.process.wait(60)
        return round(time.monotonic() - began, 3)


def several(count: int) -> object:
    """Park programs of 1 GiB each at once, and one after another."""
    members = [_Member() for _ in range(count)]
    for one in members:
        one.hear()
    for at_once in (True, False, True):
        for word in ("park", "back"):
            began, said = time.monotonic(), []
            if at_once:
                for one in members:
                    one.tell(word)
                said = [one.hear() for one in members]
            else:
                for one in members:
                    one.tell(word)
                    said.append(one.hear())
            say(count=count, at_once=at_once, step=word, seconds=round(time.monotonic() - began, 3), said=said)
    for one in members:
        one.tell("works")
    right = [one.hear() for one in members]
    return {"works": right, "ended": [one.end() for one in members]}


def _log() -> list[str]:
    done = subprocess.run(["dmesg"], capture_output=True, text=True, check=False)
    return [line for line in done.stdout.splitlines() if "NVRM" in line or "Xid" in line]


def kills() -> object:
    """Kill parked programs while two others keep the GPU busy, and one in the middle of its checkpoint and restore."""
    before = len(_log())
    busy = [_Member(2**26) for _ in range(2)]
    for one in busy:
        one.hear()
        one.tell("work")
    for when in ("parked", "parked", "parked", "in the checkpoint", "in the restore"):
        victim = _Member(2 * _SIZE)
        victim.hear()
        victim.tell("park")
        if when == "in the checkpoint":
            time.sleep(0.7)
        else:
            victim.hear()
        if when == "in the restore":
            victim.tell("back")
            time.sleep(0.4)
        took = victim.end(kill=True)
        fresh = _Member(2**26)
        fresh.hear()
        fresh.tell("works")
        say(killed=when, seconds=took, a_new_program=fresh.hear(), busy=[one.process.poll() for one in busy],
            memory=process.smi("gpu", "memory.used"))  # fmt: skip
        fresh.end()
    ended = [one.end(kill=True) for one in busy]
    time.sleep(1)
    return {"busy ended": ended, "kernel's log": _log()[before:][:20], "memory": process.smi("gpu", "memory.used")}


def _losses(steps: int, every: int) -> None:
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch: Any = importlib.import_module("torch")
    torch.manual_seed(3)
    torch.use_deterministic_algorithms(True)
    layers = torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(1024, 512)
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    inputs = torch.randn(256, 512, device="cuda")
    parks = 0
    for step in range(steps):
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(model(inputs), inputs)
        loss.backward()
        optimizer.step()
        say(step=step, loss=loss.item().hex())
        if every and step % every == every - 1:
            report = parking.once()
            parks += 1
            codes = [report[name]["code"] for name in parking.STEPS if name in report]
            descriptors = len(list(Path("/proc/self/fd").iterdir()))
            maps = len(Path("/proc/self/maps").read_text().splitlines())
            say(park=parks, codes=codes, ms=[report[name]["ms"] for name in parking.STEPS if name in report],
                memory=process.memory(), descriptors=descriptors, maps=maps, listed=process.listed(os.getpid()),
                threads=len(process.threads()))  # fmt: skip


def fifty() -> object:
    """Train for 150 steps with 50 parks, and without: losses to the last bit, and memory after each park."""
    runs: list[list[str]] = []
    parks: list[dict[str, Any]] = []
    for every in (0, 3):
        command = [sys.executable, "-m", "benchmarks.survey.together", "losses", "150", str(every)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        losses: list[str] = []
        assert child.stdout
        for line in child.stdout:
            answer = json.loads(line)
            if "loss" in answer:
                losses.append(answer["loss"])
            else:
                parks.append(answer)
                if answer["park"] in (1, 2, 5, 10, 20, 30, 40, 50):
                    say(**answer)
        runs.append(losses)
        child.wait()
    return {"steps": [len(run) for run in runs], "equal": runs[0] == runs[1], "parks": len(parks),
            "wrong codes": [park for park in parks if any(park["codes"])][:3],
            "ms, first and last five": [park["ms"] for park in parks[:5] + parks[-5:]]}  # fmt: skip


def child_of_the_parked() -> object:
    """Fork a child while CUDA runs, park the parent, end the child, and return."""
    program = Program()
    child = os.fork()
    if not child:
        time.sleep(20)
        os._exit(0)
    park = program.park()
    mine, its = process.holds(), process.holds(child)
    used = process.smi("gpu", "memory.used")
    back = program.back()
    works = program.works()
    again = program.park()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return {"park": park, "parent": mine, "child": its, "GPU": used, "back": back, "works": works, "again": again,
            "child ended": program.back(), "works then": program.works()}  # fmt: skip


CASES: dict[str, Case] = {
    "2 programs": functools.partial(several, 2),
    "4 programs": functools.partial(several, 4),
    "fifty parks": fifty,
    "kills": kills,
    "child": child_of_the_parked,
}

if __name__ == "__main__":
    parking.prepare()
    if sys.argv[1:2] == ["member"]:
        member(sys.argv[2])
    elif sys.argv[1:2] == ["losses"]:
        _losses(int(sys.argv[2]), int(sys.argv[3]))
    else:
        ask(CASES, apart=__spec__.name)
