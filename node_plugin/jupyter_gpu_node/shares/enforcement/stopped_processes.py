"""The file of violations and of stopped processes (`signals` stops them). It blocks: for a thread."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from jupyter_gpu.model import strict
from jupyter_gpu_node.processes import proc
from jupyter_gpu_node.shares.rules.violations.violation_records import State, from_plain, to_plain

MAX_BYTES = 4 * 2**20
_log = logging.getLogger(__name__)


def load(path: Path) -> dict[str, State]:
    """Return the saved states by GPU; nothing if there is no file, or it is bad and put aside."""
    try:
        with path.open("rb") as file:
            body = strict.an_object(strict.loads(file.read(MAX_BYTES + 1), MAX_BYTES), "The record of violations")
        strict.required(body, "version", strict.integer(1, 1))
        gpus = strict.required(body, "gpus", strict.an_object)
        found = {str(gpu): from_plain(state) for gpu, state in gpus.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        _log.warning("The record of violations in %s cannot be used and begins anew: %s", path, error)
        with contextlib.suppress(OSError):
            path.replace(path.with_suffix(".broken"))
        return {}
    if body.get("boot") != proc.boot_id():  # those processes are gone, and others may have their pids and starts
        return {gpu: _none_stopped(state) for gpu, state in found.items()}
    return found


def save(path: Path, states: Mapping[str, State]) -> None:
    """Replace the file; the old or the new one is there whatever happens. Raises `OSError`.

    It need not outlive the machine, for the processes do not: the disk is not waited for.
    """
    body = {
        "version": 1,
        "boot": proc.boot_id(),
        "gpus": {gpu: to_plain(state) for gpu, state in states.items() if state},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    draft.write_bytes(strict.dumps(body).encode())
    draft.replace(path)


def _none_stopped(state: State) -> State:
    return {share: replace(one, stopped=frozenset()) for share, one in state.items()}
