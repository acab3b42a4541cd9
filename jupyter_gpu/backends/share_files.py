"""Readers of the files in which a node says how the time shares of a pod are used: one for each GPU.

Reading blocks, so a backend does it in a thread of its own.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from jupyter_gpu.model import strict
from jupyter_gpu.model.share import ShareUse

MAX_BYTES = 64 * 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_MOST_TOLD = 1024

_log = logging.getLogger(__name__)
_told: set[tuple[Path, str]] = set()
"""Bad files that were logged, so that each is logged once."""


def read(folder: Path, uuids: Iterable[str], now_ms: int) -> Mapping[str, ShareUse]:
    """Read the shares of those GPUs from ``folder``; ``now_ms`` is the time of day, in milliseconds since 1970.

    What is missing or bad is left out; that a file is bad is logged once, until it is good again. No link is followed.
    """
    found: dict[str, ShareUse] = {}
    with _opened(folder) as directory:
        if directory is None:
            return found
        for uuid in uuids:
            try:
                found[uuid] = decode(_read(directory, uuid), uuid, now_ms)
                _told.discard((folder, uuid))
            except FileNotFoundError:
                continue  # a share that is a moment old has none yet
            except (OSError, ValueError) as error:
                _tell(folder, uuid, error)
    return found


def decode(text: bytes, uuid: str, now_ms: int) -> ShareUse:
    """Decode one file, with ``expires`` from now on; raises `FieldError`."""
    body = strict.an_object(strict.loads(text, MAX_BYTES), "The file of a share")
    share = ShareUse.from_json(body)
    if share.uuid != uuid:
        raise strict.FieldError(f"It is of another GPU, {strict.printable(share.uuid, 96)}.", "uuid")
    written = strict.required(body, "written", strict.integer(0, strict.MAX_GENERATION))
    return share.aged((now_ms - written) * 1000)


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int | None]:
    try:
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    except OSError as error:
        _tell(folder, "", error)
        yield None
        return
    try:
        _told.discard((folder, ""))
        yield directory
    finally:
        os.close(directory)


def _read(directory: int, uuid: str) -> bytes:
    if _NAME.fullmatch(uuid) is None:
        raise FileNotFoundError  # no time share of such a GPU can be
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(f"{uuid}.json", flags, dir_fd=directory)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("It is no regular file.")
        return os.read(descriptor, MAX_BYTES + 1)
    finally:
        os.close(descriptor)


def _tell(folder: Path, uuid: str, error: Exception) -> None:
    if (folder, uuid) not in _told and len(_told) < _MOST_TOLD:
        _told.add((folder, uuid))
        what = f"The file of the time share of GPU {uuid}" if uuid else "The folder of the files of time shares"
        _log.warning("%s in %s cannot be read: %s Its use is not shown.", what, folder, error)
