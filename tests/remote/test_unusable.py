"""Errors of CUDA after which a process can use no GPU any more, by classes that stand in for those of libraries."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpu.remote import codec
from jupyter_gpu.remote.rules.cuda_errors import STICKY
from jupyter_gpu.remote.unusable import sentence, sticky_code
from tests.remote.spaces import space


def made(module: str, name: str, text: str = "", base: type = RuntimeError, **numbers: Any) -> Exception:
    """Return an error of a class that a library has."""
    error: Exception = type(name, (base,), {"__module__": module, **numbers})(text)
    return error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (made("torch", "AcceleratorError", error_code=710), 710),
        (made("cupy_backends.cuda.api.driver", "CUDADriverError", status=700), 700),
        (made("cupy_backends.cuda.api.runtime", "CUDARuntimeError", status=719), 719),
        (made("numba.cuda.cudadrv.driver", "CudaAPIError", code=716), 716),
        (made("cuda.core._utils", "CUDAError", "CUDA_ERROR_ASSERT: Device-side assert triggered"), 710),
        (made("jaxlib._jax", "JaxRuntimeError", "INTERNAL: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal address"), 700),
        (made("jaxlib.xla_extension", "XlaRuntimeError", "CUDA_ERROR_LAUNCH_FAILED"), 719),
        (made("mine", "Own", base=type(made("torch", "AcceleratorError")), error_code=714), 714),
    ],
)
def test_sticky(error: Exception, code: int) -> None:
    """Each library's class, and one that derives from it."""
    assert sticky_code(error) == code


@pytest.mark.parametrize(
    "error",
    [
        made("torch", "AcceleratorError", error_code=2),  # out of memory
        made("torch", "AcceleratorError", "CUDA error: device-side assert triggered"),  # the code is not said
        made("torch", "AcceleratorError", error_code=True),
        made("torch", "OutOfMemoryError", error_code=710),
        made("torchlike", "AcceleratorError", error_code=710),
        made("numba.cuda.cudadrv.driver", "CudaAPIError", "CUDA_ERROR_ASSERT", code=1),
        made("jaxlib._jax", "JaxRuntimeError", "RESOURCE_EXHAUSTED: CUDA_ERROR_OUT_OF_MEMORY"),
        made("jaxlib._jax", "JaxRuntimeError", "CUDA_ERROR_ASSERTED"),
        RuntimeError("CUDA_ERROR_ASSERT"),
        None,
    ],
)
def test_not_sticky(error: Exception | None) -> None:
    """Other errors of theirs, and those of others, whatever they say."""
    assert sticky_code(error) is None


class Unreadable(Exception):
    """An error that nothing of can be read, as its parts are on a GPU."""

    @property
    def code(self) -> int:
        raise made("torch", "AcceleratorError", error_code=710)

    def __str__(self) -> str:
        raise made("torch", "AcceleratorError", error_code=710)


def test_others_are_not_read() -> None:
    """An error of the user's, with a value that cannot be shown."""
    assert sticky_code(ValueError(Unreadable())) is None
    assert sticky_code(Unreadable()) is None
    assert sticky_code(made("jaxlib._jax", "JaxRuntimeError", base=type("One", (Exception,), {}))) is None


def test_what_led_to_an_error() -> None:
    """The cause, the context and members of groups count; what refers to itself ends."""
    cuda = made("torch", "AcceleratorError", error_code=710)
    own, other = ValueError(), ValueError()
    own.__cause__, other.__context__ = cuda, own
    assert sticky_code(other) == sticky_code(ExceptionGroup("", [KeyError(), own])) == 710
    own.__cause__ = other
    assert sticky_code(other) is None


def test_every_code_is_named() -> None:
    """In the sentence, with what is lost."""
    for code, name in STICKY.items():
        assert f"(CUDA_ERROR_{name}) CUDA works no more in the process on node2" in sentence("node2", code, ())
    assert sentence("node2", 710, {"b", "a"}).endswith("Lost with it, to be made again: a, b.")
    assert "CUDA_ERROR_999" in sentence("node2", 999, ())


class Broken:
    """A value on a GPU that cannot be read any more."""

    def __reduce__(self) -> tuple[Any, ...]:
        raise made("cupy_backends.cuda.api.runtime", "CUDARuntimeError", "cudaErrorAssert", status=710)


def test_value_that_cannot_be_read() -> None:
    """Its reason is told as ever; the code is known."""
    measured = codec.measure(space(good=1, bad=[Broken()]), {"good", "bad"})
    assert (measured.sticky, list(measured.pickled), list(measured.failed)) == (710, ["good"], ["bad"])
    assert codec.measure(space(good=1), {"good"}).sticky is None
