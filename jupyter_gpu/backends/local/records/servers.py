"""The servers of this machine by their records: their users, the GPUs they hold, and those they wait for."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jupyter_gpu.common.rendezvous import runtime_dir
from jupyter_gpu.model import strict
from jupyter_gpu.model.gpu import total
from jupyter_gpu.model.overview import ServerClaim
from jupyter_gpu_scheduler.rules.state.pod_state import PodState

from .other_pods import NODE, OtherPod
from .record import Record

_MAX_BYTES = 64 * 1024
_DELETED = re.compile(r" \(deleted\)$")


def claims(own: Record, other_pods: Iterable[OtherPod]) -> Iterator[ServerClaim]:
    """Yield the claims of this server and of all others; those of this user's servers have the folder and the port."""
    yield _claim(own, os.geteuid(), here=True, ended=False)
    for other in other_pods:
        if not other.dead or other.held:
            yield _claim(other.record, other.owner, here=False, ended=other.dead)


def _claim(record: Record, owner: int, *, here: bool, ended: bool) -> ServerClaim:
    mine = owner == os.geteuid()
    folder, port = _place(record.server.pid) if mine and not ended else ("", None)
    allocated, attached = record.allocated, record.attached
    wanted = record.requested.milli if record.requested else 0
    waits = not ended and allocated is not None and allocated.ticket is not None
    return ServerClaim(
        uid=record.uid,
        user=_user(owner),
        mine=mine,
        here=here,
        folder=folder,
        port=port,
        ended=ended,
        held=PodState(record.uid, NODE, None, allocated, attached).held,
        draining=frozenset(item.uuid for item in attached.draining) if attached else frozenset(),
        owed=max(0, wanted - total(allocated.shares)) if waits and allocated else 0,
        position=allocated.position if waits and allocated else None,
    )


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _place(pid: int) -> tuple[str, int | None]:
    """Find the folder and port of a server of this user, as Jupyter notes them; else the folder it was started in."""
    folder, port = _noted(runtime_dir(os.environ) / f"jpserver-{pid}.json")
    if not folder:
        with contextlib.suppress(OSError):
            folder = _DELETED.sub("", os.readlink(f"/proc/{pid}/cwd"))  # noqa: PTH115 - Path would not be shorter
    return _short(folder), port


def _noted(path: Path) -> tuple[str, int | None]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return "", None
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid():
            return "", None
        body = strict.an_object(strict.loads(os.read(descriptor, _MAX_BYTES + 1), _MAX_BYTES), "server")
        return strict.optional(body, "root_dir", strict.label(4096)) or "", _port(body.get("url"))
    except (OSError, ValueError):
        return "", None
    finally:
        os.close(descriptor)


def _port(address: Any) -> int | None:
    with contextlib.suppress(ValueError):
        return urlsplit(address).port or None if isinstance(address, str) else None
    return None


def _short(folder: str) -> str:
    home = str(Path.home()) if os.environ.get("HOME") else ""
    if home and (folder == home or folder.startswith(f"{home}/")):
        return f"~{folder[len(home) :]}"
    return folder
