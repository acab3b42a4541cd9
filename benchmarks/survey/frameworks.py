"""Programs of frameworks that go on after they were parked: contents of memory and results, to the last bit."""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from . import parking, process
from .answers import Case, ask, say

_STEPS = 40
_PARKS = 2


def _module(name: str) -> Any:
    return importlib.import_module(name)


def _digest(*arrays: Any) -> str:
    whole = hashlib.sha256()
    for array in arrays:
        whole.update(array.tobytes())
    return whole.hexdigest()[:16]


def _go_on(begin: Callable[[], Callable[[], object]], digest: Callable[[], str]) -> object:
    """Run a program twice from its beginning, the second time with parks between its steps; compare.

    ``begin`` makes its state and returns a step; ``digest`` is that of its state.
    """
    found, reports = [], []
    step = begin()
    whole = [step() for _ in range(_STEPS)]
    unparked = digest()
    step = begin()
    for number in range(_STEPS):
        if number and number % (_STEPS // (_PARKS + 1)) == 0:
            before = digest()
            reports.append(parking.once(0.2))
            say(parked=reports[-1], equal=digest() == before)
        found.append(step())
    return {
        "results equal": found == whole,
        "memory equal": digest() == unparked,
        "parks": len(reports),
        "codes": [[steps[name]["code"] for name in parking.STEPS if name in steps] for steps in reports],
        "last result": found[-1],
        **process.holds(),
    }


def torch_training(*, compiled: bool = False, graph: bool = False, streams: bool = False) -> object:
    """Training with cuBLAS, dropout and Adam; with torch.compile, as a CUDA graph, or on two streams."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch = _module("torch")
    torch.use_deterministic_algorithms(True)
    state: dict[str, Any] = {}

    def begin() -> Callable[[], object]:
        torch.manual_seed(3)
        layers = (torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(512, 8))
        model = torch.nn.Sequential(*layers).cuda()
        optimizer = torch.optim.Adam(model.parameters(), capturable=graph)
        inputs, wanted = torch.randn(256, 512, device="cuda"), torch.randn(256, 8, device="cuda")
        pinned = torch.randn(256, 512).pin_memory()
        forward = torch.compile(model) if compiled else model
        side = torch.cuda.Stream()
        state.update(model=model, pinned=pinned, optimizer=optimizer)

        def step() -> Any:
            optimizer.zero_grad(set_to_none=not graph)
            loss = torch.nn.functional.mse_loss(forward(inputs), wanted)
            loss.backward()
            optimizer.step()
            return loss

        def on_two_streams() -> object:
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                inputs.copy_(pinned, non_blocking=True)
            torch.cuda.current_stream().wait_stream(side)
            return step().item()

        if graph:
            return _captured(torch, step)
        return on_two_streams if streams else lambda: step().item()

    def digest() -> str:
        tensors = [*state["model"].parameters(), state["pinned"]]
        for held in state["optimizer"].state.values():
            tensors += [held["exp_avg"], held["exp_avg_sq"]]
        return _digest(*(tensor.detach().cpu().numpy() for tensor in tensors))

    return _go_on(begin, digest)


def _captured(torch: Any, step: Callable[[], Any]) -> Callable[[], object]:
    """Return replays of a CUDA graph of a step."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    def replay() -> object:
        graph.replay()
        return loss.item()

    return replay


def torch_memory(setting: str) -> object:
    """Tensors of another allocator of PyTorch's."""
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = setting
    torch = _module("torch")
    state: dict[str, Any] = {}

    def begin() -> Callable[[], object]:
        torch.manual_seed(5)
        state["all"] = [torch.randn(1 << 20, device="cuda")]

        def step() -> object:
            state["all"].append(state["all"][-1].roll(1) * 1.01)
            return state["all"][-1][:100].sum().item()

        return step

    return _go_on(begin, lambda: _digest(*(one.cpu().numpy() for one in state["all"])))


def jax() -> object:
    """JAX with a compiled step."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    module = _module("jax")
    state: dict[str, Any] = {}
    advance = module.jit(lambda a: module.numpy.tanh(a @ a.T / 32))  # once: each compilation may choose other kernels

    def begin() -> Callable[[], object]:
        state["a"] = module.random.normal(module.random.key(1), (1024, 1024))

        def step() -> object:
            state["a"] = advance(state["a"])
            return float(state["a"][0, 0])

        return step

    numpy = _module("numpy")
    return _go_on(begin, lambda: _digest(numpy.asarray(state["a"])))


def cupy() -> object:
    """CuPy with a kernel of its own, cuBLAS and its memory pool."""
    module = _module("cupy")
    state: dict[str, Any] = {}

    def begin() -> Callable[[], object]:
        square = module.ElementwiseKernel("float32 x", "float32 y", "y = x * x", "square")
        state["a"] = module.linspace(0, 1, 1 << 20, dtype=module.float32).reshape(1024, 1024)

        def step() -> object:
            state["a"] = square(state["a"] @ state["a"].T / 1024 + 0.25) / 2
            return float(state["a"].sum())

        return step

    return _go_on(begin, lambda: _digest(state["a"].get()))


def numba() -> object:
    """Numba with a kernel and an array on the GPU."""
    numpy, cuda = _module("numpy"), _module("numba.cuda")
    state: dict[str, Any] = {}

    @cuda.jit  # type: ignore[untyped-decorator]
    def add(array: Any, number: int) -> None:
        i = cuda.grid(1)
        if i < array.size:
            array[i] += number * i

    def begin() -> Callable[[], object]:
        state["a"] = cuda.to_device(numpy.zeros(1 << 20, dtype=numpy.int64))

        def step() -> object:
            add[4096, 256](state["a"], 3)
            return int(state["a"][1000:1001].copy_to_host()[0])

        return step

    return _go_on(begin, lambda: _digest(state["a"].copy_to_host()))


def threads(*names: str) -> object:
    """Park while other threads launch, allocate or ask without end; each goes on afterwards."""
    torch = _module("torch")
    there = torch.ones(1 << 16, device="cuda")
    event = torch.cuda.Event()
    event.record()
    counts, failed, on = dict.fromkeys(names, 0), dict.fromkeys(names, ""), [True]
    works: dict[str, Callable[[], object]] = {
        "launch": lambda: torch.sum(there + 1),
        "fill": lambda: torch.empty(1 << 22, device="cuda").fill_(1),
        "copy": lambda: torch.ones(1 << 10).cuda(),
        "item": lambda: float(there[0]),
        "memory": torch.cuda.mem_get_info,
        "synchronize": torch.cuda.synchronize,
        "query": event.query,
    }

    def work(name: str) -> None:
        while on[0]:
            try:
                works[name]()
            except RuntimeError as error:
                failed[name] = str(error)[:80]
            counts[name] += 1

    for name in names:
        threading.Thread(target=work, args=(name,), daemon=True).start()
    time.sleep(1)
    for _ in range(5):
        park = parking.start(20)
        reached = park.wait(parking.PARKED)
        time.sleep(0.1)
        before = dict(counts)
        time.sleep(0.4)
        advanced = {name: counts[name] - before[name] for name in names}
        say(reached=reached, **park.finish(), calls_while_parked=advanced)
        time.sleep(0.2)
    before = dict(counts)
    time.sleep(0.5)
    went_on = {name: counts[name] > before[name] for name in names}
    on[0] = False
    return {"went on": went_on, "failed": failed, "sum": (there + 1).sum().item()}


CASES: dict[str, Case] = {
    "torch": torch_training,
    "torch.compile": functools.partial(torch_training, compiled=True),
    "torch, CUDA graph": functools.partial(torch_training, graph=True),
    "torch, streams": functools.partial(torch_training, streams=True),
    "expandable segments": functools.partial(torch_memory, "expandable_segments:True"),
    "cudaMallocAsync": functools.partial(torch_memory, "backend:cudaMallocAsync"),
    "jax": jax,
    "cupy": cupy,
    "numba": numba,
    "threads, work": functools.partial(threads, "launch", "fill", "copy", "item"),
    "threads, synchronize": functools.partial(threads, "synchronize"),
    "threads, query": functools.partial(threads, "query"),
    "threads, memory": functools.partial(threads, "memory"),
}

if __name__ == "__main__":
    parking.prepare()
    ask(CASES, apart=__spec__.name)
