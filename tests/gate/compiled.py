"""Keeps what a compiler made, so that the many tests that need the same library compile it once."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

CACHE = Path(__file__).parents[2] / ".cache" / "compiled"
KEPT = 86_400
"""Seconds for which a library that no test asks for is kept."""


def compiled(output: Path, sources: Path, words: tuple[str, ...], make: Callable[[Path], None]) -> None:
    """Write ``output``: what ``make`` makes at the path it gets, or a copy of what it made before.

    The same ``words``, files below ``sources`` and compiler give the same library.
    """
    words = (*words, _compiler(os.environ.get("CC") or "gcc"), *_contents(sources))
    kept = CACHE / hashlib.sha256("\0".join(words).encode()).hexdigest()
    with _locked(kept.with_suffix(".lock")):
        if not kept.exists():
            _forget_old()
            new = kept.with_suffix(".new")
            make(new)
            new.rename(kept)
        os.utime(kept)
        output.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(kept, output)
        output.chmod(0o755)


@functools.cache
def _compiler(name: str) -> str:
    done = subprocess.run(f"{name} --version", shell=True, capture_output=True, text=True, check=True)
    return done.stdout


def _contents(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield str(path)
            yield hashlib.sha256(path.read_bytes()).hexdigest()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Another worker that needs the same library waits for it rather than compile it, too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _forget_old() -> None:
    for path in CACHE.iterdir():
        if not path.suffix and path.stat().st_mtime < time.time() - KEPT:
            path.unlink(missing_ok=True)
