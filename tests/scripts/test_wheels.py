"""Wheels of the images."""

from __future__ import annotations

import pytest
from packaging.requirements import Requirement

from scripts.lib import wheels


@pytest.mark.parametrize(
    ("kind", "needed", "absent"),
    [
        ("lab", {"jupyterlab", "kubernetes", "cloudpickle", "ipykernel"}, {"grpcio"}),
        ("programs", {"grpcio", "kubernetes"}, {"jupyterlab", "cloudpickle"}),
        ("hub", {"jupyterhub"}, {"cloudpickle", "grpcio"}),
    ],
)
def test_images_have_what_they_need(kind: str, needed: set[str], absent: set[str]) -> None:
    """A notebook can run code in a worker, which is of the same image; the others have nothing of that."""
    names = {Requirement(text).name for text in wheels.requirements(kind)}
    assert needed <= names
    assert not absent & names
