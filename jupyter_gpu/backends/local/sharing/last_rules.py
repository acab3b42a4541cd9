"""The rules that held last, as an arbiter keeps them among its own files for the next one: if the file is bad by then.

Copies of trusted arbiters count: root's, that of the owner of the state directory, our own. Of several the newest
is the last. What others could have written, or is damaged, is none.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from jupyter_gpu.backends.local.processes.identity import boot
from jupyter_gpu.common import settings_file
from jupyter_gpu.model import strict
from jupyter_gpu_node.shares.server import paths as share_paths

from . import files, trust

NAME = "rules.json"
MAX_BYTES = 8 * settings_file.MAX_BYTES
"""Limit of the kept file: what was short in the administrator's may be longer here."""
_TICKS = os.sysconf("SC_CLK_TCK")


class LastRules(NamedTuple):
    """The rules that were read last."""

    text: bytes
    since: int = 0
    """Clock ticks after boot from which shares are enforced; 0: from the start."""


def now(more: int = 0) -> int:
    """Return the time in clock ticks after boot, as `/proc` has the starts of processes, ``more`` seconds from now."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) * _TICKS // 10**9 + more * _TICKS


def keep(own: Path, last: LastRules) -> None:
    """Replace our copy, in one step. Raises `OSError`."""
    body = {"boot": boot(), "since": last.since, "rules": strict.loads(last.text, settings_file.MAX_BYTES)}
    folder = os.open(own, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        share_paths.replace(folder, NAME, strict.dumps(body).encode())
    finally:
        os.close(folder)


def recall(state: Path) -> Iterator[LastRules]:
    """Return the kept rules that can be read, the newest first."""
    found = []
    for user in dict.fromkeys(trust.trusted_users(state)):
        with contextlib.suppress(OSError, ValueError), trust.opened(state, user, files.OWN) as own:
            written = os.stat(NAME, dir_fd=own, follow_symlinks=False).st_mtime_ns
            found.append((written, _decode(trust.read(own, NAME, user, MAX_BYTES))))
    return (last for _, last in sorted(found, key=lambda item: -item[0]))


def _decode(text: bytes) -> LastRules:
    body = strict.an_object(strict.loads(text, MAX_BYTES), "The copy of the rules")
    since = strict.required(body, "since", strict.integer(0, strict.MAX_GENERATION))
    rules = strict.required(body, "rules", strict.an_object)
    return LastRules(strict.dumps(rules).encode(), since if body.get("boot") == boot() else 0)
