"""The programs that Kubernetes is made of: built from source once, by the Go module beside this package.

Taken from the folder in KUBEBUILDER_ASSETS where that is set (the usual way to bring prebuilt ones), else from a cache
in the user's home. The versions are those of `go.mod`.
"""

import fcntl
import hashlib
import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.testbed.commands import ClusterError, run

MODULE = Path(__file__).parents[1]
"""The folder of `go.mod`."""

PACKAGES = {
    "etcd": "./etcd",
    "helm": "helm.sh/helm/v3/cmd/helm",
    **{
        name: f"k8s.io/kubernetes/cmd/{name}"
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl")
    },
}
GO = (1, 21)
"""The oldest Go that fetches the one which `go.mod` names."""
BUILD_SECONDS = 3600
ENVIRONMENT = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "auto", "GOFLAGS": "-mod=readonly"}

Progress = Callable[[str], None]


def path(name: str) -> Path:
    """Return the path of the program, built if it is missing. Raises ClusterError."""
    return _found(name) or _build((name,), _to_standard_error)[name]


def ensure(names: Sequence[str] = tuple(PACKAGES), progress: Progress | None = None) -> dict[str, Path]:
    """All these programs, what is missing is built: minutes, when nothing was ever built. Raises ClusterError."""
    missing = [name for name in names if _found(name) is None]
    built = _build(missing, progress or _to_standard_error) if missing else {}
    return {name: built.get(name) or _found(name) or cache() / name for name in names}


def missing() -> tuple[str, ...]:
    """The programs that would have to be built."""
    return tuple(name for name in PACKAGES if _found(name) is None)


def cache() -> Path:
    """Folder of what is built from these very sources on this kind of machine."""
    digest = hashlib.sha256(platform.machine().encode())
    for name in ("go.mod", "go.sum", "etcd/main.go"):
        digest.update((MODULE / name).read_bytes())
    return home() / "bin" / digest.hexdigest()[:16]


def home() -> Path:
    """Folder of everything that is made once and kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jupyter-gpu"


def version() -> str:
    """Return the version of Kubernetes, such as v1.34.4."""
    found = re.search(r"k8s\.io/kubernetes (v[\d.]+)", (MODULE / "go.mod").read_text())
    assert found is not None
    return found[1]


def _found(name: str) -> Path | None:
    brought = os.environ.get("KUBEBUILDER_ASSETS")
    folders = [Path(brought)] if brought else []
    for folder in [*folders, cache()]:
        if (folder / name).is_file() and os.access(folder / name, os.X_OK):
            return folder / name
    return None


def _build(names: Sequence[str], progress: Progress) -> dict[str, Path]:
    """Build them all at once: while one is linked, which uses one processor, others are compiled.

    Built aside and put in place at once, so what lies in the cache is whole. An interrupted build goes on from Go's own
    cache.
    """
    _check_go()
    with _alone(progress):
        wanted = [name for name in names if not (cache() / name).exists()]  # unless another process built them
        if wanted:
            progress(f"Building {', '.join(wanted)} {version()}… (once; minutes on a small machine)")
            started = time.monotonic()
            with tempfile.TemporaryDirectory(dir=cache(), prefix=".building-") as scratch:
                made = Path(scratch)
                words = ("go", "build", "-trimpath", "-ldflags", _stamps(), "-o", f"{made}/")
                packages = (PACKAGES[name] for name in wanted)
                run(*words, *packages, cwd=MODULE, seconds=BUILD_SECONDS, environment=ENVIRONMENT)
                for name in wanted:
                    (made / name).replace(cache() / name)
            progress(f"Built in {time.monotonic() - started:.0f} s")
    return {name: cache() / name for name in names}


def _stamps() -> str:
    """Return linker flags that write the version into the programs of Kubernetes, without symbols for debuggers."""
    package = "k8s.io/component-base/version"
    major, minor = version().removeprefix("v").split(".")[:2]
    stamps = {"gitVersion": version(), "gitMajor": major, "gitMinor": minor}
    return " ".join(["-s -w", *(f"-X {package}.{key}={value}" for key, value in stamps.items())])


def _check_go() -> None:
    how = "Install Go 1.24 or newer (https://go.dev/dl), or set KUBEBUILDER_ASSETS to a folder that has the programs."
    if shutil.which("go") is None:
        raise ClusterError(f"Kubernetes is built from source here, and Go is not installed. {how}")
    text = run("go", "env", "GOVERSION").strip()
    if tuple(int(part) for part in re.findall(r"\d+", text)[:2]) < GO:
        raise ClusterError(f"Kubernetes is built from source here, and this machine's Go ({text}) is too old. {how}")


@contextmanager
def _alone(progress: Progress) -> Iterator[None]:
    """One builder at a time: two would only be slower."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("Waiting for another build of the same programs…")
            fcntl.flock(lock, fcntl.LOCK_EX)
        for left in cache().glob(".building-*"):
            shutil.rmtree(left, ignore_errors=True)  # of a build that was killed
        yield


def _to_standard_error(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
