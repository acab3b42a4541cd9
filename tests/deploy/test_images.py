"""The product's own images, built from this working tree."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.deploy import product
from tests.deploy.archives import together

pytestmark = [pytest.mark.root, pytest.mark.cluster, pytest.mark.timeout(900)]
MEGABYTE = 1024**2


def described(archive: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return for each image of a docker-archive its entry in the list, and its configuration."""
    with tarfile.open(archive) as files:

        def read(name: str) -> Any:
            content = files.extractfile(name)
            assert content is not None
            return json.load(content)

        return [(image, read(image["Config"])) for image in read("manifest.json")]


@pytest.mark.parametrize(
    ("name", "user", "runs", "megabytes"),
    [
        ("node", "", ["python", "-m", "jupyter_gpu_node"], 250),
        ("scheduler", "1000:1000", ["python", "-m", "jupyter_gpu_scheduler"], 250),
        ("hub", "1000:1000", ["python", "-m", "jupyter_gpu_hub"], 300),
        ("notebook", "1000:100", ["jupyter", "lab", "--ip=0.0.0.0", "--no-browser"], 600),
        ("kube-scheduler", "65532:65532", ["/usr/local/bin/kube-scheduler"], 100),
    ],
)
def test_image_is_small_and_runs_as_it_should(name: str, user: str, runs: list[str], megabytes: int) -> None:
    """Only the node plugin runs as root, and the chart drops nearly all of its rights."""
    image = product.images(name)[name]
    ((listed, configuration),) = described(image.archive)
    assert listed["RepoTags"] == [image.reference]
    config = configuration["config"]
    assert config.get("User", "") == user
    assert (config.get("Entrypoint") or config["Cmd"]) == runs
    assert image.archive.stat().st_size < megabytes * MEGABYTE


def test_programs_share_all_big_layers() -> None:
    """Scheduler and node plugin together are hardly larger than one of them."""
    found = product.images("node", "scheduler")
    archive = together([found["node"].archive, found["scheduler"].archive])
    images = described(archive)
    assert [listed["RepoTags"] for listed, _ in images] == [[found["node"].reference], [found["scheduler"].reference]]
    assert archive.stat().st_size < found["node"].archive.stat().st_size + 10 * MEGABYTE


def test_same_inputs_are_not_built_again() -> None:
    """The second time returns the same file."""
    first = product.images("node")["node"]
    made = first.archive.stat().st_ino
    product.images.cache_clear()
    second = product.images("node")["node"]
    assert (second.reference, second.archive.stat().st_ino) == (first.reference, made)
