"""The slider that `gpu` shows in a cell: what the kernel does for it. The page's part is `labextension/src/widget`."""

from __future__ import annotations

from .slider import GpuWidget

__all__ = ["GpuWidget"]
