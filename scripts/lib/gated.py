"""The table of the admin guide that says what of a driver is gated, counted, limited, and what is not.

``python -m scripts.lib.gated`` writes it, from the list of the driver's functions and that of the gate's.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
GATE = ROOT / "node_plugin" / "gate"
GUIDE = ROOT / "docs" / "admin-guide.md"
BEGIN, END = "<!-- gated: python -m scripts.lib.gated -->\n", "<!-- end of gated -->\n"
OLD = 3020
"""CUDA version: forms from before it take 32-bit addresses, and no 64-bit program has use for them."""


@dataclass(frozen=True)
class Kind:
    """A kind of call: the names of its functions as a pattern, and what is done about it; ``ours``: by the gate."""

    title: str
    names: str
    what: str
    ours: bool = False


KINDS = (
    Kind("Kernels", r"cuLaunch(?!HostFunc)\w*", "**gated**: waits for a turn, is waited for, charged", ours=True),
    Kind("Graphs", r"cuGraphLaunch", "**gated** as one launch, with all that is in it", ours=True),
    Kind(
        "Copies and fills, prefetches, decompression",
        r"cuMemcpy\w*|cuMemset\w*|cuMem(DiscardAnd)?Prefetch\w*|cuMemBatchDecompressAsync",
        "**gated** as launches from 50 µs of expected work on; smaller ones pass, and add up until one "
        "waits; up to 4 KiB from or to the host never wait themselves. All are **charged**",
        ours=True,
    ),
    Kind(
        "Words that a stream writes",
        r"cuStreamWriteValue\w*|cuStreamBatchMemOp",
        "**charged** with the copies, never held: others may wait for them",
        ours=True,
    ),
    Kind(
        "Allocations",
        r"cuMemAlloc(?!Host)\w*|cuMemCreate|cuArray(3D)?Create|cuMipmappedArrayCreate",
        "**limited** to the share's memory; managed memory that does not fit is not refused, and stays in the host's",
        ours=True,
    ),
    Kind(
        "Memory of graphs",
        r"cuGraphAddMem(Alloc|Free)Node|cuGraphAddNode|cuGraphInstantiate\w*|cuGraphUpload|cuGraph(Exec)?Destroy"
        r"|cuDeviceGraphMemTrim",
        "**limited** before a launch, by what the nodes have at once; **counted** as the driver says, "
        "until it is trimmed",
        ours=True,
    ),
    Kind(
        "What pools keep",
        r"cuMemPool(Create|Destroy|SetAttribute|TrimTo)",
        "**counted** as the driver says, where a release threshold keeps it; given back before anything is refused",
        ours=True,
    ),
    Kind(
        "Contexts and their limits: stacks, heaps, what kernels print",
        r"cuCtxCreate|cuDevicePrimaryCtxRetain|cuCtxSetLimit",
        "**limited**: what a limit is set to above the driver's own, and all of each context beyond the first",
        ours=True,
    ),
    Kind(
        "Variables of modules",
        r"cuModule(Load(Data(Ex)?)?|Unload)|cuLibrary(Load\w*|Unload)",
        "**limited** where a cubin or PTX says how large they are (below 1 MiB counted, not refused)",
        ours=True,
    ),
    Kind(
        "Memory of other interfaces, such as Vulkan's",
        r"cuImportExternalMemory|cuExternalMemory\w*|cuDestroyExternalMemory",
        "**limited** while it is imported or mapped",
        ours=True,
    ),
    Kind(
        "What gives memory back, or keeps it",
        r"cuMemFree(?!Host)\w*|cuMemRelease|cuMemMap|cuMemUnmap|cuMemRetainAllocationHandle|cuArrayDestroy"
        r"|cuMipmappedArrayDestroy|cuMem(ExportTo|ImportFrom)ShareableHandle",
        "**counted**",
        ours=True,
    ),
    Kind("How much memory there is", r"cuMemGetInfo|cuDeviceTotalMem", "answered by the share's limit", ours=True),
    Kind(
        "Recordings, ends of streams and contexts",
        r"cuStreamBeginCapture(ToGraph)?|cuStreamDestroy|cuCtxDestroy|cuDevicePrimaryCtxRe(lease|set)",
        "watched: what was launched before is waited for",
        ours=True,
    ),
    Kind(
        "Questions whether work has ended, waits for it",
        r"cu(Stream|Event)Query|cu(Stream|Event|Ctx)Synchronize|cuEventElapsedTime",
        "watched: they pass, and none is under way while a GPU is parked",
        ours=True,
    ),
    Kind("The first look for GPUs, look-ups", r"cuInit|cuGetProcAddress", "watched", ours=True),
    Kind("Waits in a stream", r"cuStreamWait\w*|cuWaitExternal\w*|cuSignalExternal\w*", "not: no work"),
    Kind("Functions of the host in a stream", r"cuLaunchHostFunc|cuStreamAddCallback", "not: they run on the CPU"),
    Kind(
        "Memory of another process",
        r"cuIpc\w*|cuMemPool(Import|Export)\w*",
        "counts in the process that it was allocated in",
    ),
    Kind("Multicast objects", r"cuMulticast\w*", "not: what is bound to one counts where it was created"),
    Kind("Sparse arrays", r"cuMemMapArrayAsync", "not: a rare change of a map"),
    Kind("Copies over a fabric", r"cuFabric\w*|cuLogicalEndpoint\w*", "not"),
    Kind(
        "The rest of modules, libraries and contexts",
        r"cuModule\w*|cuLibrary\w*|cuLink\w*|cuGreenCtx\w*",
        "not counted: code, and variables in fat binaries; the comparison with NVML sees them",
    ),
    Kind("Memory of the host", r"cuMemAllocHost|cuMemFreeHost|cuMemHost\w*", "not: no memory of the GPU"),
    Kind("Graphics: OpenGL, EGL, VDPAU", r"cuGraphics\w*|cuGL\w*|cuEGL\w*|cuVDPAU\w*|cuEventCreateFromEGLSync", "not"),
    Kind("Tables without names", r"cuGetExportTable", "not: OptiX, NVENC and others launch by what is in them"),
    Kind("Everything else: events, attributes, handles", r"\w+", "passes: no work of the GPU, and none of its memory"),
)


def functions() -> list[tuple[str, str, int]]:
    """Return each function of a driver: its name, the end of its symbol, the first version that has it."""
    rows = re.findall(r"F\((\w+), (\w*), (\d+), \w+\)", (GATE / "driver" / "functions.def").read_text())
    return [(name, end, int(since)) for name, end, since in rows]


def ours() -> set[str]:
    """Return the symbols that the gate handles itself instead of passing them on."""
    return set(re.findall(r"\bG\((\w+), \"", (GATE / "driver" / "gated.h").read_text()))


def kind_of(name: str) -> Kind:
    """Return the kind of a function: the first that fits."""
    return next(kind for kind in KINDS if re.fullmatch(kind.names, name))


def missing() -> list[str]:
    """Return the symbols that the table would describe wrongly."""
    known = ours()
    return [
        name + end
        for name, end, since in functions()
        if kind_of(name).ours != (name + end in known) and not (kind_of(name).ours and since < OLD)
    ]


def table() -> str:
    """Return the table."""
    lines = ["| calls | functions | for example | what the gate does |", "|---|---|---|---|"]
    for kind in KINDS:
        names = [name + end for name, end, _ in functions() if kind_of(name) is kind]
        lines.append(f"| {kind.title} | {len(names)} | {_examples(names)} | {kind.what} |")
    return "\n".join(lines) + "\n"


def _examples(names: Sequence[str]) -> str:
    bases = list(dict.fromkeys(re.sub(r"(_v\d)?(_pt[sd][sz])?$", "", name) for name in names))
    return ", ".join(f"`{name}`" for name in bases[:2])


def page(text: str) -> str:
    """Return the guide with the current table."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + table() + END + after


def main() -> None:
    """Write the guide."""
    GUIDE.write_text(page(GUIDE.read_text()))


if __name__ == "__main__":
    main()
