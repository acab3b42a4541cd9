"""A pod's side of time shares: what its programs need, whether they are served, and what was decided about it.

Everything here runs in the worker thread of its server, and nothing waits.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from jupyter_gpu.backends import share_files
from jupyter_gpu.model.share import ShareUse
from jupyter_gpu.preload import VARIABLE, can_be_preloaded
from jupyter_gpu_node.shares import gate_files
from jupyter_gpu_node.shares import places as share_places

from ..processes import boot
from . import places, verdict
from .keeper import BOOT, GATE, Keeper
from .verdict import Verdict

PATIENCE = 5.0
"""Seconds without an arbiter before the user hears of it: one that was killed is replaced in less than one."""
NO_GATE = "this installation has no gate that can be read: it was built without a C compiler, or is closed to this user"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_log = logging.getLogger(__name__)


class Seat:
    """Of one pod. ``leave`` moves a process out of it; ``changed`` is called in another thread when it should look."""

    def __init__(self, state: Path, pod: str, leave: Callable[[int], None], changed: Callable[[], None]) -> None:
        self._state = state.absolute()
        self._pod = pod
        self._link = places.gate(self._state, pod)
        self._keeper = Keeper(self._state, leave, changed)
        self._gate = gate_files.preload()
        self._user: int | None = None
        self._missing: float | None = None
        self._held: Mapping[str, int] = {}
        self.trouble = ""
        """Why programs wait for the GPU now, if so."""
        self.notice = ""
        """What is wrong with the rules that were set for this machine, if so."""
        self.missing = "" if self._gate else NO_GATE
        """Why GPU time cannot be shared out by this server at all, if so."""
        if self._gate and not can_be_preloaded(str(self._gate)):
            self.missing = f"programs can't be started with {self._gate}, because of the blanks or colons in its path"

    @property
    def environment(self) -> Mapping[str, str]:
        """What programs of the pod need: the gate, and where it finds the sockets."""
        return {} if self.missing else {VARIABLE: str(self._gate), GATE: str(self._link), BOOT: boot()}

    @property
    def waits(self) -> bool:
        """Whether it should be looked at again soon."""
        return self._missing is not None

    def follow(self, held: Mapping[str, int]) -> None:
        """After each change: have an arbiter running and poked, and the sockets where the programs look for them.

        ``held``: milli by uuid.
        """
        if self.missing:
            return
        before, self._held = self._held, dict(held)
        self._keeper.need(bool(held))
        if not held:
            self._missing, self.trouble = None, ""
            if self._user is None:
                return
        self._user = places.living(self._state)
        self._listen()
        try:
            if self._user is not None:
                places.lead(self._link, places.sockets(self._state, self._user, self._pod))
            elif any(held.get(gpu, 0) < milli for gpu, milli in before.items()):
                places.part(self._link)  # who had a whole GPU goes on without an arbiter, as long as this leads there
        except OSError as error:
            self.trouble = f"{self._link} can't be made ({error.strerror or error})."
            return
        if held:
            self.trouble = self._silent(time.monotonic())

    def _listen(self) -> None:
        """Whoever administers this machine looks into the logs of servers."""
        before = self.notice
        self.notice = "" if self._user is None else places.problem(self._state, self._user)
        if self.notice and self.notice != before:
            _log.warning("%s", self.notice)

    def _silent(self, now: float) -> str:
        """Why nobody serves the pod, if that lasts."""
        if self._user is None:
            self._missing = now if self._missing is None else self._missing
            return "" if now < self._missing + PATIENCE else self._keeper.problem or "Nobody answers."
        self._missing = None
        if places.silence(self._state, self._user) > places.SILENCE:
            return f"It runs (started by user {self._user}) but shows no sign of life for {places.SILENCE:g} seconds."
        if not places.sees_us(self._state, self._user):
            return "It runs in another container, which can't see your programs: use one pid namespace for all of them."
        return ""

    def verdicts(self) -> tuple[Verdict, ...]:
        """What the arbiter decided about this pod; nothing if that cannot be read."""
        if self._user is None:
            return ()
        try:
            folder = os.open(places.sockets(self._state, self._user, self._pod), _FOLDER)
        except OSError:
            return ()
        try:
            if os.fstat(folder).st_uid != self._user:
                return ()
            return verdict.decode(share_places.read(folder, verdict.NAME, verdict.MAX_BYTES))
        except FileNotFoundError:
            return ()
        except (OSError, ValueError) as error:
            _log.warning("What was decided about this server's shares can't be read: %s", error)
            return ()
        finally:
            os.close(folder)

    def sample(self, uuids: Iterable[str]) -> Mapping[str, ShareUse]:
        """How the shares of these GPUs are used."""
        if self._user is None:
            return {}
        folder = places.sockets(self._state, self._user, self._pod)
        return share_files.read(folder, uuids, time.time_ns() // 1_000_000)

    @property
    def trusted(self) -> bool:
        """Whether the arbiter may say which processes are to be ended: root's, or that of our own user."""
        return self._user in (0, os.geteuid())

    def close(self, *, left: bool) -> None:
        """The server ends. ``left``: something of its pod goes on and must find its sockets; arbiters tidy then."""
        self._keeper.stop()
        if not left:
            places.part(self._link)
