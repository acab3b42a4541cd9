"""The directories of slots on the host, which their containers see as ``/run/jupyter-gpu``."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from jupyter_gpu_node.kubelet.rules import allocation

from . import pod_socket, slot_shares


def make(path: Path) -> None:
    """Make a slot's directory, with a place for each of the real driver's files: all may enter, only root may write."""
    files = _driver(path)
    for folder in (path, files[0].parent):
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
    for file in files:
        file.touch(0o644)


def remove(path: Path) -> None:
    """Remove a slot's directory. Raises `OSError` if it is not ours, or not empty."""
    slot_shares.clear(path)
    files = _driver(path)
    for file in (path / pod_socket.NAME, *files):
        file.unlink(missing_ok=True)
    if files[0].parent.is_dir():
        files[0].parent.rmdir()
    path.rmdir()


def _driver(path: Path) -> tuple[Path, ...]:
    real = (allocation.REAL_DRIVER, allocation.REAL_NVML)
    return tuple(path / PurePosixPath(one).relative_to(allocation.SOCKET_DIRECTORY) for one in real)
