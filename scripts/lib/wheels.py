"""Wheels for the images: the versions that this environment is tested with, for the Python of the images' base."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PYTHON = "3.11.2"
"""Python of the base image, Debian 12."""
GLIBC = 36
"""Wheels for glibc 2.x up to this one run on the base image."""

PROGRAMS_NEED = ("tornado", "nvidia-ml-py", "prometheus-client")
"""Dependencies of the whole package that scheduler and node plugin use too; the rest is for notebooks."""
LAB_NEEDS = ("jupyterlab", "jupyterhub")
"""Beside the package: what people look at, and the server that a hub starts. In the versions of the tests."""

KEEP = 4
"""Number of folders to keep of each kind."""

Say = Callable[[str], None]


def requirements(kind: str) -> list[str]:
    """Return the requirements of `programs` (scheduler and node plugin), `hub` (its service) or `lab` (JupyterLab)."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    if kind == "programs":
        common = [text for text in project["dependencies"] if Requirement(text).name in PROGRAMS_NEED]
        return [*common, *_own(extras, "scheduler"), *_own(extras, "node")]
    if kind == "hub":
        common = [text for text in project["dependencies"] if Requirement(text).name in PROGRAMS_NEED]
        return [*common, *_own(extras, "hub")]
    lab = [text for text in extras["test"] if Requirement(text).name in LAB_NEEDS]
    return [*project["dependencies"], *_own(extras, "kubernetes"), *_own(extras, "remote"), *lab]


def _own(extras: dict[str, list[str]], extra: str) -> Iterator[str]:
    """Return the requirements of an extra, including those of extras that it names."""
    for text in extras[extra]:
        requirement = Requirement(text)
        if requirement.name == "jupyter-gpu":
            for name in requirement.extras:
                yield from _own(extras, name)
        else:
            yield text


def constraints(wanted: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the installed versions of the requirements and of all that they need: the tested ones, nothing newer.

    The second: what only the images' Python needs. pip looks at the conditions of the Python that it runs on.
    """
    found: dict[str, str] = {"pip": metadata.version("pip")}
    missing: set[str] = set()
    todo = [Requirement(text) for text in wanted]
    seen: set[tuple[str, str]] = set()
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            missing.add(f"{name}{requirement.specifier}")
            continue
        for extra in ("", *requirement.extras):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            for text in metadata.requires(name) or ():
                needed = Requirement(text)
                if needed.marker is None or needed.marker.evaluate(_environment(extra)):
                    todo.append(needed)
    return sorted(f"{name}<={version}" for name, version in found.items()), sorted(missing)


def _environment(extra: str) -> dict[str, str]:
    return {
        "extra": extra,
        "python_version": PYTHON.rpartition(".")[0],
        "python_full_version": PYTHON,
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "sys_platform": "linux",
        "os_name": "posix",
        "platform_machine": platform.machine(),
    }


def house(kind: str, cache: Path, say: Say) -> Path:
    """Return a folder with the wheels of one kind and pip's, downloaded once for these versions."""
    wanted = [*requirements(kind), "pip"]
    newest, missing = constraints(wanted)
    wanted += missing
    folder = cache / "wheels" / _digest(PYTHON, platform.machine(), *wanted, *newest)
    if not folder.is_dir():
        say(f"downloading about {len(newest)} wheels ({kind})")
        with _new(folder) as new:
            limits = new.with_suffix(".constraints")
            limits.write_text("\n".join(newest))
            try:
                _download(new, limits, wanted)
            finally:
                limits.unlink()
    return folder


def _download(folder: Path, limits: Path, wanted: list[str]) -> None:
    """Download as the base image's Python would, whatever Python runs this."""
    tags = [f"manylinux_2_{minor}_{platform.machine()}" for minor in range(GLIBC, 4, -1)]
    tags += [f"{old}_{platform.machine()}" for old in ("manylinux2014", "manylinux2010", "manylinux1")]
    words = ["--quiet", "--only-binary", ":all:", "--python-version", PYTHON, "--dest", str(folder)]
    words += [word for tag in tags for word in ("--platform", tag)]
    run([sys.executable, "-m", "pip", "download", *words, "--constraint", str(limits), *wanted])


@contextmanager
def _new(folder: Path) -> Iterator[Path]:
    """Make a folder that gets its name when it is complete; remove older ones beside it except the newest."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=folder.parent, prefix="new-"))
    try:
        yield work
        work.chmod(0o755)
        work.rename(folder)
    except BaseException:
        shutil.rmtree(work)
        raise
    for old in sorted(folder.parent.iterdir(), key=lambda path: path.stat().st_mtime)[:-KEEP]:
        shutil.rmtree(old)


def product(cache: Path, say: Say) -> Path:
    """Build the wheel of this working tree once for these sources. The front end must be built already."""
    folder = cache / "product" / _digest(*_sources())
    if not folder.is_dir():
        say("building the wheel of jupyter-gpu")
        with _new(folder) as new:
            environment = {**os.environ, "SKIP_JUPYTER_BUILDER": "1", "JUPYTER_GPU_REQUIRE_GATE": "1"}
            run(
                [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(new), str(ROOT)],
                environment,
            )
    return next(folder.glob("*.whl"))


def _sources() -> Iterator[str]:
    """Yield names and contents of everything in the wheel. The gate is compiled again, so its sources count."""
    packages = ("jupyter_gpu", "scheduler/jupyter_gpu_scheduler", "node_plugin/jupyter_gpu_node", "hub/jupyter_gpu_hub")
    files = [path for folder in packages for path in sorted((ROOT / folder).rglob("*")) if path.is_file()]
    files = [path for path in files if not path.is_relative_to(ROOT / "node_plugin/jupyter_gpu_node/lib")]
    gate = ROOT / "node_plugin/gate"
    files += sorted(path for path in gate.rglob("*") if path.is_file() and not path.is_relative_to(gate / "standin"))
    files += [ROOT / name for name in ("pyproject.toml", "README.md", "LICENSE")]
    files += [ROOT / "labextension" / name for name in ("package.json", "install.json")]
    for path in files:
        if "__pycache__" not in path.parts and path.name != "_version.py":
            yield str(path.relative_to(ROOT))
            yield hashlib.sha256(path.read_bytes()).hexdigest()


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def run(words: list[str], environment: dict[str, str] | None = None) -> str:
    """Return the standard output of a command; an error shows its output."""
    done = subprocess.run(words, check=False, capture_output=True, text=True, env=environment)
    if done.returncode:
        said = re.sub(r"\n{2,}", "\n", f"{done.stdout}\n{done.stderr}".strip())
        raise SystemExit(f"{' '.join(words[:4])} … failed (status {done.returncode}):\n{said[-4000:]}")
    return done.stdout
