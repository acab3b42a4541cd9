"""Stands for Numba's driver: it keeps the error of its first look."""

from typing import Any

import stand_in_cuda  # type: ignore[import-not-found] # on the path of the kernels only


class Driver:
    def __init__(self) -> None:
        self.is_initialized = False
        self.initialization_error: str | None = None

    def ensure_initialized(self) -> None:
        if self.is_initialized:
            return
        self.is_initialized = True
        if not stand_in_cuda.devices():
            self.initialization_error = "CUDA_ERROR_NO_DEVICE (100)"
            raise RuntimeError(f"Error at driver init: {self.initialization_error}")

    @property
    def is_available(self) -> bool:
        if not self.is_initialized:
            try:
                self.ensure_initialized()
            except RuntimeError:
                return False
        return self.initialization_error is None

    def __getattr__(self, name: str) -> Any:
        self.ensure_initialized()
        if self.initialization_error is not None:
            raise RuntimeError(f"Error at driver init: {self.initialization_error}")
        return lambda: stand_in_cuda.need()[0]


driver = Driver()
