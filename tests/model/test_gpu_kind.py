"""Kinds of GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.gpu import AMD, Gpu
from jupyter_gpu.model.gpu_kind import GpuKind, gpu_kinds, read_gpu_kinds
from jupyter_gpu.model.strict import FieldError

from . import strategies as any_

H100 = Gpu("GPU-1", 0, "NVIDIA H100", 80 << 30, gate=True)
MI300 = Gpu("GPU-2", 1, "AMD MI300X", 192 << 30, vendor=AMD)


def test_each_kind_is_named_once() -> None:
    """GPUs are of one kind if model, memory, vendor and gate are the same; the first of each decides the order."""
    gpus = [MI300, H100, replace(H100, uuid="GPU-3", index=2), replace(H100, uuid="GPU-4", gate=False)]
    first, second, third = gpu_kinds(gpus)
    assert first == GpuKind("AMD MI300X", 192 << 30, AMD)
    assert (second, third) == (GpuKind("NVIDIA H100", 80 << 30, gate=True), GpuKind("NVIDIA H100", 80 << 30))
    assert [kind.has_shares for kind in (first, second)] == [False, True]


@given(st.lists(any_.gpu_kinds, max_size=3))
def test_kinds_survive_a_round_trip(kinds: list[GpuKind]) -> None:
    """They are read as they were written."""
    assert list(read_gpu_kinds([kind.to_json() for kind in kinds], "kinds")) == kinds


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("H100", "kinds"),
        ({"memory": 1}, "model"),
        ({"model": "", "memory": 1}, "model"),
        ({"model": "H100"}, "memory"),
        ({"model": "H100", "memory": -1}, "memory"),
        ({"model": "H100", "memory": 1, "gate": 1}, "gate"),
        ({"model": "H100", "memory": 1, "vendor": ""}, "vendor"),
    ],
)
def test_a_kind_that_is_not_as_agreed_is_refused(kind: Any, field: str) -> None:
    """The error names the field."""
    with pytest.raises(FieldError) as refused:
        read_gpu_kinds([kind], "kinds")
    assert field in str(refused.value)
