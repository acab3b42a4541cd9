"""Build the product's container images from nothing: a Debian base, wheels, this working tree.

Everything lies below the user's cache folder, named by the hash of what it was made from; buildah's storage too. Only
the last small layer of an image depends on the working tree.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from scripts.lib import wheels
from scripts.lib.wheels import ROOT, run
from tests.cluster.testbed import binaries

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jupyter-gpu" / "images"
REGISTRY = "localhost/jupyter-gpu"
LIMIT = 16384
"""Limits of open files and processes of a build."""
KEEP = 2
"""Number of archives to keep of each image."""

SUITE = "bookworm"
PACKAGES = ("python3",)
NOT_NEEDED = ("doc", "man", "info", "locale", "lintian", "/var/cache/apt", "/var/lib/apt/lists", "/var/log")
"""Paths removed from the base image: absolute, or below /usr/share."""

KINDS = {"node": "programs", "scheduler": "programs", "hub": "hub", "notebook": "lab", "kube-scheduler": ""}
"""Kind of wheels of each image; empty: none."""

_started = time.monotonic()


def say(what: str) -> None:
    """Print progress to standard error; standard output has the result alone."""
    print(f"[images {time.monotonic() - _started:5.1f} s] {what}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Image:
    """A built image."""

    name: str
    reference: str
    archive: Path


def buildah(*words: str | Path) -> str:
    """Run buildah on our own storage, without the rights that container namespaces need."""
    storage = ("--root", str(CACHE / "storage"), "--runroot", str(CACHE / "run"))
    environment = {**os.environ, "BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": "overlay"}
    return run(["buildah", *storage, *(str(word) for word in words)], environment)


@cache
def base() -> str:
    """Return a small Debian with Python: made by debootstrap once, then from an OCI archive."""
    key = _digest(SUITE, *PACKAGES, *NOT_NEEDED)
    reference, archive = f"{REGISTRY}/base:{key}", CACHE / key
    if _stored(reference):
        return reference
    if not archive.is_file():
        say("making the base image with debootstrap (about a minute)")
        _bootstrap(archive)
    say("loading the base image")
    identity = buildah("pull", "--quiet", f"oci-archive:{archive}").strip()
    buildah("tag", identity, reference)
    return reference


def _bootstrap(archive: Path) -> None:
    with tempfile.TemporaryDirectory(dir=CACHE) as work:
        tree = Path(work) / "tree"
        run(["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(tree), *_mirror()])
        for name in NOT_NEEDED:
            shutil.rmtree(tree / str(Path("/usr/share", name)).lstrip("/"), ignore_errors=True)
        (tree / "var/log").mkdir()
        container = buildah("from", "scratch").strip()
        try:
            buildah("add", "--quiet", container, tree, "/")
            buildah("config", "--env", "LANG=C.UTF-8", "--cmd", "/bin/bash", container)
            buildah("commit", "--quiet", container, f"oci-archive:{archive}.new")
        finally:
            buildah("rm", container)
    Path(f"{archive}.new").rename(archive)


def _mirror() -> list[str]:
    """Return the mirror of this machine's own Debian packages; debootstrap's default unless this is Debian 12."""
    words = ["indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages"]
    known = (line.split() for line in run(["apt-get", *words]).splitlines())
    return [uri for uri, *rest in known if rest == [SUITE, "main"]][:1]


def build(name: str) -> Image:
    """Build one image as a docker-archive."""
    containerfile = ROOT / "deploy" / "images" / name / "Containerfile"
    kind = KINDS[name]
    house = wheels.house(kind, CACHE, say) if kind else None
    product = _product() if kind else binaries.path(name)
    key = _digest(containerfile.read_text(), *((base(), house.name) if house else ()), _content(product))
    image = Image(name, f"{REGISTRY}/{name}:{key}", CACHE / "archives" / f"{name}-{key}.tar")
    if image.archive.is_file():
        image.archive.touch()
        return image
    say(f"building {name}")
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        context = Path(folder)
        if house:
            shutil.copytree(house, context / "wheels", copy_function=os.link)
            (context / "product").mkdir()
            shutil.copy(product, context / "product")
        else:
            shutil.copy(product, context / name)
        words = ["--build-arg", f"PRODUCT={_content(product)}"]
        words += ["--build-arg", f"BASE={base()}", "--build-arg", f"WHEELS={house.name}"] if house else []
        for kind in ("nofile", "nproc"):  # buildah asks for more than a confined root may have; less may everybody
            words += ["--ulimit", f"{kind}={LIMIT}:{LIMIT}"]
        words += ["--quiet", "--layers", "--pull-never", "--tag", image.reference, "--file", str(containerfile)]
        buildah("bud", *words, context)
    say(f"writing {image.archive.name}")
    image.archive.parent.mkdir(exist_ok=True)
    new = image.archive.with_suffix(".new")
    new.unlink(missing_ok=True)
    buildah("push", "--quiet", image.reference, f"docker-archive:{new}:{image.reference}")
    new.rename(image.archive)
    _prune(name)
    return image


@cache
def _product() -> Path:
    return wheels.product(CACHE, say)


def _prune(name: str) -> None:
    """Remove archives and stored images of older inputs."""
    archives = sorted((CACHE / "archives").glob(f"{name}-????????????????.tar"), key=lambda path: path.stat().st_mtime)
    for old in archives[:-KEEP]:
        old.unlink()
        buildah("rmi", "--force", f"{REGISTRY}/{name}:{old.stem.removeprefix(f'{name}-')}")


def _stored(reference: str) -> bool:
    return reference in buildah("images", "--format", "{{.Name}}:{{.Tag}}").split()


def _content(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


@contextmanager
def alone() -> Iterator[None]:
    """Run one build at a time on this machine, as builds share downloads and storage."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another build is running; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="scripts/images", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: base {' '.join(KINDS)}; none: all")
    names = parser.parse_args().names or list(KINDS)
    for name in names:
        if name != "base" and name not in KINDS:
            parser.error(f"there is no image {name!r}; there are: base {' '.join(KINDS)}")
    with alone():
        for name in names:
            if name == "base":
                print("base", base(), flush=True)
            else:
                image = build(name)
                print(name, image.reference, image.archive, flush=True)
    say("done")


if __name__ == "__main__":
    main()
