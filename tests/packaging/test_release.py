"""scripts/release makes everything that a cluster needs and that the texts name."""

import json
import os
import re
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.testbed import binaries
from tests.cluster.testbed.commands import run
from tests.deploy import product

pytestmark = [pytest.mark.root, pytest.mark.cluster, pytest.mark.timeout(900)]
VERSION = json.loads((product.ROOT / "labextension" / "package.json").read_text())["version"]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Make a release without a network, as everything it is made of is there."""
    product.images("node", "scheduler", "hub", "notebook", "kube-scheduler")
    folder = tmp_path_factory.mktemp("release") / "dist"
    words = ["unshare", "--net", "scripts/release", "--into", str(folder)]
    done = subprocess.run(words, cwd=product.ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    yield folder
    for path in folder.iterdir():  # a gigabyte
        path.unlink()


def references(archive: Path) -> list[str]:
    """Return the references of the images of a docker-archive."""
    with tarfile.open(archive) as files:
        content = files.extractfile("manifest.json")
        assert content is not None
        return [reference for image in json.load(content) for reference in image["RepoTags"]]


def test_release_is_complete_and_intact(dist: Path) -> None:
    """It has a wheel, a source distribution, five images and a chart with right checksums, and nothing else."""
    kinds = {re.sub(r"-py3-.*", ".whl", path.name) for path in dist.iterdir()}
    images = {f"jupyter-gpu-{name}-{VERSION}.tar" for name in ("node", "scheduler", "hub", "notebook")}
    images.add(f"jupyter-gpu-kube-scheduler-{binaries.version()}.tar")
    python = {f"jupyter_gpu-{VERSION}.whl", f"jupyter_gpu-{VERSION}.tar.gz"}
    assert kinds == images | python | {f"jupyter-gpu-{VERSION}.tgz", "SHA256SUMS"}
    said = run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=dist)
    assert said.count(": OK") == len(kinds) - 1


def test_chart_asks_for_the_released_images(dist: Path) -> None:
    """A cluster finds them if they are loaded into its nodes, or pushed to a registry under their names."""
    helm = (binaries.path("helm"), "template", "jupyter-gpu", dist / f"jupyter-gpu-{VERSION}.tgz")
    hub = "hub.enabled=true,hub.apiUrl=http://hub:8081/hub/api,hub.tokenSecret.name=gpu"
    place = ("--set", f"image.repository=localhost/jupyter-gpu,{hub}", "--kube-version", binaries.version())
    tag = f"localhost/jupyter-gpu/kube-scheduler:{binaries.version()}"
    wanted = set(re.findall(r"image: (\S+)", run(*helm, *place, "--set", f"kubeScheduler.image={tag}")))
    made = {reference for archive in dist.glob("*.tar") for reference in references(archive)}
    assert wanted == made - {f"localhost/jupyter-gpu/notebook:{VERSION}"}
    assert len(made) == 5


def test_wheel_is_the_one_in_the_images(dist: Path) -> None:
    """Every file of the packages is the same, byte for byte, and the gate is there."""
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        wanted = {name: file.read(name) for name in file.namelist() if name.startswith("jupyter_gpu_node/")}
    assert {"shim", "local"} <= {name.split("/")[-2] for name in wanted if name.endswith("/libcuda.so.1")}
    found: dict[str, bytes] = {}
    with tarfile.open(dist / f"jupyter-gpu-node-{VERSION}.tar") as archive:
        for member in archive:
            if member.name.endswith(".tar") and (layer := archive.extractfile(member)):
                with tarfile.open(fileobj=layer) as files:
                    for each in files:
                        name = each.name.partition("site-packages/")[2]
                        if name in wanted and (content := files.extractfile(each)):
                            found[name] = content.read()
    assert found == wanted


def test_commands_in_the_texts_find_their_files(dist: Path) -> None:
    """README and guide install files of dist/ that a release made."""
    text = "".join((product.ROOT / name).read_text() for name in ("README.md", "docs/cluster-guide.md"))
    named = set(re.findall(r"dist/([\w.*-]+(?:whl|tgz|tar))", text))
    assert {"jupyter_gpu-*.whl", f"jupyter-gpu-{VERSION}.tgz"} <= named
    assert [name for name in named if not list(dist.glob(name))] == []
    assert os.access(product.ROOT / "scripts" / "release", os.X_OK)
