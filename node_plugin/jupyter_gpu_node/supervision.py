"""Supervision of tasks and threads: any failure ends the whole process.

The kubelet waits for an answer of ``Allocate`` without end, and does nothing else meanwhile. So a process of which only
a part works is worse than a dead one, which the kubelet notices at once and the DaemonSet starts anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Coroutine, Mapping
from typing import Any, NoReturn

FAILED = 70
"""Exit status of a process that ended itself (``EX_SOFTWARE``)."""
STUCK_SECONDS = 20
"""An event loop that has not moved for so long is given up: less than the kubelet gives a container to start."""
STOP_SECONDS = 10
"""Seconds for the tasks to end; a pod is killed 30 s after it was asked to end."""


class _Pulse:
    """The pulse of the event loop. Time of its own thread is counted, not the clock: a machine may be suspended."""

    def __init__(self) -> None:
        self.missed = 0
        """Seconds for which nothing was heard of the loop."""
        self.started = False

    async def beat(self) -> None:
        """Beat, in the loop that is watched."""
        self.missed, self.started = 0, True
        threading.Thread(target=self.watch, name="supervision", daemon=True).start()
        while True:
            self.missed = 0
            await asyncio.sleep(0.5)

    def watch(self) -> None:
        """Watch the beats, in a thread of its own."""
        while self.missed < STUCK_SECONDS:
            time.sleep(1)
            self.missed += 1
        with contextlib.suppress(OSError, ValueError):
            faulthandler.dump_traceback()
        die(f"the event loop has stood still for {STUCK_SECONDS} seconds")


pulse = _Pulse()


async def supervise(tasks: Mapping[str, Coroutine[Any, Any, None]]) -> None:
    """Run all of ``tasks``, named, until SIGTERM or SIGINT; then cancel them, wait for them, and return.

    The first of them that raises or ends by itself ends the process (`die`), as does an error in any other task
    or thread that is not handled, and an event loop that stands still.
    """
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_unhandled)
    threading.excepthook = lambda args: die(f"the thread {args.thread and args.thread.name} failed", args.exc_value)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    running = [asyncio.create_task(task, name=name) for name, task in tasks.items()]
    running.append(asyncio.create_task(pulse.beat(), name="pulse"))
    for task in running:
        task.add_done_callback(lambda ended: None if stop.is_set() else _ended(ended))
    await stop.wait()
    for task in running[:-1]:  # the pulse goes on: a loop that hangs now must not keep the pod from ending
        task.cancel()
    _, late = await asyncio.wait(running[:-1], timeout=STOP_SECONDS) if running[:-1] else (set(), set())
    if late:
        die(f"it did not stop within {STOP_SECONDS} seconds: {', '.join(sorted(task.get_name() for task in late))}")
    running[-1].cancel()


def alive() -> str:
    """Return what is wrong with this process, in plain words; empty if it is well (liveness)."""
    if not pulse.started:
        return "It has not started yet."
    if pulse.missed >= STUCK_SECONDS // 2:
        return f"The event loop has stood still for {pulse.missed} seconds."
    return ""


def die(why: str, error: BaseException | None = None) -> NoReturn:
    """Write down why, and end the process at once, whatever its other threads do."""
    try:
        # standard error may be a pipe that no process reads
        timer = threading.Timer(2, os._exit, (FAILED,))
        timer.daemon = True
        timer.start()
        trace = "".join(traceback.format_exception(error)) if error else ""
        os.write(2, f"{trace}jupyter-gpu ends itself: {why}{f': {error}' if error else ''}.\n".encode(errors="replace"))
        sys.stderr.flush()
    finally:
        os._exit(FAILED)


def _ended(task: asyncio.Task[None]) -> None:
    error = None if task.cancelled() else task.exception()
    die(f"the task {task.get_name()} {'failed' if error else 'ended, which it never should'}", error)


def _unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Handle what no task handled. Messages without an error are complaints of libraries, which change nothing."""
    error = context.get("exception")
    # two threads of gRPC that read one pipe: the second finds it empty, which is no error
    if error is None or (isinstance(error, BlockingIOError) and "PollerCompletionQueue" in str(context.get("handle"))):
        loop.default_exception_handler(context)
        return
    die(str(context.get("message") or "an unhandled error"), error)
