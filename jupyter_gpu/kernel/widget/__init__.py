"""The slider that `gpu` shows in a cell: its part in the kernel. The page's part is `labextension/src/widget`."""

from __future__ import annotations

from .slider import GpuWidget

__all__ = ["GpuWidget"]
