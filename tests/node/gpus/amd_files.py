"""A tree of files as the Linux kernel has them for AMD's GPUs, below a folder in place of ``/sys``."""

from __future__ import annotations

import struct
from pathlib import Path

GIB = 2**30
UNIQUE = 0x8A5F01C2D3E4B600
"""Unique id of GPU 0; those of the others follow."""


class AmdFiles:
    """The tree below ``system``, which has a CPU and as many GPUs as are added."""

    def __init__(self, system: Path) -> None:
        self.system = system
        self.kfd = system / "class/kfd/kfd"
        self.count = 0
        (self.kfd / "proc").mkdir(parents=True)
        self._write(self.kfd / "topology/nodes/0", gpu_id="0\n", properties="cpu_cores_count 64\nsimd_count 0\n")

    def node(self, index: int) -> Path:
        """Return the folder of a GPU's node."""
        return self.kfd / f"topology/nodes/{index + 1}"

    def device(self, index: int) -> Path:
        """Return the folder of a GPU's device."""
        return self.system / f"class/drm/renderD{128 + index}/device"

    def add(
        self, *, product: str = "AMD Instinct MI210", hive: int = 0, numa: int = 0, location: int | None = None
    ) -> int:
        """Add a GPU with 64 GiB; return its number."""
        index, self.count = self.count, self.count + 1
        self.describe(index, location=0x300 + 0x100 * index if location is None else location, hive_id=hive)
        self._write(self.node(index), gpu_id=f"{1000 + index}\n")
        for number, (kind, size) in enumerate(((0, 512 * GIB), (1, GIB), (2, 63 * GIB), (4, 65536))):
            bank = f"heap_type {kind}\nsize_in_bytes {size}\nflags 0\nwidth 4096\n"
            self._write(self.node(index) / f"mem_banks/{number}", properties=bank)
        self._write(
            self.device(index),
            product_name=f"{product}\n",
            numa_node=f"{numa}\n",
            mem_info_vram_total=f"{64 * GIB}\n",
            mem_info_vram_used=f"{3 * GIB}\n",
            gpu_busy_percent="37\n",
            unique_id=f"{UNIQUE + index:016x}\n",
        )
        self._write(self.device(index) / "hwmon/hwmon5", temp1_input="41000\n", power1_average="97000000\n")
        return index

    def describe(self, index: int, *, location: int = 0x300, **changes: int | str | None) -> None:
        """Write a GPU's properties with these ``changes``; None leaves one out."""
        about: dict[str, int | str | None] = {
            "cpu_cores_count": 0,
            "simd_count": 416,
            "simd_per_cu": 4,
            "max_engine_clk_fcompute": 1700,
            "gfx_target_version": 90010,
            "vendor_id": 4098,
            "location_id": location,
            "domain": 0,
            "drm_render_minor": 128 + index,
            "hive_id": 0,
            "unique_id": UNIQUE + index,
            **changes,
        }
        lines = (f"{name} {value}\n" for name, value in about.items() if value is not None)
        self._write(self.node(index), properties="".join(lines))

    def heat(self, index: int, why: int = 1 << 36) -> None:
        """Write the driver's table with the reasons why a GPU's clocks are low; 0: with none."""
        table = struct.pack("<HBB108xQ", 120, 1, 3, why)
        (self.device(index) / "gpu_metrics").write_bytes(table)

    def keep(self, pid: int, *indexes: int) -> None:
        """Record a process for which the driver keeps these GPUs."""
        folder = self.kfd / f"proc/{pid}"
        self._write(folder, pasid="32769\n", **{f"vram_{1000 + index}": "0\n" for index in indexes})
        self._write(folder, **{f"sdma_{1000 + index}": "0\n" for index in range(self.count)})

    @staticmethod
    def uuid(index: int) -> str:
        """Return the uuid that a GPU must have."""
        return f"GPU-{UNIQUE + index:016x}"

    @staticmethod
    def _write(folder: Path, **files: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text)
