"""GPUs of synthetic nodes."""

from jupyter_gpu.model.gpu import Gpu

GPUS = 8
"""GPUs of each node."""


def inventory(node: int) -> tuple[Gpu, ...]:
    """Return two NVLink islands of four GPUs, with two PCIe switches in each."""
    return tuple(
        Gpu(
            uuid=f"GPU-{node}-{index}",
            index=index,
            model="NVIDIA H100 80GB HBM3" if node % 4 else "NVIDIA A100-SXM4-80GB",
            memory=80 * 1024**3,
            island=f"island-{index // 4}",
            switch=f"switch-{index // 2}",
        )
        for index in range(GPUS)
    )
