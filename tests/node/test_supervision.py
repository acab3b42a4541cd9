"""A process that lives wholly or not at all. Each test has a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from textwrap import dedent, indent

import pytest

from jupyter_gpu_node import supervision

FRAME = """
import asyncio, os, sys, threading, time
from jupyter_gpu_node import supervision

async def forever():
    try:
        await asyncio.sleep(1000)
    finally:
        print("stopped", flush=True)

async def other():
{body}

async def main():
    assert supervision.alive() == "It has not started yet."
    print("begun", flush=True)
    await supervision.supervise({{"forever": forever(), "other": other()}})
    print("end", flush=True)

asyncio.run(main())
"""


def begin(body: str) -> subprocess.Popen[str]:
    """A process whose second task is ``body``."""
    code = FRAME.format(body=indent(dedent(body), "    "))
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", code], stdout=pipe, stderr=pipe, text=True)


FATAL = {
    "a task that fails": (
        "raise ValueError('broken pipe of thoughts')",
        "the task other failed: broken pipe of thoughts",
    ),
    "a task that ends": ("return", "the task other ended, which it never should"),
    "a task that is cancelled": ("asyncio.current_task().cancel(); await asyncio.sleep(1)", "the task other ended"),
    "a thread that fails": (
        "threading.Thread(target=lambda: 1 / 0, name='counter').start(); await asyncio.sleep(1000)",
        "the thread counter failed: division by zero",
    ),
    "a task that nobody waits for": (
        "import gc; asyncio.create_task(asyncio.to_thread(lambda: 1 / 0))\n"
        "while True: await asyncio.sleep(0.01); gc.collect()",
        "division by zero",
    ),
    "a callback that fails": (
        "asyncio.get_running_loop().call_soon(lambda: 1 / 0); await asyncio.sleep(1000)",
        "division by zero",
    ),
    "a loop that stands still": (
        "supervision.STUCK_SECONDS = 1; await asyncio.sleep(0.1); time.sleep(1000)",
        "the event loop has stood still for 1 seconds",
    ),
    "a failure while a thread of it hangs": (
        "threading.Thread(target=time.sleep, args=(1000,)).start(); raise ValueError('no')",
        "the task other failed: no",
    ),
}


@pytest.mark.parametrize("body", FATAL.values(), ids=FATAL)
def test_any_failure_ends_the_process_at_once(body: tuple[str, str]) -> None:
    """With a sentence and a status of its own; nothing else gets a chance to go on."""
    code, words = body
    child = begin(code)
    output, errors = child.communicate(timeout=60)
    assert child.returncode == supervision.FAILED, errors
    assert words in errors
    assert "end\n" not in output


def test_sigterm_ends_all_tasks_in_order() -> None:
    """They release what they hold, and that is no failure."""
    child = begin("print('works', flush=True); await asyncio.sleep(1000)")
    assert child.stdout is not None
    assert [child.stdout.readline(), child.stdout.readline()] == ["begun\n", "works\n"]
    child.send_signal(signal.SIGTERM)
    output, errors = child.communicate(timeout=60)
    assert child.returncode == 0, errors
    assert output == "stopped\nend\n"


def test_a_task_that_does_not_stop_is_ended_all_the_same() -> None:
    """A pod that is asked to end is killed after 30 s; the node's next plugin waits for it."""
    child = begin(
        """
        import signal
        supervision.STOP_SECONDS = 0.2
        os.kill(os.getpid(), signal.SIGTERM)
        while True:
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                pass
        """
    )
    _, errors = child.communicate(timeout=60)
    assert child.returncode == supervision.FAILED
    assert "did not stop within 0.2 seconds: other" in errors


def test_a_process_tells_the_truth_about_itself() -> None:
    """Alive once its loop moves, and not when it has not moved for a while."""
    child = begin(
        """
        await asyncio.sleep(0.1)
        print(repr(supervision.alive()), flush=True)
        supervision.pulse.missed = 15
        print(supervision.alive(), flush=True)
        os._exit(0)
        """
    )
    output, errors = child.communicate(timeout=60)
    assert output == "begun\n''\nThe event loop has stood still for 15 seconds.\n", errors
