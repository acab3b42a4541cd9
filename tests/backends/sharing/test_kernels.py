"""Kernels of a real Jupyter server: they start with the gate, whatever else they are started with."""

import ctypes.util
from pathlib import Path

import pytest

from jupyter_gpu.provisioner import beside
from jupyter_gpu_node.shares import gate_files
from tests.kernel.servers import await_, serve

SEEN = """
import os
maps = open("/proc/self/maps").read()
print(*(str(name in maps) for name in ("libjupyter_gpu_gate.so", {library!r})))
print(os.environ["LD_PRELOAD"])
print(os.environ["JUPYTER_GPU_GATE"])
"""


def test_a_kernel_has_the_gate_beside_what_its_user_preloads(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And finds the sockets as soon as its server has a share, whose use the panel sees."""
    library = ctypes.util.find_library("z") or "libz.so.1"
    monkeypatch.setenv("LD_PRELOAD", library)
    soft = "--GpuExtension.enforcement=soft"
    with serve(short_tmp, short_tmp / "state", soft, gpus=1) as server, server.kernel() as kernel:
        seen = kernel.run(SEEN.format(library=library.partition(".so")[0])).split("\n")
        assert seen[:2] == ["True True", f"{gate_files.preload()}:{library}"]
        server.gpus(0.25)
        await_(lambda: list(Path(seen[2]).glob("*.sock")))
        await_(lambda: server.rest("GET", "jupyter-gpu/api/v1/sample").get("shares"))


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, "/gate.so"), ({"LD_PRELOAD": "/mine.so"}, "/gate.so:/mine.so"),
        ({"LD_PRELOAD": "/gate.so:/mine.so"}, "/gate.so:/mine.so"),
    ],
)  # fmt: skip
def test_what_a_kernel_spec_preloads_stays(env: dict[str, str], expected: str) -> None:
    """Behind the gate; what else a backend prepares is as it says."""
    assert beside({"LD_PRELOAD": "/gate.so", "A": "b"}, env) == {"LD_PRELOAD": expected, "A": "b"}
    assert beside({"A": "b"}, env) == {"A": "b"}
