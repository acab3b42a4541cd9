"""Merges docker-archives, so that layers that images share are read and unpacked once."""

import hashlib
import json
import os
import tarfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

MANIFEST = "manifest.json"


def together(archives: Sequence[Path]) -> Path:
    """Return one archive of all their images, in the folder of the first; it is made once."""
    if len(archives) == 1:
        return archives[0]
    key = hashlib.sha256("\0".join(archive.name for archive in archives).encode()).hexdigest()[:16]
    path = archives[0].parent / "together" / f"{key}.tar"
    if not path.is_file():
        path.parent.mkdir(exist_ok=True)
        new = path.with_suffix(f".{os.getpid()}")
        try:
            merge(archives, new)
            new.rename(path)
        finally:
            new.unlink(missing_ok=True)
        for old in path.parent.glob("*.tar"):
            if old != path:
                old.unlink(missing_ok=True)
    return path


def merge(archives: Sequence[Path], path: Path) -> None:
    """Write every file once, as they are named by their content, and one list of images."""
    images: list[object] = []
    seen: set[str] = set()
    with tarfile.open(path, "w") as merged:
        for archive in archives:
            with tarfile.open(archive) as one:
                for member in one:
                    content = one.extractfile(member) if member.isfile() else None
                    if member.name == MANIFEST:
                        assert content is not None
                        images += json.load(content)
                    elif member.name != "repositories" and member.name not in seen:
                        seen.add(member.name)
                        merged.addfile(member, content)
        text = json.dumps(images).encode()
        described = tarfile.TarInfo(MANIFEST)
        described.size = len(text)
        merged.addfile(described, BytesIO(text))
