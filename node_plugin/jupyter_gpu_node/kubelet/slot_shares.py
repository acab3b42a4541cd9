"""The view of a pod's shares, in every container that has a slot.

Each slot has its own directory, and which slots belong to one pod is known only when its containers start. The server
works in the directory of the first slot; those of the others get hard links to the sockets, and copies of the files.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from jupyter_gpu_node.shares.server import paths
from jupyter_gpu_node.shares.server.store import ShareEntry, ShareStore

MAX_BYTES = 64 * 1024
"""Limit for the file of a share."""


class PodStore(ShareStore):
    """The store that writes a share's file for every container of its pod.

    ``others``: the pod's further directories.
    """

    def __init__(self, state: Path, others: Callable[[str], Sequence[Path]]) -> None:
        super().__init__(state)
        self._others = others

    def write(self, entries: Iterable[ShareEntry]) -> bool:
        """Write the own copy of each entry and the copies of its pod; return whether all could be written."""
        found = tuple(entries)
        public = (entry for entry in found if entry.public)
        more = [replace(entry, directory=other, own=False) for entry in public for other in self._others(entry.pod)]
        return super().write((*found, *more))


def withdraw(directories: Iterable[Path], gpus: Collection[str]) -> None:
    """Remove everything these directories show of shares but those of ``gpus``. Blocks; raises `OSError`.

    Call it before another pod gets such a GPU: one that had all of it goes on without a server while that socket is
    there.
    """
    names = {name for gpu in gpus for name in (paths.socket_name(gpu), paths.file_name(gpu))}
    for directory in directories:
        with paths.opened(directory) as folder:
            _only(folder, names)


def show(first: Path, others: Sequence[Path], gpus: Collection[str]) -> None:
    """Have the ``others`` show the shares of ``gpus`` as the first does, and no more. Blocks; raises `OSError`.

    A file may have been written while its share was removed: it is removed here.
    """
    withdraw((first, *others), gpus)
    with paths.opened(first) as folder:
        for other in others:
            with paths.opened(other) as copy:
                for gpu in gpus:
                    _linked(folder, copy, paths.socket_name(gpu))
                    _copied(folder, copy, paths.file_name(gpu))


def clear(directory: Path) -> None:
    """Clear the directory of a slot that no pod has any more. Raises `OSError`."""
    if (directory / paths.FOLDER).is_dir():
        with paths.opened(directory) as folder:
            _only(folder, ())
        (directory / paths.FOLDER).rmdir()


def _only(folder: int, names: Collection[str]) -> None:
    """Remove the files of an earlier pod, or of a share that is gone. Drafts of files are none of ours."""
    for name in os.listdir(folder):
        if name not in names and (not names or not name.startswith(".")):
            paths.discard(folder, name)


def _linked(source: int, target: int, name: str) -> None:
    """Link the same socket, also after the server made it anew."""
    try:
        wanted = os.stat(name, dir_fd=source, follow_symlinks=False)
    except FileNotFoundError:  # it could not be made; that is tried again
        paths.discard(target, name)
        return
    with contextlib.suppress(FileNotFoundError):
        known = os.stat(name, dir_fd=target, follow_symlinks=False)
        if (known.st_dev, known.st_ino) == (wanted.st_dev, wanted.st_ino):
            return
    draft = f".{name}.new"
    paths.discard(target, draft)
    os.link(name, draft, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
    os.rename(draft, name, src_dir_fd=target, dst_dir_fd=target)


def _copied(source: int, target: int, name: str) -> None:
    """Copy a file until it is written anew: the file of a share at rest is not rewritten for a while."""
    with contextlib.suppress(FileNotFoundError, FileExistsError):  # it is not there yet, or written at this moment
        if name not in os.listdir(target):
            paths.replace(target, name, paths.read(source, name, MAX_BYTES))
