"""Asks the questions: `python -m benchmarks.survey [NAME…] [--out FILE]`. A name is a module, or module:case.

Those named at once are asked side by side; each module's cases one after another, in as few processes as they leave
alive. Answers go to standard output and to FILE, as JSON, one on a line.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, TextIO

ROOT = Path(__file__).parents[2]
MODULES = (
    "speed",
    "blocking",
    "frameworks",
    "failures",
    "opening",
    "entries",
    "interrupted",
    "host",
    "staging",
    "functions",
    "together",
)
SECONDS = 60.0
"""For which a case may say nothing."""


class Question:
    """A module's cases, or those of them whose names begin with ``case``."""

    def __init__(self, name: str, out: TextIO | None, silence: float) -> None:
        self.module, _, self.case = name.partition(":")
        self._out, self._silence = out, silence
        self._left: list[str] = []
        self._running: subprocess.Popen[str] | None = None
        self._over = False

    def end(self) -> None:
        """End what runs, and ask no more."""
        self._over = True
        if self._running is not None and self._running.poll() is None:
            self._note({"error": "no time is left; ended"})
            os.killpg(self._running.pid, signal.SIGKILL)

    def ask(self) -> None:
        """Ask until each case is answered or has ended its process."""
        arguments = [self.case] if self.case else []
        while True:
            before = len(self._left)
            self._process(arguments)
            if self._over or not self._left or len(self._left) == before:
                return
            arguments = self._left

    def _process(self, arguments: list[str]) -> None:
        command = [sys.executable, "-m", f"benchmarks.survey.{self.module}", *arguments]
        env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'node_plugin'}:{os.environ.get('PYTHONPATH', '')}"}
        process = subprocess.Popen(
            command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, start_new_session=True,
        )  # fmt: skip
        self._running = process
        lines: queue.Queue[str | None] = queue.Queue()
        errors: list[str] = []
        assert process.stdout
        assert process.stderr
        threading.Thread(target=_read, args=(process.stdout, lines.put), daemon=True).start()
        threading.Thread(target=_read, args=(process.stderr, errors.append), daemon=True).start()
        now = ""
        while True:
            try:
                line = lines.get(timeout=self._silence)
            except queue.Empty:
                self._note({"case": now, "error": f"nothing for {self._silence:.0f} s; ended"})
                os.killpg(process.pid, signal.SIGKILL)
                break
            if line is None:
                break
            now = self._heard(line, now)
        status = process.wait()
        if status or now:
            text = "".join(filter(None, errors))[-1500:]
            self._note({"case": now, "ended with status": status, "stderr": text})
            self._left = [name for name in self._left if name != now]

    def _heard(self, line: str, now: str) -> str:
        """Note a line of a program; return the case that it is at."""
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError:
            answer = {"printed": line.rstrip()[:300]}
        if "cases" in answer:
            self._left = list(answer["cases"])
            return now
        if "begins" in answer:
            return str(answer["begins"])
        self._note(answer)
        if "case" in answer:
            self._left = [name for name in self._left if name != now]
            return ""
        return now

    def _note(self, answer: dict[str, Any]) -> None:
        line = json.dumps({"question": self.module, **answer})
        print(line, flush=True)
        if self._out:
            self._out.write(line + "\n")
            self._out.flush()


def _read(stream: TextIO, take: Any) -> None:
    for line in stream:
        take(line)
    take(None)


def main() -> None:
    """Ask what the arguments name; without names all modules, one after another."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.survey", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(MODULES)}, or MODULE:CASE")
    parser.add_argument("--out", type=Path, help="where answers are written as well, at its end")
    parser.add_argument("--silence", type=float, default=SECONDS, help="seconds for which a case may say nothing")
    parser.add_argument("--seconds", type=float, default=3600.0, help="after which all is ended")
    arguments = parser.parse_args()
    with (arguments.out or Path(os.devnull)).open("a") as out:
        questions = [Question(name, out, arguments.silence) for name in arguments.names or MODULES]
        threads = [threading.Thread(target=question.ask, daemon=True) for question in questions]
        began = time.monotonic()
        for thread in threads:
            thread.start()
            if not arguments.names:
                thread.join(max(0.0, began + arguments.seconds - time.monotonic()))
        for thread in threads:
            thread.join(max(0.0, began + arguments.seconds - time.monotonic()))
        for question in questions:
            question.end()
        for thread in threads:
            thread.join(5)
        print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
