"""One cluster with the product installed on it, shared by all tests that look at the whole."""

from collections.abc import Iterator

import pytest

from tests.cluster.whole.world import Product, installed


@pytest.fixture(scope="session")
def product() -> Iterator[Product]:
    """Two nodes with four simulated GPUs each; installed by the chart, from the product's own images."""
    with installed() as found:
        yield found
