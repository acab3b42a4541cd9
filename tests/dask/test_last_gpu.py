"""Results of Dask while no GPU is attached: they are kept, or the GPU is not given back."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jupyter_gpu.dask import memory
from tests.dask.test_client import IMPORTS
from tests.kernel.kernels import Failed, Kernel
from tests.kernel.servers import Server, await_

MORE = """
import distributed, hashlib, random
from jupyter_gpu.dask import memory
free = memory.free
def states():
    return sorted(w["status"] for w in client.scheduler_info(n_workers=-1)["workers"].values())
def working():
    workers = client.scheduler_info(n_workers=-1)["workers"]
    return [address for address, worker in workers.items() if worker["status"] == "running"]
def digest(value):
    return hashlib.sha256(value).hexdigest()
def noise(seed, size=30_000_000):
    return random.Random(seed).randbytes(1_000) * (size // 1_000)
def ready(futures):
    distributed.wait(futures)             # what it returns would have the futures
def keeper():
    workers = client.scheduler_info(n_workers=-1)["workers"]
    return client.run(where, workers=[at for at, worker in workers.items() if worker["name"].startswith("results/")])
class Stays:
    "As what is in the memory of a GPU, and has no copy elsewhere."
    def __reduce__(self):
        raise TypeError("it stays on its GPU")
class Slow:
    "It takes a while to be sent."
    def __init__(self, folder):
        self.folder = folder
    def __reduce__(self):
        with open(self.folder + "/sent", "a") as file:
            file.write("x")
        time.sleep(1)
        return Slow, (self.folder,)
class Counter:
    pass
"""
GIVEN_BACK = [lambda kernel, _: kernel.run("gpu.release(timeout=30)"), lambda _, server: server.gpus(0)]


@pytest.fixture(scope="module")
def notebook(server: Server) -> Iterator[Kernel]:
    """Start the kernel of a notebook, with a client."""
    with server.kernel() as running:
        running.run(IMPORTS + MORE)
        yield running


@pytest.fixture
def kernel(notebook: Kernel, server: Server) -> Iterator[Kernel]:
    """Return the same kernel for each test, with one GPU and no future before, and none of both after."""
    notebook.run("gpu.resize(1)\nwhile not working(): time.sleep(.01)\n_ = client.run(opened, workers=working())")
    yield notebook
    notebook.run("one = two = three = None; memory.free = free")
    notebook.run("client.cancel([distributed.Future(key, client) for key in client.futures])")
    server.rest("PUT", "jupyter-gpu/api/v1/request", {"gpus": 0, "overrule": True})
    await_(lambda: server.status()["phase"] == "Idle")
    assert notebook.run("print(until(0))") == "0"


@pytest.mark.parametrize("give_back", GIVEN_BACK, ids=["release", "slider"])
def test_results_are_kept(kernel: Kernel, server: Server, give_back: Callable[[Kernel, Server], object]) -> None:
    """Bit for bit, computed and scattered ones, and no task runs; the next GPU has them, and nothing else is left."""
    kernel.run("one = client.map(noise, range(3)); two = client.scatter(noise(9, 70_000_000), hash=False)")
    kernel.run("known = [*map(noise, range(3)), noise(9, 70_000_000)]; ready(one)")
    give_back(kernel, server)
    await_(lambda: server.status()["phase"] == "Idle")
    assert kernel.run("print(states(), client.gather([*one, two]) == known)") == "['paused'] True"
    kernel.run("three = client.map(digest, [*one, two]); time.sleep(.1)")
    assert kernel.run("print({future.status for future in three})") == "{'pending'}"
    kernel.run("gpu.resize(1)")
    assert kernel.run("print(client.gather(three) == [*map(digest, known)])") == "True"
    assert kernel.run("print(until(1), states(), two.result() == known[3]); del three") == "1 ['running'] True"


def test_gpu_goes_again_at_once(kernel: Kernel, server: Server) -> None:
    """Before the results have moved to it: they stay where they are, with those that are new."""
    kernel.run("one = client.scatter(noise(1), hash=False); gpu.release(); gpu.resize(1)")
    kernel.run("two = client.submit(noise, 2); two.result(); gpu.release(timeout=30)")
    assert server.status()["phase"] == "Idle"
    assert kernel.run("print(client.gather([one, two]) == [noise(1), noise(2)])") == "True"


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("one = client.submit(Stays); ready(one)", "1 results that cannot be moved to another process"),
        ("one = client.submit(lambda: [Stays()]); ready(one)", "1 results that cannot be moved"),
        ("one = client.submit(Counter, actor=True); one.result()", "1 actors, which cannot be kept"),
        ("one = client.scatter(noise(1)); memory.free = lambda: 50_000_000", "28.6 MiB of results, and 47.7 MiB"),
    ],
    ids=["immovable", "inside", "actor", "large"],
)
def test_release_refuses_to_lose_results(kernel: Kernel, server: Server, code: str, why: str) -> None:
    """With a sentence; the worker goes on. Without the results it works."""
    kernel.run(f"{code}; two = client.submit(int)")
    with pytest.raises(Failed, match=f"WorkerRefused: .*{why}.* Fetch them and drop their futures"):
        kernel.run("gpu.release()")
    assert kernel.run("print(client.submit(int, pure=False).result(), gpu.status().attached)") == "0 1"
    assert server.status()["phase"] == "Ready"
    kernel.run("del one\nwhile sum(map(len, client.has_what().values())) > 1: time.sleep(.01)\ngpu.release(timeout=30)")
    assert kernel.run("print(two.result())") == "0"


def test_worker_is_held_while_it_has_results(kernel: Kernel, server: Server) -> None:
    """A slider cannot be refused: the GPU drains, no task runs there, another GPU lets it go on."""
    kernel.run("one = client.submit(Stays); two = client.scatter(b'x', hash=False); ready(one)")
    server.gpus(0)
    kernel.run("while 'running' in states() or len(states()) < 2: time.sleep(.01)")
    assert server.status()["phase"] != "Idle"
    assert kernel.run(
        "three = client.submit(where, pure=False); time.sleep(.1); print(three.status, two.result())"
    ) == ("pending b'x'")
    server.gpus(1)
    assert kernel.run("print(three.result() in client.run(where, workers=working()).values()); del three") == "True"
    server.gpus(0)
    kernel.run("while 'running' in states(): time.sleep(.01)\ndel one")
    await_(lambda: server.status()["phase"] == "Idle")
    assert kernel.run("print(two.result(), states())") == "b'x' ['paused']"


def test_immovable_results_hold_up_no_other_gpu(kernel: Kernel, server: Server) -> None:
    """A worker that can give its results to no other one is held; new GPUs have workers, and its own has it again."""
    kernel.run("gpu.resize(2); until(2); known = client.run(opened)")
    kernel.run("one = [client.submit(Stays, workers=[at], pure=False) for at in known]; ready(one)")
    server.gpus(1)
    kernel.run("while states().count('running') == 2: time.sleep(.01)")
    server.gpus(3)
    assert kernel.run("print(until(3))") == "3"
    kernel.run("while states().count('running') < 3: time.sleep(.01)", timeout=20)
    assert kernel.run("print(known.keys() <= client.run(where).keys(), {f.status for f in one})") == "True {'finished'}"
    server.gpus(1)
    kernel.run("while states().count('running') > 1: time.sleep(.01)")
    kernel.run("one = None")
    await_(lambda: server.status()["phase"] == "Ready")
    assert kernel.run("print(until(1), states())") == "1 ['running']"


def test_killed_while_it_gathers(kernel: Kernel, server: Server, tmp_path: Path) -> None:
    """Another one gathers the results: the worker has them until then. Killed later, what tasks made is made again."""
    kernel.run(f"one = client.submit(Slow, {str(tmp_path)!r}); two = client.submit(noise, 5); ready([one, two])")
    server.gpus(0)
    await_((tmp_path / "sent").exists)
    kept = int(kernel.run("print(*keeper().values())"))
    os.kill(kept, signal.SIGKILL)
    await_(lambda: server.status()["phase"] == "Idle")
    assert kernel.run("print(two.result() == noise(5), states())") == "True ['paused']"
    os.kill(int(kernel.run("print(*keeper().values())")), signal.SIGKILL)
    kernel.run("gpu.resize(1)")
    assert kernel.run("print(two.result() == noise(5))") == "True"


@pytest.mark.parametrize(
    ("lines", "files", "left"),
    [
        (["0::/pod/box"], {"pod/memory": (10, 4, 1), "pod/box/memory": (9, 2, 0)}, [7, 7]),
        (["1:cpu:/", "0::/"], {"memory": ("max", 4, 1)}, []),
        (["4:cpu,memory:/x", "0::/"], {"memory/x/memory": (10, 12, 1), "x/memory": (2, 1, 0)}, [0]),
        (["4:memory:/gone/far"], {}, []),
    ],
    ids=["second", "none", "first", "gone"],
)
def test_limits_of_control_groups(
    tmp_path: Path, lines: list[str], files: dict[str, tuple[object, int, int]], left: list[int]
) -> None:
    """Each group's, and those of the groups around it; what the system can have back is no use."""
    for name, (limit, use, cached) in files.items():
        folder = (tmp_path / name).parent
        folder.mkdir(parents=True, exist_ok=True)
        first = name.startswith("memory/")
        (folder / ("memory.limit_in_bytes" if first else "memory.max")).write_text(f"{limit}\n")
        (folder / ("memory.usage_in_bytes" if first else "memory.current")).write_text(f"{use}\n")
        (folder / "memory.stat").write_text(f"anon 5\n{'total_' * first}inactive_file {cached}\n")
    assert memory.limits(lines, tmp_path) == left


def test_free_memory() -> None:
    """There is some."""
    assert memory.free() > 0
