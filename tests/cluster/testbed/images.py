"""The two images that every node has: the pause container and BusyBox, made of what is on this machine in a second.

An archive is what `docker save` writes, the one format that every tool reads.
"""

import hashlib
import io
import json
import platform
import shutil
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.cluster.testbed import binaries
from tests.cluster.testbed.commands import ClusterError, run
from tests.cluster.testbed.node_config import PAUSE_IMAGE

BUSYBOX_IMAGE = "docker.io/library/busybox:1"
BUILTIN = (PAUSE_IMAGE, BUSYBOX_IMAGE)
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}

Content = bytes | str | None
"""Content of a file, target of a symbolic link, or None for a folder."""


def builtin() -> tuple[Path, ...]:
    """Archives of both images; made once."""
    folder = binaries.home() / "images"
    made = []
    for image, files, command in ((PAUSE_IMAGE, _pause, ["/pause"]), (BUSYBOX_IMAGE, _busybox, ["sh"])):
        sources = (Path(__file__), Path(__file__).with_name("pause.c"))
        digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
        archive = folder / f"{image.rpartition('/')[2].replace(':', '-')}-{digest}.tar"
        if not archive.exists():
            write_archive(archive, image, files(), command)
        made.append(archive)
    return tuple(made)


def write_archive(path: Path, image: str, files: Mapping[str, Content], command: Sequence[str]) -> None:
    """An image of one layer. Files are executable, folders open to all: what is in it is for tests."""
    layer = _tar(files)
    config = {
        "architecture": MACHINES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Cmd": list(command), "Env": ["PATH=/bin:/sbin:/usr/bin:/usr/sbin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        "history": [{"created_by": "jupyter-gpu testbed"}],
    }
    text = json.dumps(config).encode()
    name = f"{hashlib.sha256(text).hexdigest()}.json"
    manifest = [{"Config": name, "RepoTags": [image], "Layers": ["layer.tar"]}]
    whole = _tar({"layer.tar": layer, name: text, "manifest.json": json.dumps(manifest).encode()})
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as scratch:
        scratch.write(whole)
    Path(scratch.name).replace(path)


def static_busybox() -> Path:
    """BusyBox that needs no libraries. Raises ClusterError."""
    for name in ("busybox", "busybox-static"):
        found = shutil.which(name)
        if found and b"/ld-" not in Path(found).read_bytes():
            return Path(found)
    raise ClusterError("A BusyBox that needs no libraries is not installed: the package busybox-static has it.")


def _pause() -> dict[str, Content]:
    source = Path(__file__).with_name("pause.c")
    compiler = shutil.which("musl-gcc") or shutil.which("cc")
    if compiler is None:
        raise ClusterError("A C compiler is not installed: the package musl-tools has one.")
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch, "pause")
        run(compiler, "-Os", "-static", "-s", "-o", made, source)
        return {"pause": made.read_bytes()}


def _busybox() -> dict[str, Content]:
    program = static_busybox()
    files: dict[str, Content] = dict.fromkeys(("bin", "etc", "root", "tmp", "var", "dev", "proc", "sys"))
    files["bin/busybox"] = program.read_bytes()
    files["etc/passwd"] = b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/tmp:/bin/sh\n"
    files["etc/group"] = b"root:x:0:\nnogroup:x:65534:\n"
    for applet in run(program, "--list").split():
        if applet != "busybox":
            files[f"bin/{applet}"] = "busybox"
    return files


def _tar(files: Mapping[str, Content]) -> bytes:
    """Return an archive, with the same bytes for the same files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.mode = 0o755
            if content is None:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            elif isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
            else:
                entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content) if isinstance(content, bytes) else None)
    return buffer.getvalue()
