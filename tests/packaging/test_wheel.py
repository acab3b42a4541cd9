"""The wheel as a user gets it: what is in it, and that it works on a machine without Node.js."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.lib.lab import Lab, running

ROOT = Path(__file__).parents[2]
WHEELS = ROOT / ".cache" / "wheelhouse"

pytestmark = pytest.mark.timeout(600)


def sh(command: str, **environment: str) -> str:
    """Run a shell command in the repository and return its output; an error contains all of it."""
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def dist() -> Path:
    """Run scripts/build; return the folder of the result."""
    sh("scripts/build")
    return ROOT / "dist"


@pytest.fixture(scope="session")
def wheel(dist: Path) -> Path:
    """Return the wheel."""
    (found,) = dist.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def clean(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create an environment with the wheel and JupyterLab; return its bin folder, the only one on its PATH."""
    sh(". scripts/lib/setup.sh && prepare wheelhouse")
    venv = tmp_path_factory.mktemp("clean")
    sh(f"{sys.executable} -m venv --without-pip {venv}")
    sh(
        f"offline='--no-index --find-links {WHEELS}'; "
        f"{sys.executable} -m uv pip install --python {venv}/bin/python $offline jupyterlab && "
        f"{sys.executable} -m pip --python {venv}/bin/python install $offline --no-compile '{wheel}'"
    )
    return venv / "bin"


def jupyter(clean: Path, *words: str) -> str:
    """Return the output of a jupyter command of the clean environment, without colours, with its standard error."""
    done = subprocess.run(
        [clean / "jupyter", *words], env={"PATH": str(clean), "HOME": "/nonexistent"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return re.sub(r"\x1b\[\d*m", "", done.stdout + done.stderr)


def test_wheel_has_all_parts_and_nothing_else(wheel: Path) -> None:
    """It has three typed packages, schemas and JavaScript, the prebuilt extension and the server configuration."""
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
    data = next(name.split("/")[0] for name in names if ".data/" in name)
    share = f"{data}/data/share/jupyter/labextensions/jupyter-gpu"
    assert names >= {
        "jupyter_gpu/__init__.py",
        "jupyter_gpu/_version.py",
        "jupyter_gpu/py.typed",
        "jupyter_gpu/kernel/widget/page.css",
        "jupyter_gpu/kernel/widget/page.js",
        "jupyter_gpu_hub/web/static/page.js",
        "jupyter_gpu_hub/web/static/style.css",
        "jupyter_gpu_hub/web/static/theme.js",
        "jupyter_gpu_scheduler/rules/queue/decide.py",
        "jupyter_gpu_scheduler/py.typed",
        "jupyter_gpu_node/devices/rules/device_rules.py",
        "jupyter_gpu_node/py.typed",
        f"{data}/data/etc/jupyter/jupyter_server_config.d/jupyter_gpu.json",
        f"{share}/install.json",
        f"{share}/package.json",
        f"{share}/static/style.js",
    }
    assert any(name.startswith("jupyter_gpu/server/events/") and name.endswith(".json") for name in names)
    assert any(name.startswith(f"{share}/static/remoteEntry.") for name in names)
    assert any(name.startswith(f"{share}/schemas/jupyter-gpu/") for name in names)
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"jupyter_gpu", "jupyter_gpu_scheduler", "jupyter_gpu_node", "jupyter_gpu_hub", data}
    assert not [name for name in names if "node_modules" in name or name.endswith((".map", ".pyc", ".tsbuildinfo"))]


def test_wheel_has_every_file_of_the_packages(wheel: Path) -> None:
    """No file that git knows in a package is missing."""
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
    for folder, package in (
        (".", "jupyter_gpu"),
        ("scheduler", "jupyter_gpu_scheduler"),
        ("node_plugin", "jupyter_gpu_node"),
        ("hub", "jupyter_gpu_hub"),
    ):
        listed = sh(f"cd {folder} && git ls-files {package}").splitlines()
        missing = {
            name for name in listed if "/jupyter-config/" not in name and (ROOT / folder / name).exists()
        } - names
        assert not missing


def unpacked(dist: Path, where: Path) -> Path:
    """Unpack the source distribution; return its folder."""
    (source,) = dist.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(where, filter="data")
    return where / source.name.removesuffix(".tar.gz")


def test_wheel_has_the_gate_for_its_platform(wheel: Path, tmp_path: Path) -> None:
    """Both libraries in both forms need no newer C library than the name of the wheel tells."""
    machine = platform.machine()
    assert wheel.name.endswith(f"-py3-none-manylinux_2_17_{machine}.manylinux2014_{machine}.whl")
    with zipfile.ZipFile(wheel) as file:
        (about,) = (name for name in file.namelist() if name.endswith(".dist-info/WHEEL"))
        assert "Root-Is-Purelib: false" in file.read(about).decode()
        for name in ("local/libcuda.so.1", "shim/libcuda.so.1", "local/libnvidia-ml.so.1", "shim/libnvidia-ml.so.1"):
            library = file.extract(f"jupyter_gpu_node/lib/{name}", tmp_path)
            needs = re.findall(r"GLIBC_([0-9.]+)", sh(f"objdump -T {library}"))
            assert needs
            assert max(tuple(map(int, need.split("."))) for need in needs) <= (2, 17)


def test_source_distribution_builds_the_same_wheel_without_node(dist: Path, wheel: Path, tmp_path: Path) -> None:
    """It carries the built extension: building from it needs a C compiler, and no Node.js."""
    folder = unpacked(dist, tmp_path)
    (tmp_path / "tools").mkdir()
    for name in ("gcc", "as", "ld"):
        (tmp_path / "tools" / name).symlink_to(str(shutil.which(name)))
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path / "out", folder],
        env={"PATH": str(tmp_path / "tools"), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (again,) = (tmp_path / "out").glob("*.whl")
    assert again.name == wheel.name
    with zipfile.ZipFile(again) as one, zipfile.ZipFile(wheel) as other:
        assert {i.filename: i.CRC for i in one.infolist()} == {i.filename: i.CRC for i in other.infolist()}


def where(python: Path) -> list[Path | None]:
    """Return the libraries that an installation finds."""
    code = "from jupyter_gpu_node.shares import gate_files as g; print(g.local() or '', g.shim() or '', sep='\\n')"
    said = subprocess.run([python, "-c", code], env={}, capture_output=True, text=True, check=True, cwd="/").stdout
    return [Path(line) if line else None for line in said.split("\n")[:2]]


def test_installed_gate_is_found_and_harmless(clean: Path, tmp_path: Path) -> None:
    """Programs without a GPU are unaffected, with this C library and with musl, if there is a compiler for it."""
    local, shim = where(clean / "python")
    assert local is not None
    assert shim is not None
    assert local.is_relative_to(clean.parent)
    source, programs = tmp_path / "m.c", [["/bin/true"], ["/bin/sh", "-c", "exec /bin/echo 42"]]
    source.write_text('#include <stdio.h>\nint main(void) { return puts("42") < 0; }\n')
    if musl := shutil.which("musl-gcc"):
        sh(f"{musl} {source} -o {tmp_path}/m")
        programs.append([f"{tmp_path}/m"])
    for program in programs:
        done = subprocess.run(
            program,
            env={"LD_LIBRARY_PATH": str(local.parent), "JUPYTER_GPU_GATE": "/nonexistent"},
            capture_output=True,
            check=True,
        )
        assert (done.stdout, done.stderr) == (b"" if program == ["/bin/true"] else b"42\n", b"")


def test_editable_installation_has_the_gate(dist: Path, tmp_path: Path) -> None:
    """`pip install -e` builds it; without a compiler it succeeds too, and only the gate is missing."""
    folder = unpacked(dist, tmp_path)
    sh(f"{sys.executable} -m venv --without-pip {tmp_path}/venv")
    python, lib = tmp_path / "venv" / "bin" / "python", folder / "node_plugin" / "jupyter_gpu_node" / "lib"

    def install(**environment: str) -> None:
        words = "--no-index --no-deps --no-build-isolation --ignore-installed"
        tools = {"PYTHONPATH": sysconfig.get_path("purelib"), "SKIP_JUPYTER_BUILDER": "1"}
        sh(f"{sys.executable} -m pip --python {python} install {words} -e {folder}", **tools, **environment)

    install()
    assert where(python) == [lib / "local" / "libcuda.so.1", lib / "shim" / "libcuda.so.1"]
    install(CC="/nonexistent/cc")
    assert where(python) == [None, None]


def test_both_extensions_are_enabled(clean: Path) -> None:
    """The checks that the documentation recommends after the installation pass."""
    server = jupyter(clean, "server", "extension", "list")
    assert re.search(r"^ *jupyter_gpu enabled\n.*\n *jupyter_gpu \d\S* OK$", server, re.MULTILINE), server
    line = next(line for line in jupyter(clean, "labextension", "list").splitlines() if "jupyter-gpu v" in line)
    assert "enabled" in line
    assert "OK" in line


@pytest.fixture(scope="module")
def lab(clean: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Start `jupyter lab` of the clean environment with two simulated GPUs."""
    folder = tmp_path_factory.mktemp("lab")
    options = ("--GpuExtension.simulated_gpus=2", f"--GpuExtension.state_dir={folder}/gpu")
    with running(folder, *options, command=[clean / "jupyter", "lab"], environment={"PATH": str(clean)}) as server:
        yield server


def test_page_loads_the_extension(lab: Lab) -> None:
    """JupyterLab tells the browser where the extension is, and it is there."""
    config = json.loads(
        lab.fetch("lab").decode().split('id="jupyter-config-data" type="application/json">')[1].split("<")[0]
    )
    (ours,) = (found for found in config["federated_extensions"] if found["name"] == "jupyter-gpu")
    base = f"lab/extensions/{ours['name']}"
    assert b"jupyter-gpu" in lab.fetch(f"{base}/{ours['load']}")
    assert lab.json(f"{base}/package.json")["version"]


def test_server_answers(lab: Lab) -> None:
    """A request through the installed server gives GPUs."""
    view = lab.json("jupyter-gpu/api/v1/request", "PUT", {"gpus": 1})
    assert view["total"] == 2000
    assert view["amounts"]["attached"] == 1000
    assert view["simulated"] is True


def test_share_is_served(lab: Lab) -> None:
    """A share of one GPU works: the arbiter is a process of its own, and starts with what the server has."""
    assert lab.json("jupyter-gpu/api/v1/request", "PUT", {"gpus": 0.5})["amounts"]["attached"] == 500
    end = time.monotonic() + 60
    while not lab.json("jupyter-gpu/api/v1/sample").get("shares"):
        assert time.monotonic() < end, lab.json("jupyter-gpu/api/v1/status")
        time.sleep(0.1)
    conditions = lab.json("jupyter-gpu/api/v1/status")["conditions"]
    assert [condition["type"] for condition in conditions] == ["Simulated"]


def test_command_is_installed(clean: Path) -> None:
    """`jupyter gpu` is found, and prints its help."""
    assert "resize" in jupyter(clean, "gpu", "--help")


def test_node_command_is_installed(clean: Path) -> None:
    """`jupyter-gpu-node top` needs none of the node plugin's own dependencies, such as the Kubernetes client."""
    command = [str(clean / "jupyter-gpu-node"), "top", "--once", "--state", str(clean)]
    done = subprocess.run(command, env={"PATH": str(clean)}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "No GPU is shared out on this machine now." in done.stdout
