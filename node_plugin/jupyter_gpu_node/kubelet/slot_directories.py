"""The directories of slots on the host, which their containers see as ``/run/jupyter-gpu``."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from jupyter_gpu_node.kubelet.rules import allocation

from . import pod_socket, slot_shares


def make(path: Path) -> None:
    """Make a slot's directory, with a place for the real driver's file: all may enter, only root may write."""
    inner = _driver(path)
    for folder in (path, inner.parent):
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
    inner.touch(0o644)


def remove(path: Path) -> None:
    """Remove a slot's directory. Raises `OSError` if it is not ours, or not empty."""
    slot_shares.clear(path)
    inner = _driver(path)
    for file in (path / pod_socket.NAME, inner):
        file.unlink(missing_ok=True)
    if inner.parent.is_dir():
        inner.parent.rmdir()
    path.rmdir()


def _driver(path: Path) -> Path:
    return path / PurePosixPath(allocation.REAL_DRIVER).relative_to(allocation.SOCKET_DIRECTORY)
