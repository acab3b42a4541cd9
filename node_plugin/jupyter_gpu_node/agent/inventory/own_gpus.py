"""GPUs that this node ever had, over restarts of plugin and machine: a pod's record of any other is void.

A GPU that the driver does not report now may be open all the same, so it remains this node's for ever. If it is not
known which GPUs the node had before (a first start, a file that cannot be used), none counts as foreign.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Collection, Iterable
from pathlib import Path

from jupyter_gpu.model import strict
from jupyter_gpu.model.gpu import read_uuid

MAX_BYTES = 2**20
MOST = 4096
_log = logging.getLogger(__name__)


class OwnGpus:
    """The GPUs that this node ever had, kept in the file ``path``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        known = _load(path)
        self._before = known is not None
        """Whether an earlier process recorded the GPUs that there were."""
        self._uuids = known or frozenset[str]()

    def learn(self, uuids: Iterable[str]) -> None:
        """Record these GPUs as present, before a pod is given one. Blocks."""
        more = self._uuids | set(uuids)
        if more == self._uuids:
            return
        self._uuids = more
        try:
            _save(self._path, sorted(more))
        except OSError as error:
            _log.warning("Which GPUs this node has cannot be kept for the next start: %s", error)
            with contextlib.suppress(OSError):
                self._path.unlink()  # one that misses a GPU is worse than none

    def foreign(self, uuids: Collection[str]) -> frozenset[str]:
        """Return those of ``uuids`` that this node never had."""
        return frozenset(uuids) - self._uuids if self._before else frozenset()


def _load(path: Path) -> frozenset[str] | None:
    try:
        with path.open("rb") as file:
            body = strict.an_object(strict.loads(file.read(MAX_BYTES + 1), MAX_BYTES), "The list of GPUs")
        return frozenset(strict.required(body, "uuids", strict.list_of(read_uuid, MOST)))
    except FileNotFoundError:
        return None
    except (OSError, strict.FieldError) as error:
        _log.warning("Which GPUs this node had cannot be read in %s: %s", path, error)
        return None


def _save(path: Path, uuids: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    with draft.open("wb") as file:
        file.write(strict.dumps({"uuids": list(uuids)}).encode())
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
