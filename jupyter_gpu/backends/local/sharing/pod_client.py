"""A pod's side of time shares: what its programs need, whether they are served, and what was decided about it.

Everything here runs in the worker thread of its server, and nothing waits.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_gpu.backends.local.processes.identity import boot
from jupyter_gpu.common.rules.search_path import VARIABLE, joined, without
from jupyter_gpu.model import strict
from jupyter_gpu_node.shares import gate_files
from jupyter_gpu_node.shares.server import paths as share_paths

from . import files, trust
from .machine_rules import MachineRules
from .supervisor import BOOT, GATE, Supervisor

if TYPE_CHECKING:  # loaded with the first reconcile, not when a server starts
    from jupyter_gpu.model.share import ShareUse

    from .rules.memory_room import FoundRoom
    from .rules.revocation import Revocation

PATIENCE = 5.0
"""Seconds without an arbiter before the user hears of it: one that was killed is replaced in less than one."""
SWITCHED_OFF = "the administrator of this machine has switched it off"
MOST_TOLD = 2
"""Most contested revocations that the notice lists."""
NO_GATE = "this installation has no gate that can be read: it was built without a C compiler, or is closed to this user"
DOUBT = (
    "GPU time on this machine is handed out by a process of user {user}, and your programs depend on it: it can make "
    "them wait, though not take your GPUs away. An administrator can have root do it instead: see 'The arbiter that "
    "programs trust' in the admin guide."
)
CONTESTED = (
    "User {user}'s process wants your share of {gpu} to be taken away, and says: {reason} You keep it, as that user "
    "may not decide it; but its programs get no turn from that process until you give it back and ask for it again."
)
PRETENDED = (
    "No trusted process answers: user {user} claims to hand out GPU time, but is neither root nor the owner of the "
    "state directory, nor has the lock. Tell your administrator."
)
_log = logging.getLogger(__name__)


class PodClient:
    """One pod's side of time sharing. ``leave`` moves a process out of the pod.

    ``changed`` is called in another thread when the pod should call `follow` again.
    """

    def __init__(self, state: Path, pod: str, leave: Callable[[int], None], changed: Callable[[], None]) -> None:
        self._state = state.absolute()
        self._pod = pod
        self._link = files.gate(self._state, pod)
        self._supervisor = Supervisor(self._state, leave, changed)
        self.arbiter_user: int | None = None
        """User whose arbiter serves the pod; None: none does."""
        self._sure = True
        self._missing: float | None = None
        self._words = self._contested = ""
        self._bad: set[str] = set()
        self._held: Mapping[str, int] = {}
        self.trouble = ""
        """Reason programs wait for the GPU now; empty if they do not."""
        self.notice = ""
        """Problem with the arbiter or its rules, for the administrator of this machine; empty if there is none."""
        self._lacks = "" if gate_files.local() else NO_GATE
        """Reason this server can never share GPU time; empty if it can."""
        self._rules = MachineRules(self._state)
        self._taken_out: Mapping[str, str] = {}
        """Variables removed from this process's environment while shares are not enforced."""
        self._driver = False
        self._front: str | None = None
        """The folder of the gate that this process's own environment names."""
        self._rules.reload()

    @property
    def missing(self) -> str:
        """Reason GPU time is not shared among programs started now; empty if it is."""
        return self._lacks or ("" if self._rules.settings.enforce else SWITCHED_OFF)

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables that programs of the pod need besides the gate itself, to find the sockets."""
        return {} if self.missing else self._variables

    @property
    def _variables(self) -> Mapping[str, str]:
        return {GATE: str(self._link), BOOT: boot()}

    def search_path(self, environ: Mapping[str, str]) -> Mapping[str, str]:
        """Return the variable by which programs with this environment find the gate before the driver, if there is one.

        Blocks, for some 50 ms at first. Any thread may ask.
        """
        folder = None if self.missing else self._folder(environ)
        return {VARIABLE: joined(folder, environ.get(VARIABLE))} if folder else {}

    def _folder(self, environ: Mapping[str, str]) -> str | None:
        from . import front  # once the server is up, or with its first kernel

        try:
            return front.folder(environ)
        except OSError as error:
            _log.warning("The gate can't be put in front of the driver (%s): programs take no turns.", error)
            return None

    @property
    def limits_memory(self) -> bool:
        """Whether programs started now take memory of GPUs through the gate, as far as is known."""
        return self._driver and not self.missing

    def find_driver(self) -> None:
        """Find out whether programs of this server find a driver; asked again only while they do not. Blocks."""
        if not self._driver and not self.missing:
            from . import front  # as above

            self._driver = front.driver_of(os.environ) is not None

    def prepare(self) -> None:
        """Have what this process starts by itself, such as terminals, find the gate. Once is enough."""
        self.find_driver()
        if self._front is None and not self.missing and (folder := self._folder(os.environ)):
            self._front = folder
            _put_in({VARIABLE: folder})

    def forget(self) -> None:
        """Undo `prepare`."""
        if self._front is not None:
            _take_out({VARIABLE: self._front})
            self._front = None

    @property
    def waits(self) -> bool:
        """Whether `follow` should be called again soon."""
        return self._missing is not None

    def follow(self, held: Mapping[str, int]) -> None:
        """Keep an arbiter running and notified after each change, and the sockets where the programs look for them.

        ``held``: milli by uuid.
        """
        if self._lacks:
            return
        self._follow_rules()
        before, self._held = self._held, dict(held)
        self._supervisor.need(bool(held))
        if not held:
            self._missing, self.trouble = None, ""
            if self.arbiter_user is None:
                return
        self.arbiter_user = trust.arbiter_user(self._state)
        self._sure = self.arbiter_user is None or self.arbiter_user in trust.trusted_users(self._state)
        self._listen()
        try:
            if self.arbiter_user is not None:
                files.link_to(self._link, files.sockets(self._state, self.arbiter_user, self._pod))
            elif any(held.get(gpu, 0) < milli for gpu, milli in before.items()):
                files.remove_link(
                    self._link
                )  # holders of a whole GPU go on without an arbiter, as long as this leads there
        except OSError as error:
            self.trouble = f"{self._link} can't be made ({error.strerror or error})."
            return
        if held:
            self.trouble = self._silent(time.monotonic())

    def _follow_rules(self) -> None:
        """Follow whether shares are enforced. Kernels inherit this process's environment, so it follows too."""
        if not self._rules.reload():
            return
        if self.missing and os.environ.get(GATE) == str(self._link):
            self._taken_out = {**self._variables, **({VARIABLE: self._front} if self._front else {})}
            _take_out(self._taken_out)
        elif not self.missing and self._taken_out:
            _put_in(self._taken_out)
            self._taken_out = {}

    def _listen(self) -> None:
        """Read the problem that the arbiter reports. One that is not trusted is quoted, with a warning."""
        said = "" if self.arbiter_user is None else trust.problem(self._state, self.arbiter_user)
        if self._sure or not self._held:
            self._contested = ""
        if self._sure:
            self._words = said
        else:
            doubt = DOUBT.format(user=self.arbiter_user) if self._held else ""
            self._words = doubt + (f" That process says: {said}" if doubt and said else "")
        self._tell()

    def _tell(self) -> None:
        """Update the notice, and log it if it is new: administrators read the logs of servers."""
        before = self.notice
        words = " ".join(filter(None, (self._contested, self._words)))
        self.notice = strict.printable(words, files.MAX_PROBLEM) if words else ""
        if self.notice and self.notice != before:
            _log.warning("%s", self.notice)

    def _silent(self, now: float) -> str:
        """Return the reason no arbiter serves the pod, if that lasts; empty otherwise."""
        if self.arbiter_user is None:
            self._missing = now if self._missing is None else self._missing
            return "" if now < self._missing + PATIENCE else self._supervisor.problem or self._no_answer()
        self._missing = None
        if trust.silence(self._state, self.arbiter_user) > files.SILENCE:
            started = f"started by user {self.arbiter_user}"
            return f"It runs ({started}) but shows no sign of life for {files.SILENCE:g} seconds."
        if not trust.sees_us(self._state, self.arbiter_user):
            return "It runs in another container, which can't see your programs: use one pid namespace for all of them."
        return ""

    def _no_answer(self) -> str:
        pretends = trust.listening(self._state)
        return PRETENDED.format(user=min(pretends)) if pretends else "Nobody answers."

    def revocations(self) -> tuple[Revocation, ...]:
        """Return the arbiter's revocations for this pod; none if they can't be read or it may not decide them."""
        from .rules import revocation  # with the first reconcile

        try:
            found = revocation.decode(self._read(revocation.NAME, revocation.MAX_BYTES))
        except FileNotFoundError:
            found = ()
        except (OSError, ValueError) as error:
            _log.warning("What was decided about this server's shares can't be read: %s", error)
            return ()
        contested = () if self._sure else found
        self._contested = " ".join(
            CONTESTED.format(user=self.arbiter_user, gpu=one.gpu, reason=one.reason) for one in contested[:MOST_TOLD]
        )
        self._tell()
        return found if self._sure else ()

    def found_room(self) -> tuple[FoundRoom, ...]:
        """Return the decisions for which the arbiter found memory; none if they can't be read or it may not say so."""
        from .rules import memory_room  # with the first decision

        if not self.trusted:
            return ()
        try:
            return memory_room.decode(self._read(memory_room.NAME, memory_room.MAX_BYTES))
        except FileNotFoundError:
            return ()
        except (OSError, ValueError) as error:
            _log.warning("What there is memory for can't be read: %s", error)
            return ()

    def sample(self, uuids: Iterable[str]) -> Mapping[str, ShareUse]:
        """Return the use of the shares of these GPUs. Missing or bad files are left out; a bad one is logged once."""
        from jupyter_gpu.backends import share_files

        found: dict[str, ShareUse] = {}
        now = time.time_ns() // 1_000_000
        for uuid in uuids:
            try:
                text = self._read(share_paths.file_name(uuid), share_files.MAX_BYTES)
                found[uuid] = share_files.decode(text, uuid, now)
                self._bad.discard(uuid)
            except FileNotFoundError:  # it is a moment old
                continue
            except (OSError, ValueError) as error:
                if uuid not in self._bad:
                    _log.warning("The use of the time share of GPU %s can't be read and is not shown: %s", uuid, error)
                self._bad.add(uuid)
        return found

    def turns_so_far(self, uuids: Iterable[str]) -> Mapping[str, tuple[int, bool]]:
        """Return the microseconds for which programs had each GPU, or work and not the GPU, so far.

        And whether turns alone let them compute, as the pod has a part of the GPU. Missing where they take no turns.
        """
        if self.missing:
            return {}
        return {uuid: (share.with_work, not share.exclusive) for uuid, share in self.sample(uuids).items()}

    def _read(self, name: str, most: int) -> bytes:
        """Read a file that the arbiter wrote for this pod. Raises `OSError`."""
        if self.arbiter_user is None:
            raise FileNotFoundError
        with trust.opened(self._state, self.arbiter_user, self._pod, share_paths.FOLDER) as folder:
            return trust.read(folder, name, self.arbiter_user, most)

    @property
    def trusted(self) -> bool:
        """Whether the arbiter may name processes to be ended: it is root's, or our own user's."""
        return self.arbiter_user in (0, os.geteuid())

    def close(self, *, left: bool) -> None:
        """End with the server. ``left``: something of its pod goes on and must find its sockets; arbiters tidy then."""
        self._supervisor.stop()
        if not left:
            files.remove_link(self._link)


def _take_out(environment: Mapping[str, str]) -> None:
    """Take variables out of this process's environment; whatever else its user has in the search path stays."""
    for name in environment:
        left = without(environment[name], os.environ.get(name)) if name == VARIABLE else None
        if left:
            os.environ[name] = left
        else:
            os.environ.pop(name, None)


def _put_in(environment: Mapping[str, str]) -> None:
    for name, value in environment.items():
        os.environ[name] = joined(value, os.environ.get(name)) if name == VARIABLE else value
