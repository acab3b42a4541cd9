"""One cluster with the product installed on it, shared by all tests that look at the whole."""

import itertools
from collections.abc import Iterator

import pytest

from tests.cluster.whole.world import Product, World, installed, world

_numbers = itertools.count(1)


@pytest.fixture(scope="package")
def product() -> Iterator[Product]:
    """Two nodes with four simulated GPUs each; installed by the chart, from the product's own images."""
    with installed() as found:
        yield found


@pytest.fixture
def corner(product: Product) -> Iterator[World]:
    """A namespace of the test's own."""
    with world(product, f"jupyter-gpu-test-{next(_numbers)}") as found:
        yield found
