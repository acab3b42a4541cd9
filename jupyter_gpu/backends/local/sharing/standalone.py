"""An arbiter that an administrator keeps running: it belongs to no server, and stays when no GPU is shared.

    python -m jupyter_gpu.backends.local.sharing [STATE]

Programs of all users trust root's, and that of the owner of the state directory. Root's ends the one of an ordinary
user, in order; for others it waits.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import signal
import sys
import threading
from pathlib import Path

from jupyter_gpu.backends.local.records.store import StateStore
from jupyter_gpu.common.state_dir import default_path
from jupyter_gpu.model.errors import BackendUnavailable

from . import arbiter, files, trust

USAGE = "usage: python -m jupyter_gpu.backends.local.sharing [STATE DIRECTORY]"
NOT_BELIEVED = (
    "Programs of other users would not rely on it: it must run as root, or as the owner of the state directory {state} "
    "(user {owner})."
)
PAUSE = 0.5
"""Seconds after which one that has the lock is asked again to leave."""
_log = logging.getLogger(__name__)


def main(arguments: list[str]) -> int:
    """Run with ``[STATE]``: the state directory, if it is not the usual one. It ends by a signal."""
    if len(arguments) > 1 or any(argument.startswith("-") for argument in arguments):
        sys.stderr.write(f"{USAGE}\n")
        return 2
    state = Path(arguments[0]).absolute() if arguments else default_path()
    arbiter.begin()
    while True:
        try:
            with StateStore(state).locked():  # made where it is missing; of root, if we are
                owner = state.stat().st_uid
        except (BackendUnavailable, OSError) as error:
            _log.error("%s", error)
            return 1
        if os.geteuid() not in trust.trusted_users(state)[:2]:
            _log.error("%s", NOT_BELIEVED.format(state=state, owner=owner))
            return 2
        try:
            if not _once(state):
                return 0
        except KeyboardInterrupt:
            return 0


def _once(state: Path) -> bool:
    """Wait for the lock and serve; whether that ended because it is another lock or directory by now."""
    lock = files.open_lock(state)
    had = threading.Event()
    try:
        _log.info("Waiting to hand out the GPU time of %s.", state)
        threading.Thread(target=_end_others, args=(state, had), daemon=True).start()
        fcntl.flock(lock, fcntl.LOCK_EX)
        had.set()
        if not files.is_current(state, lock):
            return True
        files.make_home(state)
        return not arbiter.serve(state, lock, stays=True)
    finally:
        had.set()
        os.close(lock)


def _end_others(state: Path, had: threading.Event) -> None:
    """End the arbiters of ordinary users, in order, in a thread, until we have the lock. Root can do that alone."""
    while not had.wait(PAUSE):
        pid = trust.server(state)
        with contextlib.suppress(OSError):
            descriptor = os.pidfd_open(pid)
            try:
                users = trust.serving(state)
                # Ask again for the lock's holder when the descriptor is there: then it is of this very process.
                if users and not users & set(trust.trusted_users(state)) and trust.server(state) == pid:
                    _log.info("Process %s of user %s is asked to leave that.", pid, min(users))
                    signal.pidfd_send_signal(descriptor, signal.SIGTERM)
            finally:
                os.close(descriptor)
