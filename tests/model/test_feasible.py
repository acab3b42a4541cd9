"""The GPUs that fit a wish; wishes that are refused for good, and the sentences that say so."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpu.model.feasible import fits, groups, refuse
from jupyter_gpu.model.gpu import Gpu
from tests.builders import GIB, gpu, inventory, wish

FOUR = inventory(4)
MIXED = inventory(4, models=["NVIDIA A100-SXM4-80GB", "Tesla T4"], memory=[80, 16])
PAIRS = inventory(4, island=2, switch=1)


@pytest.mark.parametrize(
    ("wished", "fit"),
    [
        ("NVIDIA A100-SXM4-80GB", True),
        ("nvidia a100 sxm4 80gb", True),
        ("a100", True),
        ("A100-SXM4", True),
        ("A10", False),
        ("SXM4 A100", False),
        ("NVIDIA SXM4", False),
        ("A100 40GB", False),
        ("-", False),
    ],
)
def test_model_fits_by_its_words(wished: str, fit: bool) -> None:
    """A wished model needs whole words in their order, in any case: A10 is not A100."""
    assert fits(gpu(0, model="NVIDIA A100-SXM4-80GB"), wish(1, model=(wished,)), 1000) is fit


@pytest.mark.parametrize(
    ("wished", "fit"), [(None, True), ("amd", True), ("AMD", True), ("nvidia", False), ("am", False)]
)
def test_vendor_fits_in_any_case(wished: str | None, fit: bool) -> None:
    """A wished vendor is a whole name."""
    assert fits(gpu(0, vendor="amd"), wish(1, vendor=wished), 1000) is fit
    assert fits(gpu(0, vendor="Amd"), wish(1, vendor=wished), 1000) is fit


@pytest.mark.parametrize("vendor", ["amd", "acme"])
def test_only_gpus_of_nvidia_have_shares(vendor: str) -> None:
    """The gate that has programs take turns stands in front of CUDA; the sentence says so before any other."""
    whole = [gpu(index, vendor=vendor) for index in range(3)]
    assert fits(whole[0], wish(1), 1000)
    assert not fits(whole[0], wish(1), 999)
    assert refuse(wish(3), limit=None, gpus=whole) is None
    for amount, have in ((0.5, 0), (2.5, 2000), (7.5, 3000)):
        error = refuse(wish(amount), limit=None, gpus=whole)
        assert error is not None
        assert f"GPUs of vendor {vendor} are given as a whole only." in error.message
        assert error.details["have"] == have
    assert refuse(wish(2.5), limit=None, gpus=[*whole, gpu(3)]) is None, "the rest is a share of another vendor's"
    error = refuse(wish(0.5, model=("B200",)), limit=None, gpus=whole)
    assert error is not None
    assert "No GPU here is what you ask for (B200)." in error.message


def test_gpu_is_nvidias_unless_it_says_otherwise() -> None:
    """Inventories of versions that know one vendor name none."""
    assert fits(gpu(0), wish(1, vendor="NVIDIA"), 1000)
    error = refuse(wish(1, vendor="amd", model=("MI300X",)), limit=None, gpus=FOUR)
    assert error is not None
    assert "No GPU here is what you ask for (MI300X, amd)" in error.message


@pytest.mark.parametrize(
    ("milli", "memory", "fit"),
    [(1000, 80, True), (1000, 81, False), (500, 40, True), (500, 41, False), (999, 80, False), (1, 0, True)],
)
def test_memory_is_shared_as_the_gpu_is(milli: int, memory: int, fit: bool) -> None:
    """Half of an 80 GiB GPU has 40 GiB; a whole one has all."""
    assert fits(gpu(0), wish(1, memory=memory * GIB or None), milli) is fit


@pytest.mark.parametrize(
    ("amount", "fields", "expected"),
    [
        (1, {}, [[0, 1, 2, 3, 4, 5]]),
        (2, {"topology": "island"}, [[0, 1, 2], [3, 4, 5]]),
        (2, {"topology": "switch"}, [[0, 1], [2, 3], [4, 5]]),
        (3, {"topology": "switch"}, []),
        (2, {"topology": "island", "model": ("H100",)}, []),
        (2, {"model": ("H100",)}, [[1, 4]]),
        (1.5, {"memory": 50 * GIB}, []),
    ],
)
def test_groups_could_each_serve_the_wish(amount: float, fields: dict[str, Any], expected: list[list[int]]) -> None:
    """Each group could serve the whole wish if all of it were free."""
    six = inventory(6, island=3, switch=2, models=["A100", "H100", "A100"])
    assert [[gpu.index for gpu in group] for group in groups(six, wish(amount, **fields))] == expected


@pytest.mark.parametrize(
    ("gpus", "limit", "amount", "fields"),
    [
        (FOUR, 4000, 4, {}),
        (FOUR, None, 4, {}),
        (FOUR, 0, 0, {}),
        ((), 0, 0, {"model": ("H100",)}),
        (inventory(4, unhealthy=[0, 1, 2, 3]), 4000, 4, {}),
        (FOUR, 4000, 2, {"each": 500}),
        (MIXED, 4000, 2, {"model": ("a100",)}),
        (MIXED, 4000, 2, {"memory": 40 * GIB}),
        (MIXED, 4000, 2.5, {"memory": 16 * GIB}),
        (PAIRS, 4000, 2, {"topology": "island"}),
        (PAIRS, 4000, 1, {"topology": "switch"}),
        (PAIRS, 4000, 4, {"topology": "any"}),
        (FOUR, 4000, 1, {"topology": "island"}),
    ],
)
def test_possible_wish_is_not_refused(
    gpus: tuple[Gpu, ...], limit: int | None, amount: float, fields: dict[str, Any]
) -> None:
    """A wish that all GPUs of the node together could serve is not refused, whether they work now or not."""
    assert refuse(wish(amount, **fields), limit=limit, gpus=gpus) is None


@pytest.mark.parametrize(
    ("gpus", "limit", "amount", "fields", "reason", "have", "words"),
    [
        (FOUR, 2000, 3, {}, "LimitExceeded", None, "limit is 2 GPUs"),
        (FOUR, 0, 0.1, {}, "LimitExceeded", None, "limit is 0"),
        (FOUR, 9000, 5, {}, "Infeasible", 4000, "Only 4 GPUs"),
        (FOUR, 9000, 4.5, {}, "Infeasible", 4000, "Only 4 GPUs"),
        ((), 9000, 1, {}, "Infeasible", 0, "There is no GPU here"),
        (FOUR, 9000, 2.5, {"each": 500}, "Infeasible", 2000, "only 4 GPUs fit"),
        (MIXED, 9000, 1, {"model": ("A10", "H100")}, "Infeasible", 0, "A10 or H100"),
        (MIXED, 9000, 3, {"model": ("A100",)}, "Infeasible", 2000, "Only 2 GPUs"),
        (MIXED, 9000, 1, {"memory": 81 * GIB}, "Infeasible", 0, "81 GiB of memory"),
        (MIXED, 9000, 1.1, {"memory": 16 * GIB}, "Infeasible", 1000, "share of 0.1 GPU"),
        (PAIRS, 9000, 3, {"topology": "island"}, "Infeasible", 2000, "NVLink"),
        (PAIRS, 9000, 2, {"topology": "switch"}, "Infeasible", 1000, "PCIe switch"),
        (FOUR, 9000, 2, {"topology": "island"}, "Infeasible", 1000, "NVLink"),
    ],
)
def test_impossible_wish_is_refused(
    gpus: tuple[Gpu, ...],
    limit: int,
    amount: float,
    fields: dict[str, Any],
    reason: str,
    have: int | None,
    words: str,
) -> None:
    """The refusal has a reason for programs, and a figure and a sentence for people."""
    error = refuse(wish(amount, **fields), limit=limit, gpus=gpus)
    assert error is not None
    assert error.reason == reason
    assert error.details.get("have") == have
    assert words in error.message
    assert error.message.endswith(".")


def test_limit_comes_before_the_number_of_gpus() -> None:
    """A user who asks for more than the limit learns of the limit, not of the number of GPUs."""
    error = refuse(wish(9), limit=1000, gpus=FOUR)
    assert error is not None
    assert error.to_json()["details"] == {"limit": 1000}
