"""Self-test of the guarding of pods: a real attempt, so that no pod is sent to a node that can't guard it.

It runs before the kubelet is offered any slot, every minute, at once after a pod could not be closed, and every few
seconds while it fails. A failure is reported to the kubelet (all slots unhealthy), in the metrics and the readiness,
and as an Event of the node. Running pods keep their rules.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path

from jupyter_gpu_node.devices import bpf, cgroup
from jupyter_gpu_node.devices.enforcement import PROGRAM
from jupyter_gpu_node.devices.pins import Pins
from jupyter_gpu_node.devices.pod_cgroups import PodCgroups
from jupyter_gpu_node.devices.rules.device_program import compile as compile_rules
from jupyter_gpu_node.devices.rules.device_rules import DeviceRules
from jupyter_gpu_node.gpus.registry import NVIDIA

CALM, TROUBLED = 60.0, 5.0
"""Seconds until it is tried again."""
NAME = cgroup.PREFIX + "selftest-"
"""Prefix of the control group that it is tried on; the number of the process that made it follows."""
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)

_log = logging.getLogger(__name__)


class SelfTest:
    """The repeated self-test. ``attempt`` raises `OSError` where it fails.

    ``report`` gets each change: what is wrong, in plain words, or nothing. It returns whether that was published; if
    not, it is called again.
    """

    def __init__(self, attempt: Callable[[], None], report: Callable[[str], bool]) -> None:
        self._attempt = attempt
        self._report = report
        self._heard: str | None = None
        self._requested = asyncio.Event()
        self.problem = ""

    def test_now(self, why: str) -> None:
        """Test at once, as a pod could not be closed: is it the pod or the node?"""
        _log.warning("A pod could not be closed: %s", why)
        self._requested.set()

    async def once(self) -> None:
        """Test once, and report the result."""
        try:
            await asyncio.to_thread(self._attempt)
        except OSError as error:
            problem = f"Device rules cannot be put in force on this node: {_words(error)}."
        else:
            problem = ""
        if problem != self.problem:
            _log.log(logging.ERROR if problem else logging.INFO, "%s", problem or "Pods can be guarded again.")
        self.problem = problem
        if problem != self._heard and self._report(problem):
            self._heard = problem

    async def run(self) -> None:
        """Test repeatedly until cancelled."""
        while True:
            troubled = self.problem or self._heard != self.problem
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TROUBLED if troubled else CALM):
                    await self._requested.wait()
                await asyncio.sleep(0.2)  # many pods at once are one reason
            self._requested.clear()
            await self.once()


def attempt(pins: Pins, cgroups: PodCgroups) -> None:
    """Load a program, pin it, and put it on a control group of its own. Raises `OSError`.

    Where no group can be made (the hierarchy is read-only here, which is enough to guard pods), only check that the
    kernel says which programs are on the top group.
    """
    root = cgroups.root
    _remove_old(root)
    program = bpf.load(compile_rules(DeviceRules.closed(NVIDIA)), PROGRAM)
    try:
        pins.test(program)
        group = root / f"{NAME}{os.getpid()}"
        try:
            group.mkdir()
        except OSError as error:
            if error.errno not in _READ_ONLY:
                raise
            bpf.attached(root)
            return
        try:
            bpf.attach(group, program)
            if bpf.identifier(program) not in bpf.attached(group):
                raise OSError(errno.EIO, f"The kernel took the device rules of {group} and does not have them.")
        finally:
            group.rmdir()  # its rules go with it
    finally:
        program.close()


def _words(error: OSError) -> str:
    """Return an error's text without its number, with its file."""
    words = str(error.strerror or error).rstrip(".")
    return f"{words} ({os.fspath(error.filename)})" if isinstance(error.filename, (str, os.PathLike)) else words


def _remove_old(root: Path) -> None:
    """Remove groups of processes that were killed while they tried."""
    for group in root.glob(f"{NAME}*"):
        if not Path("/proc", group.name.removeprefix(NAME)).exists():
            with contextlib.suppress(OSError):
                group.rmdir()
