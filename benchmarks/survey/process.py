"""The holdings of a process, as the kernel reports them: the GPU's device files, memory, threads."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

MIB = 2**20


def gpu_files(pid: int | str = "self") -> dict[str, int]:
    """Return how often each of the driver's device files is open."""
    found: Counter[str] = Counter()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(link.readlink())
        except OSError:
            continue
        if "nvidia" in target or "dmabuf" in target:
            found[target] += 1
    return dict(sorted(found.items()))


def gpu_maps(pid: int | str = "self") -> dict[str, int]:
    """Return how many mappings there are of each of the driver's device files."""
    lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
    paths = (line.split(None, 5)[5] for line in lines if len(line.split(None, 5)) == 6)
    return dict(sorted(Counter(path for path in paths if path.startswith("/dev/nvidia")).items()))


def holds(pid: int | str = "self") -> dict[str, Any]:
    """Return open device files and their mappings."""
    return {"files": gpu_files(pid), "maps": gpu_maps(pid)}


def libraries(*names: str) -> list[str]:
    """Return which of the libraries are loaded in this process, by the beginning of their file's name."""
    text = Path("/proc/self/maps").read_text(errors="replace")
    return [name for name in names if f"/{name}" in text]


def memory(pid: int | str = "self") -> dict[str, int]:
    """Return MiB of memory: of the process by kind, and what is charged to its control group, if that counts it."""
    wanted = ("VmRSS", "RssAnon", "RssFile", "RssShmem", "VmLck", "VmPin")
    lines = (line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    found = {words[0][:-1]: int(words[1]) // 1024 for words in lines if words and words[0][:-1] in wanted}
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        current = Path(f"/sys/fs/cgroup{line.split(':', 2)[2]}") / "memory.current"
        if line.startswith("0::") and current.exists():
            found["cgroup"] = int(current.read_text()) // MIB
    return found


def threads() -> list[str]:
    """Return the names of this process's threads, sorted."""
    return sorted(path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm"))


def smi(query: str, fields: str) -> list[str]:
    """Return the lines of a query of nvidia-smi; one line that names the error if it fails."""
    try:
        done = subprocess.run(
            ["nvidia-smi", f"--query-{query}={fields}", "--format=csv,noheader,nounits"],
            check=False, capture_output=True, text=True, timeout=20,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        return [repr(error)]
    return done.stdout.splitlines() or ([done.stderr] if done.stderr else [])


def listed(pid: int) -> str:
    """Return the MiB that nvidia-smi reports for a process; empty if it lists no such process."""
    lines = (line.split(", ") for line in smi("compute-apps", "pid,used_memory"))
    return next((words[1] for words in lines if words[0] == str(pid) and len(words) > 1), "")
