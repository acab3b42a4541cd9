"""Make all that a release publishes, in one folder: wheel, source distribution, images, Helm chart, checksums.

The wheel is the very one in the images. The images are those of `scripts/images`, under the chart's names and tags.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path

from scripts.lib import images, wheels
from scripts.lib.wheels import ROOT, run
from tests.cluster.testbed import binaries

CHART = ROOT / "deploy" / "chart" / "jupyter-gpu"
SUMS = "SHA256SUMS"


def version() -> str:
    """Return the version of wheel, images and chart."""
    text = json.loads((ROOT / "labextension" / "package.json").read_text())["version"]
    assert isinstance(text, str)
    return text


def packages(folder: Path) -> None:
    """Build the wheel and the source distribution."""
    images.say("wheel and source distribution")
    shutil.copy(wheels.product(images.CACHE, images.say), folder)
    environment = {**os.environ, "SKIP_JUPYTER_BUILDER": "1"}  # scripts/release has built the front end
    run([sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(folder), str(ROOT)], environment)


def image(name: str, folder: Path) -> None:
    """Write one image as a docker-archive with the tag that the chart asks for; kube-scheduler with Kubernetes' own."""
    tag = version() if images.KINDS[name] else binaries.version()
    built = images.build(name)
    images.say(f"{name}:{tag}")
    rename(built.archive, folder / f"jupyter-gpu-{name}-{tag}.tar", f"{images.REGISTRY}/{name}:{tag}")


def rename(archive: Path, path: Path, reference: str) -> None:
    """Copy a docker-archive under another reference, which is only in its list of images."""
    with tarfile.open(archive) as old, tarfile.open(path, "w") as new:
        for member in old:
            content = old.extractfile(member) if member.isfile() else None
            if member.name == "repositories":  # of Docker before 1.10: the same once more
                continue
            if member.name == "manifest.json":
                assert content is not None
                (listed,) = json.load(content)
                text = json.dumps([{**listed, "RepoTags": [reference]}]).encode()
                member.size, content = len(text), BytesIO(text)
            new.addfile(member, content)


def chart(folder: Path) -> None:
    """Package the chart."""
    images.say("chart")
    run([str(binaries.path("helm")), "package", str(CHART), "--destination", str(folder)])


def sums(folder: Path) -> None:
    """Write checksums for `sha256sum --check`."""
    lines = []
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {path.name}\n")
    (folder / SUMS).write_text("".join(lines))


def release(place: Path) -> None:
    """Build everything in a new folder, and put it in place when it is complete."""
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".release-") as work:
        folder = Path(work) / "dist"
        folder.mkdir()
        packages(folder)
        for name in images.KINDS:
            image(name, folder)
        chart(folder)
        sums(folder)
        if place.exists():
            shutil.rmtree(place)
        folder.rename(place)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="scripts/release", description=__doc__)
    parser.add_argument("--into", type=Path, default=ROOT / "dist", help="folder that is made anew (dist)")
    place: Path = parser.parse_args().into.resolve()
    with images.alone():
        release(place)
    print(*(f"{path}" for path in sorted(place.iterdir())), sep="\n")


if __name__ == "__main__":
    main()
