"""From a process to the notebook behind it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jupyter_server.serverapp import ServerApp

from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.titles import Title
from jupyter_gpu.model.view import GpuState, GpuUser, PodGpu
from jupyter_gpu.server.notebooks import Names, Notebooks, Origin, named, origin_of, parent_of
from tests.server.conftest import Call, Connect, Fetch
from tests.server.views.test_events import view

KERNEL = Origin(kernel="k-1")
TERMINAL = Origin(terminal="1")
TREE = {10: 1, 20: 10, 21: 20, 22: 21, 30: 10, 31: 30, 40: 1}


def test_process_belongs_to_the_nearest_kernel_above() -> None:
    """The depth does not matter, and the kernel itself belongs to it too."""
    roots = {20: KERNEL, 30: TERMINAL}
    assert [origin_of(pid, roots, TREE.get) for pid in (20, 21, 22)] == [KERNEL] * 3
    assert origin_of(31, roots, TREE.get) == TERMINAL
    assert origin_of(22, {20: TERMINAL, 21: KERNEL}, TREE.get) == KERNEL


def test_unrelated_process_has_no_origin() -> None:
    """The server itself, an unrelated process and one that has ended have none."""
    roots = {20: KERNEL}
    assert [origin_of(pid, roots, TREE.get) for pid in (10, 40, 1, 0, 999)] == [Origin()] * 5


@given(st.dictionaries(st.integers(1, 20), st.integers(0, 20)), st.integers(0, 20))
def test_search_of_parents_ends(parents: dict[int, int], pid: int) -> None:
    """It ends even if reused pids form a circle."""
    assert origin_of(pid, {21: KERNEL}, parents.get) == Origin()


def test_parent_is_read_from_proc() -> None:
    """The name that the process gives itself does not matter."""
    odd = "x) R 1 (y"
    code = f"import ctypes; ctypes.CDLL(None).prctl(15, {odd.encode()!r}); print('ready', flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        assert odd in Path(f"/proc/{child.pid}/stat").read_text()
        assert parent_of(child.pid) == os.getpid()
    finally:
        child.communicate(b"\n")
    assert parent_of(child.pid) is None


def test_names_are_added_to_the_holders() -> None:
    """A holder has kernel and notebook, the kernel alone, a terminal, or none of ours."""
    users = tuple(GpuUser(pid, "python") for pid in (1, 2, 3, 4))
    gpu = PodGpu(Gpu("GPU-0", 0, "Model", 1), 1000, GpuState.ATTACHED, users)
    before = replace(view(1), gpus=(gpu,))
    origins = {1: Origin(kernel="a"), 2: Origin(kernel="b"), 3: Origin(terminal="1")}
    names = Names(origins, {"a": Title("work/x.ipynb", "x.ipynb"), "b": None})
    after = named(before, names).gpus[0].users
    assert [(user.kernel, user.notebook, user.label) for user in after] == [
        ("a", "work/x.ipynb", "x.ipynb"),
        ("b", None, None),
        (None, "terminal 1", None),
        (None, None, None),
    ]
    assert named(before, Names({}, {})) is before
    assert [names.label(pid) for pid in (1, 2, 3, 4, None)] == ["x.ipynb", None, "terminal 1", None, None]
    assert (names.label(None, "a"), names.label(4, "a")) == ("x.ipynb", None)  # what is seen is believed first


@pytest.fixture
def gpu_path(put: Call) -> Callable[[], Any]:
    """Ask for a GPU, and return the path of its device."""

    async def path() -> str:
        view = (await put({"gpus": 1})).body
        assert isinstance(view["gpus"][0]["path"], str)
        return view["gpus"][0]["path"]

    return path


async def users_seen(connect: Connect) -> AsyncIterator[list[dict[str, Any]]]:
    """Yield the users of the first GPU, for each view that the panel gets."""
    stream = await connect()
    while (message := await stream.read()) is not None:
        if message["type"] == "view" and message["view"]["gpus"]:
            yield message["view"]["gpus"][0]["users"]


async def run_in_kernel(app: ServerApp, kernel_id: str, code: str) -> None:
    """Run code in a real kernel."""
    manager: Any = app.kernel_manager.get_kernel(kernel_id)
    client = manager.client()
    client.start_channels()
    try:
        await client.wait_for_ready(timeout=60)
        reply = await client.execute_interactive(code, timeout=60)
        assert reply["content"]["status"] == "ok", reply["content"]
    finally:
        client.stop_channels()


async def test_panel_names_the_notebook_that_has_the_gpu_open(
    jp_fetch: Fetch, jp_serverapp: ServerApp, connect: Connect, gpu_path: Callable[[], Any]
) -> None:
    """A real kernel and a process that it starts both open the device."""
    path = await gpu_path()
    body = {"path": "work/analysis.ipynb", "name": "", "type": "notebook", "kernel": {"name": "python3"}}
    session = json.loads((await jp_fetch("api", "sessions", method="POST", body=json.dumps(body))).body)
    kernel_id = session["kernel"]["id"]
    code = f"""
import subprocess, sys
held = open({path!r})
child = subprocess.Popen([sys.executable, "-c", "held = open({path!r}); input()"], stdin=subprocess.PIPE)
"""
    await run_in_kernel(jp_serverapp, kernel_id, code)
    async with asyncio.timeout(60):
        async for users in users_seen(connect):
            if len(users) == 2:
                break
    assert {(user["kernel"], user["notebook"]) for user in users} == {(kernel_id, "work/analysis.ipynb")}
    await run_in_kernel(jp_serverapp, kernel_id, "child.communicate(b'x'); held.close()")


async def test_notebooks_of_one_name_are_distinguished_by_path(
    jp_fetch: Fetch, jp_serverapp: ServerApp, connect: Connect, gpu_path: Callable[[], Any]
) -> None:
    """The sentence uses the same labels; both notebooks have the GPU open when it is given back."""
    path = await gpu_path()
    kernels = []
    for folder in ("one", "two"):
        body = {"path": f"deep/{folder}/train.ipynb", "name": "", "type": "notebook", "kernel": {"name": "python3"}}
        session = json.loads((await jp_fetch("api", "sessions", method="POST", body=json.dumps(body))).body)
        kernels.append(session["kernel"]["id"])
        await run_in_kernel(jp_serverapp, kernels[-1], f"held = open({path!r})")
    async with asyncio.timeout(60):
        async for users in users_seen(connect):
            if len(users) == 2:
                break
    assert {(user["notebook"], user["label"]) for user in users} == {
        (f"deep/{folder}/train.ipynb", f"{folder}/train.ipynb") for folder in ("one", "two")
    }


async def test_panel_names_the_terminal_that_has_the_gpu_open(
    jp_fetch: Fetch, jp_serverapp: ServerApp, connect: Connect, gpu_path: Callable[[], Any]
) -> None:
    """The shell of a real terminal has the device open."""
    path = await gpu_path()
    name = json.loads((await jp_fetch("api", "terminals", method="POST", body="")).body)["name"]
    jp_serverapp.web_app.settings["terminal_manager"].terminals[name].ptyproc.write(f"exec 9<{path}\n")
    async with asyncio.timeout(60):
        async for users in users_seen(connect):
            if users:
                break
    assert [(user["kernel"], user["notebook"]) for user in users] == [(None, f"terminal {name}")]
    await jp_fetch("api", "terminals", name, method="DELETE")


async def test_failing_session_list_costs_only_the_name() -> None:
    """The view is sent all the same."""

    async def broken() -> Any:
        raise OSError("no sessions")

    manager = SimpleNamespace(provisioner=SimpleNamespace(pid=os.getpid()))
    kernels = SimpleNamespace(list_kernel_ids=lambda: [KERNEL.kernel], get_kernel=lambda _: manager)
    sessions = SimpleNamespace(list_sessions=broken)
    notebooks = Notebooks(kernels, sessions, lambda: None, logging.getLogger(__name__))
    gpu = PodGpu(Gpu("GPU-0", 0, "Model", 1), 1000, GpuState.ATTACHED, (GpuUser(os.getpid(), "python"),))
    before = replace(view(1), gpus=(gpu,))
    after = named(before, await notebooks.names(before))
    assert (after.gpus[0].users[0].kernel, after.gpus[0].users[0].notebook) == ("k-1", None)
