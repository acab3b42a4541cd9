"""Texts name only what can be installed: files of a release, never a name on the package index."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KINDS = (".md", ".py", ".ts", ".tsx", ".mjs", ".sh", ".txt", ".tpl", ".yaml", ".ipynb", ".json", "Containerfile")
INSTALLS = re.compile(r"(?:\bpip3?|\buv|\bconda|\bmamba)\s+(?:install|add)\b(?P<words>[^\n]*)")
NAME = re.compile(r"[\s'\"`]jupyter[-_.]gpu(?:\[[^\]]*\])?(?=[\s'\"`.,;:)]|$)(?!\.whl)")
"""Our distribution by its name, which no index knows; a file's name goes on."""


def texts() -> Iterator[tuple[str, str]]:
    """Return path and text of everything that people may read or see."""
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines():
        path = ROOT / name
        told = name.endswith(KINDS) or name.startswith("scripts/")
        if told and path.is_file() and path != Path(__file__) and name != "CHANGELOG.md":
            yield name, path.read_text()


def misleading(text: str) -> list[str]:
    """Return the parts that tell people to install our distribution by its name."""
    found = [match[0] for match in INSTALLS.finditer(text) if NAME.search(match["words"])]
    return found + re.findall(r"jupyter-gpu\[[a-z]+\]", text)


def test_no_text_installs_a_name_that_no_index_has() -> None:
    """Errors, panels, comments and guides name the wheel, which a release has."""
    found = {name: misleading(text) for name, text in texts()}
    assert len(found) > 300
    assert {name: parts for name, parts in found.items() if parts} == {}


@pytest.mark.parametrize(
    "text",
    [
        "pip install jupyter-gpu",
        "`pip install -U jupyterlab jupyter_gpu`",
        "'pip install jupyter-gpu', see",
        "uv add jupyter-gpu",
        "Install jupyter-gpu[kubernetes].",
    ],
)
def test_misleading_text_is_found(text: str) -> None:
    """It is found in any spelling."""
    assert misleading(text)


@pytest.mark.parametrize("text", ["pip install dist/jupyter_gpu-*.whl", "pip uninstall jupyter-gpu", "pip install ."])
def test_other_texts_are_left_alone(text: str) -> None:
    """Files may be installed, and packages removed."""
    assert not misleading(text)


def test_images_are_our_own_or_examples() -> None:
    """Every image of ours that a text or a default names is an example's, or of this machine."""
    named = re.compile(r"([\w.-]+(?::\d+)?/[\w./-]*?)(?:node|scheduler|notebook|kube-scheduler):(?:\d|v\d|test|\{\{)")
    places = {place for name, text in texts() if not name.startswith("tests/") for place in named.findall(text)}
    assert places <= {"registry.example/gpu/", "registry.k8s.io/", "localhost/jupyter-gpu/", "example.test/"}
    assert "registry.example/gpu/" in places
