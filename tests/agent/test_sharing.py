"""Time shares in the node plugin: its own process, real sockets, programs that use a simulated GPU through the gate."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpu.model.annotations import Reason
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu_node.shares.rules.protocol import Ask, encode
from tests.agent.sharing import Scene, Sharer
from tests.agent.stage import PATIENCE, Api, Node
from tests.cluster.testbed import ControlPlane, until
from tests.gate.building import Built, gate_and_driver
from tests.gate.standin.board import busy
from tests.node.conftest import Child

pytestmark = [pytest.mark.root, pytest.mark.cluster]
MIB = 2**20
PATIENT = {"penalties": {"grace": 30_000_000}, "timing": {"savings": 40}}
"""A busy machine makes no program late, and there is more to save than a restart takes."""
STRICT = {"penalties": {"grace": 100_000, "strikes": 1}}
"""A program that is late once has lost the share, and another has its turn although the work may run on."""


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Gate and stand-in driver."""
    return gate_and_driver(tmp_path_factory.mktemp("gate"))


@pytest.fixture(scope="module")
def place(plane: ControlPlane, api: Api) -> Iterator[Node]:
    """A node; its plugin does not run yet."""
    made = Node(plane, api, shares=PATIENT)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def strict(plane: ControlPlane, api: Api, built: Built, tmp_path: Path) -> Iterator[Scene]:
    """A node whose plugin is strict, to put pods on."""
    made = Node(plane, api, shares=STRICT)
    try:
        yield Scene(made, built, tmp_path)
    finally:
        made.close()


@pytest.fixture
def scene(place: Node, built: Built, tmp_path: Path) -> Iterator[Scene]:
    """The node, to put pods on."""
    yield Scene(place, built, tmp_path)
    place.clear()
    place.stop()


def two(scene: Scene, one: int = 250, other: int = 500) -> tuple[str, Sharer, Sharer]:
    """A GPU and two pods that share it."""
    gpu = scene.node.uuids[0]
    first, second = scene.sharer(), scene.sharer()
    scene.start()
    for sharer, milli in ((first, one), (second, other)):
        sharer.pod.allocate((gpu, milli))
        sharer.pod.until_has(gpu)
        assert sharer.socket(gpu).is_socket(), "The socket exists before the pod learns that it has the share."
    return gpu, first, second


def runs_on(child: Child, more: int = 20) -> None:
    """Until the program has launched so many kernels from now on."""
    before = child.run("count")
    until(
        lambda: child.run("count") >= before + more or child.run("failed"), PATIENCE, "the program to go on", every=0.05
    )
    assert child.run("failed") == ""


def test_two_shares_of_a_gpu(scene: Scene) -> None:
    """Each has at least what it was given, no two programs run at once, and files and figures say the same."""
    gpu, first, second = two(scene)
    programs = [first.busy(gpu), second.busy(gpu)]
    for program in programs:
        runs_on(program)
    board = scene.board(gpu)

    def has_its_part() -> bool:
        """Say whether each has its part; banked time is used first."""
        since = time.monotonic_ns() // 1000
        for program in programs:
            runs_on(program, 300)
        small, large = (busy(board.log(), sharer.pod.uid, since) for sharer in (first, second))
        return small >= 0.2 * (small + large) and large >= 0.45 * (small + large)

    until(has_its_part, PATIENCE, "each to have its part")
    assert board.sums().overlaps == 0
    until(lambda: first.served(gpu, 250) and second.served(gpu, 500), PATIENCE, "both files")
    names = {"namespace": "default", "pod": second.pod.name, "gpu": gpu}
    assert scene.metric("jupyter_gpu_share_milli", **names) == 500
    assert scene.metric("jupyter_gpu_share_programs", **names) == 1
    used = "jupyter_gpu_share_used_seconds_total"
    until(lambda: (scene.metric(used, **names, kind="guaranteed") or 0) > 0.5, PATIENCE, "the figure")


def test_a_share_becomes_a_whole_gpu_and_back(scene: Scene) -> None:
    """All work of its running program is done, and none of another program beside it."""
    gpu = scene.node.uuids[1]
    only, other = scene.sharer(), scene.sharer()
    scene.start()
    only.pod.allocate((gpu, 250))
    only.pod.until_has(gpu)
    program = only.busy(gpu)
    runs_on(program)
    for generation, milli in ((2, 1000), (3, 500)):
        only.pod.allocate((gpu, milli), generation=generation)
        until(lambda milli=milli: only.served(gpu, milli), PATIENCE, f"the share to be {milli}")  # type: ignore[misc]
        runs_on(program)
    other.pod.allocate((gpu, 500))
    other.pod.until_has(gpu)
    runs_on(other.busy(gpu))
    runs_on(program)
    assert scene.board(gpu).sums().overlaps == 0


def test_killed_plugin_frees_no_program(scene: Scene) -> None:
    """Programs wait, go on with the next one, and what was saved is not lost; no two of them run at once."""
    gpu, first, second = two(scene)
    until(lambda: (first.use(gpu) or second.use(gpu)) is not None, PATIENCE, "the files")
    idle = scene.sharer()
    programs = [first.busy(gpu), second.busy(gpu)]
    for program in programs:
        runs_on(program)
    scene.node.kill()
    scene.start()
    idle.pod.allocate((gpu, 250))
    idle.pod.until_has(gpu)
    until(lambda: idle.saved(gpu) > 700_000, PATIENCE, "the idle share to have saved", every=0.05)
    scene.node.kill()
    begin = time.time()
    scene.start()
    until(lambda: idle.written(gpu) > begin, PATIENCE, "the next file", every=0.02)
    found = idle.use(gpu)
    assert found
    assert found.balance > 500_000, "What it had saved before is still its own: it could not save that in a moment."
    for program in programs:
        runs_on(program)
    assert scene.board(gpu).sums().overlaps == 0


def test_a_plugin_that_starts_while_the_api_server_is_away(scene: Scene) -> None:
    """Programs on shares and on whole GPUs go on as before; later decisions are carried out."""
    alone = scene.sharer()
    gpu, first, second = two(scene)
    whole = scene.node.uuids[1]
    alone.pod.allocate(whole)
    alone.pod.until_has(whole)
    programs = [first.busy(gpu), second.busy(gpu), alone.busy(whole)]
    for program in programs:
        runs_on(program)
    scene.node.kill()
    with scene.node.plane.without("apiserver"):
        scene.node.start(wait=False)
        for program in programs:
            runs_on(program, 200)
        scene.node.kill()  # what was kept is still there
        scene.node.start(wait=False)
        for program in programs:
            runs_on(program, 200)
        assert first.served(gpu, 250)
        assert second.served(gpu, 500)
        assert "not known" in scene.node.get("/readyz"), "It does nothing else before it knows more."
    until(scene.node.synced, PATIENCE, "the plugin to know its pods")
    second.pod.allocate((gpu, 250), generation=2)
    until(lambda: second.served(gpu, 250), PATIENCE, "the next decision")
    for program in programs:
        runs_on(program)
    assert scene.board(gpu).sums().overlaps == 0


def ended(connection: socket.socket) -> bool:
    """Whether the other end closes it; what it says before does not count."""
    connection.settimeout(PATIENCE)
    try:
        while connection.recv(1024):
            pass
    except ConnectionResetError:
        pass
    return True


def test_the_socket_of_another_pod(scene: Scene) -> None:
    """A process in no pod, or in another one, gets nothing by it."""
    gpu, first, second = two(scene)
    path = str(first.socket(gpu))
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(path)
        assert ended(stranger)
    thief = second.pod.spawn()
    thief.run(f"global s; s = socket.socket(socket.AF_UNIX); s.settimeout({PATIENCE}); s.connect({path!r})")
    assert thief.run("s.recv(32)") == b""
    until(lambda: "is in no pod, and the socket is that of pod" in scene.node.log(), PATIENCE, "the log")
    owner = first.pod.spawn()
    owner.run(f"global s; s = socket.socket(socket.AF_UNIX); s.settimeout({PATIENCE}); s.connect({path!r})")
    owner.run(f"s.sendall({encode(Ask(0))!r})")
    assert len(owner.run("s.recv(32)")) == 32


def test_a_share_that_is_taken_away(strict: Scene) -> None:
    """A program that keeps the GPU loses the share: closed, its processes ended, and told why; until asked anew.

    All of them: also the container's first process, which is connected as the Jupyter server is, before all others.
    """
    gpu, hog, other = two(strict)
    device = strict.node.nodes[0]
    first, rude, holder = hog.pod.spawn(), hog.pod.spawn(), hog.pod.spawn()
    path, node = str(hog.socket(gpu)), str(hog.directory() / "node.sock")
    first.run(f'global s; s = socket.socket(socket.AF_UNIX); s.connect({node!r}); s.sendall(b\'{{"get": "node"}}\\n\')')
    first.run("s.recv(1)")
    for child in (holder, first):
        child.run(f"global held; held = open_device({str(device)!r})")
    rude.run(f"global s; s = socket.socket(socket.AF_UNIX); s.connect({path!r}); s.sendall({encode(Ask(0))!r})")
    assert len(rude.run("s.recv(32)")) == 32
    program = other.busy(gpu)
    until(lambda: "GpuShareTaken" in hog.pod.events(), PATIENCE, "the event")
    for child in (holder, first):
        assert child.process.wait(PATIENCE) == -9, "It had the GPU open."
    hog.pod.until_has()
    runs_on(program)
    assert rude.probe(device) == "-"
    until(lambda: not hog.socket(gpu).exists(), PATIENCE, "the socket to be gone")
    assert strict.metric("jupyter_gpu_shares_taken_total") == 1
    strict.node.kill()
    strict.start()  # it is not forgotten
    until(lambda: other.served(gpu, 500), PATIENCE)
    assert hog.pod.has == []
    assert rude.probe(device) == "-"
    hog.pod.allocate((gpu, 250), generation=2)
    hog.pod.until_has(gpu)
    assert rude.probe(device) == "+"
    runs_on(hog.busy(gpu))


def test_a_lost_record_of_slots(scene: Scene) -> None:
    """Nothing fails without it; when it is known again whose slots they are, shares are served."""
    gpu, first, second = two(scene)
    scene.node.kill()
    (Path(scene.node.settings["state"]) / "slots.json").write_text("{")
    scene.start()
    third = scene.sharer()
    scene.node.kill()
    scene.start()
    third.pod.allocate((gpu, 250))
    third.pod.until_has(gpu)
    for sharer in (first, second, third):
        runs_on(sharer.busy(gpu))


def test_a_limit_of_memory(scene: Scene) -> None:
    """A share gets the limit that its user asked for, also after a change; a whole GPU has no limit."""
    gpu = scene.node.uuids[2]
    sharer = scene.sharer()
    sharer.wish(64 * MIB)
    scene.start()
    sharer.pod.allocate((gpu, 250))
    sharer.pod.until_has(gpu)
    program = sharer.program(gpu)
    program.run("driver.start()")
    allocate = "driver.raw('cuMemAlloc_v2', driver.ctypes.byref(driver.ctypes.c_uint64()), {})"
    assert program.run(allocate.format(65 * MIB)) == 2, "Out of memory."
    assert program.run(allocate.format(60 * MIB)) == 0
    sharer.wish(200 * MIB)
    until(lambda: program.run(allocate.format(100 * MIB)) == 0, PATIENCE, "the limit to rise", every=0.05)
    names = {"namespace": "default", "pod": sharer.pod.name, "gpu": gpu}
    used = "jupyter_gpu_share_memory_bytes"
    until(lambda: 160 * MIB <= (scene.metric(used, **names) or 0) <= 200 * MIB, PATIENCE, "the figure")
    assert scene.metric("jupyter_gpu_share_memory_limit_bytes", **names) == 200 * MIB
    sharer.pod.allocate((gpu, 1000), generation=2)
    until(lambda: program.run(allocate.format(300 * MIB)) == 0, PATIENCE, "a whole GPU", every=0.05)


def test_every_container_of_a_pod_finds_the_share(scene: Scene) -> None:
    """Each of two slots has the socket and the file; both are gone with the share, and what lay there before too."""
    gpu = scene.node.uuids[3]
    sharer = scene.sharer(slots=2)
    for slot in (0, 1):
        folder = sharer.directory(slot) / "shares"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "GPU-of-another-pod.json").write_text("{}")
    scene.start()
    sharer.pod.allocate((gpu, 500))
    sharer.pod.until_has(gpu)
    until(lambda: all(sharer.use(gpu, slot) for slot in (0, 1)), PATIENCE, "both files")
    programs = [sharer.program(gpu, slot) for slot in (0, 1)]
    for program in programs:
        program.run("threading.Thread(target=work, args=(1000, None), daemon=True).start()")
        runs_on(program)
    scene.node.kill()
    scene.start()  # sockets are made anew
    for program in programs:
        runs_on(program)
    folders = [sharer.directory(slot) / "shares" for slot in (0, 1)]
    # a file that is being replaced has another one beside it
    shown = {f"{gpu}.sock", f"{gpu}.json"}
    until(lambda: all({path.name for path in folder.iterdir()} == shown for folder in folders), PATIENCE, "both")
    for program in programs:
        program.end()
    sharer.pod.allocate(generation=2)
    sharer.pod.until_has()
    until(lambda: not any(list(folder.iterdir()) for folder in folders), PATIENCE, "the share to be gone")


def test_draining_program_keeps_its_turns_until_it_has_ended(scene: Scene) -> None:
    """A program that has a taken GPU open can end in order; no other pod is given the GPU meanwhile."""
    gpu, leaving, _ = two(scene)
    program = leaving.busy(gpu, device=scene.node.nodes[0])
    runs_on(program)
    leaving.pod.allocate(generation=2)
    leaving.pod.until_has(draining=(gpu,))
    runs_on(program)
    assert leaving.socket(gpu).exists()
    program.end()
    leaving.pod.until_has()
    until(lambda: not leaving.socket(gpu).exists(), PATIENCE, "the share to be gone")


GIB = 2**30
TAKES = "driver.raw('cuMemAlloc_v2', driver.ctypes.byref(driver.ctypes.c_uint64()), {})"
"""Takes so many bytes of memory; 0, or 2: there is no more."""


def memory_program(sharer: Sharer, gpu: str) -> Child:
    """Return a program that can take memory of the GPU, which has 24 GiB."""
    program = sharer.program(gpu, mib=24 * 1024)
    program.run("driver.start()")
    return program


def test_memory_beyond_a_part_waits_until_others_have_freed_it(scene: Scene) -> None:
    """The others are limited at once and keep what they have; what a pod has stays open while it waits for more.

    Also by the next plugin, which first hears again from programs how much they have.
    """
    gpu = scene.node.uuids[3]
    plain, small, big = (scene.sharer(gated=True) for _ in range(3))
    scene.start()
    plain.pod.allocate((gpu, 250))
    small.pod.allocate((gpu, 250))
    for sharer in (plain, small):
        sharer.pod.until_has(gpu)
    first, second = memory_program(plain, gpu), memory_program(small, gpu)
    assert first.run(TAKES.format(35 * GIB // 2)) == 0, "It has no limit: no share has more than its part."
    small.pod.allocate(GpuShare(gpu, 250, 7 * GIB), generation=2)
    big.pod.allocate(GpuShare(gpu, 1, 10 * GIB))
    until(lambda: (attached := small.pod.attached) and attached.reason is Reason.DRAINING, PATIENCE, "the reason")
    scene.node.kill()
    scene.start()
    until(lambda: (attached := big.pod.attached) and attached.reason is Reason.DRAINING, PATIENCE, "the reason")
    assert big.pod.has == []
    assert small.pod.attached
    assert small.pod.attached.shares == (GpuShare(gpu, 250),)
    assert first.run(TAKES.format(1 * GIB)) == 2, "It is limited to its part, 6 GiB."
    assert second.run(TAKES.format(6 * GIB)) == 0
    assert second.run(TAKES.format(GIB // 2)) == 2
    first.end()
    for sharer, share in ((small, GpuShare(gpu, 250, 7 * GIB)), (big, GpuShare(gpu, 1, 10 * GIB))):
        until(
            lambda sharer=sharer, share=share: (found := sharer.pod.attached) and found.shares == (share,),  # type: ignore[misc]
            PATIENCE,
            "the share",
        )
    until(lambda: second.run(TAKES.format(GIB // 2)) == 0, PATIENCE, "the limit to rise", every=0.05)
    third = memory_program(big, gpu)
    assert third.run(TAKES.format(10 * GIB)) == 0
    assert third.run(TAKES.format(1 * GIB)) == 2


def test_a_guest_beside_a_lendable_gpu(scene: Scene) -> None:
    """Owner and guest have the memory that is theirs, also by the next plugin, and never run at once.

    The owner has all of the memory again once the guest has closed the GPU.
    """
    gpu, lent, whole = scene.node.uuids[3], GpuShare(scene.node.uuids[3], 1000, 18 * GIB), (scene.node.uuids[3], 1000)
    owner, guest = scene.sharer(gated=True), scene.sharer(gated=True)
    scene.start()
    owner.pod.allocate(whole)
    owner.pod.until_has(gpu)
    first = memory_program(owner, gpu)
    assert first.run(TAKES.format(17 * GIB)) == 0
    owner.pod.allocate(lent, generation=2)
    guest.pod.allocate(GpuShare(gpu, 0, 6 * GIB))
    guest.pod.until_has(gpu)
    second = memory_program(guest, gpu)
    scene.node.kill()
    scene.start()
    assert [sharer.pod.attached.shares for sharer in (owner, guest) if sharer.pod.attached] == [
        (lent,),
        (GpuShare(gpu, 0, 6 * GIB),),
    ]
    until(lambda: first.run(TAKES.format(3 * GIB // 2)) == 2, PATIENCE, "the limit of the owner", every=0.05)
    assert first.run(TAKES.format(GIB // 2)) == 0
    assert second.run(TAKES.format(5 * GIB)) == 0
    assert second.run(TAKES.format(3 * GIB // 2)) == 2
    runs = guest.busy(gpu)
    runs_on(runs)
    works = owner.busy(gpu)
    runs_on(works)
    assert scene.board(gpu).sums().overlaps == 0
    works.end()
    owner.pod.allocate(whole, generation=3)
    until(lambda: (found := owner.pod.attached) and found.reason is Reason.DRAINING, PATIENCE, "the owner to wait")
    assert owner.pod.attached
    assert owner.pod.attached.shares == (lent,)
    guest.pod.allocate(generation=2)
    for program in (runs, second):
        program.end()
    until(lambda: (found := owner.pod.attached) and found.shares == (GpuShare(*whole),), PATIENCE, "the whole GPU")
    until(lambda: first.run(TAKES.format(3 * GIB // 2)) == 0, PATIENCE, "the limit to end", every=0.05)


def test_pod_without_the_gate_leaves_no_room(scene: Scene) -> None:
    """Nobody knows what its programs take; nor may it open a GPU whose memory was divided."""
    gpu = scene.node.uuids[3]
    bare, late, big = scene.sharer(), scene.sharer(), scene.sharer(gated=True)
    scene.start()
    bare.pod.allocate((gpu, 1))
    bare.pod.until_has(gpu)
    big.pod.allocate(GpuShare(gpu, 1, 10 * GIB))
    until(lambda: (attached := big.pod.attached) and attached.reason is Reason.DRAINING, PATIENCE, "the reason")
    bare.pod.allocate(generation=2)
    big.pod.until_has(gpu)
    late.pod.allocate((gpu, 1))
    until(lambda: (attached := late.pod.attached) and attached.reason is Reason.DRAINING, PATIENCE, "the reason")
    assert late.pod.has == []
