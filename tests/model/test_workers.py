"""Workers that a kernel started, recognised by their command lines and files."""

from __future__ import annotations

import pytest

from jupyter_gpu.model.workers import SELF, ChildProcess, Worker, describe, worker

PYTHON = ("python", "-m", "ipykernel_launcher")
SPAWNED = ("python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main(…)", "--multiprocessing-fork")
FORKSERVER = ("python", "-c", "from multiprocessing.forkserver import main; main(5, 6, ['__main__'])")
LOKY = ("python", "-m", "joblib.externals.loky.backend.popen_loky_posix", "--process-name", "LokyProcess-1")


@pytest.mark.parametrize(
    ("command", "arguments", "forked", "loaded", "kind", "advice"),
    [
        ("pt_data_worker", PYTHON, True, (), "a DataLoader worker", "del loader"),
        ("python", PYTHON, True, ("torch.utils.data.dataloader",), "a DataLoader worker", "del loader"),
        ("python", PYTHON, True, (), "a multiprocessing worker", "pool.terminate()"),
        ("python", SPAWNED, False, (), "a multiprocessing worker", "executor.shutdown()"),
        ("python", FORKSERVER, False, (), "a multiprocessing worker", "pool.terminate()"),
        ("python", LOKY, False, (), "a joblib (loky) worker", "get_reusable_executor().shutdown"),
        ("python", SPAWNED, False, ("distributed",), "a Dask or multiprocessing worker", "client.close()"),
        ("dask", ("python", "-m", "distributed.cli.dask_worker"), False, (), "a Dask worker", "cluster.close()"),
        ("dask", ("/envs/a/bin/python", "/envs/a/bin/dask", "worker"), False, (), "a Dask worker", "cluster.close()"),
        ("python", ("/envs/dask/bin/python", *SPAWNED[1:]), False, (), "a multiprocessing worker", "pool.terminate()"),
        ("python", (*FORKSERVER[:2], f"{FORKSERVER[2]}; '/dask'"), False, (), "a multiprocessing worker", "pool."),
        ("dask", ("dask worker [tcp://127.0.0.1:40123]",), False, (), "a Dask worker", "cluster.close()"),
        ("train", ("./train",), False, ("distributed",), "a program that you started here", "process.terminate()"),
    ],
)
def test_workers_are_recognised(
    command: str, arguments: tuple[str, ...], forked: bool, loaded: tuple[str, ...], kind: str, advice: str
) -> None:
    """Each kind has its advice; only a program may end while this process waits."""
    found = worker(ChildProcess(5, command, arguments, forked), loaded)
    assert found.kind == kind
    assert advice in found.advice
    assert found.waits == (command != "train")


def test_sentence_names_the_first_of_many() -> None:
    """All are named, or the first of many; each advice once."""
    pool = [worker(ChildProcess(pid, "python", PYTHON, forked=True), ()) for pid in range(3, 10)]
    assert describe(pool[:1]).startswith("Still open: a multiprocessing worker (process 3) has it. To end it: pool.")
    text = describe(pool)
    assert "(process 5) and 4 others have it. To end them: " in text
    assert text.count("pool.terminate()") == 1
    assert "this process itself and a multi" in describe([Worker(1, SELF), pool[0]])
