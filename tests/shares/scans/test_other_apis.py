"""APIs that cannot ask for turns: the libraries that reveal them, and the processes that they excuse."""

import mmap
import os
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_node.processes.rules.process_id import ProcessId
from jupyter_gpu_node.processes.signals import identify
from jupyter_gpu_node.shares.scans.other_apis import LIBRARIES, apis_of, named


def test_each_is_named_once() -> None:
    """An API is called by its usual name, however many of its libraries there are."""
    assert named({"libnvidia-opencl.so.580.159", "libc.so.6"}, asks=False) == "OpenCL"
    assert named({"libnvidia-glcore.so.580.1", "libnvidia-eglcore.so.580.1"}, asks=False) == "OpenGL or Vulkan"
    assert named({"libnvoptix.so.1", "libnvidia-encode.so.1", "libcuda.so.1"}, asks=True) == "OptiX, NVENC"
    assert named({"libc.so.6", "libnvidia-ml.so.1"}, asks=False) == ""


@given(st.sets(st.sampled_from([name + ".1" for name, _ in LIBRARIES])))
def test_process_with_cuda_has_no_excuse(files: set[str]) -> None:
    """It could ask: it goes around the gate, whatever it opens beside it."""
    assert named({*files, "libcuda.so.580.159"}, asks=False) == ""


PROGRAM = """
import mmap, sys
with open(sys.argv[1], "rb") as file:
    kept = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
print("ready", flush=True)
sys.stdin.read()
"""


def test_processes_are_read(tmp_path: Path) -> None:
    """One process without an excuse is enough for its share to have none; so is one that is gone."""
    library = tmp_path / "libnvidia-opencl.so.580"
    library.write_bytes(bytes(mmap.PAGESIZE))
    command = [sys.executable, "-c", PROGRAM, str(library)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdout
        assert running.stdout.readline() == b"ready\n"
        one, ours = identify(running.pid), identify(os.getpid())
        assert one
        assert ours
        found = {"a": {one}, "b": {one, ours}, "c": {ours}, "d": {ProcessId(2**22 + 1, 1)}, "e": set[ProcessId]()}
        assert apis_of(found, frozenset()) == {"a": "OpenCL"}
        running.stdin and running.stdin.close()
