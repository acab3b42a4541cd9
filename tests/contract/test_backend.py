"""The contract of every backend: the same tests on each."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import pytest

from jupyter_gpu.backends.base import Backend
from jupyter_gpu.model.annotations import Reason, Wish
from jupyter_gpu.model.errors import BackendUnavailable, GpuError, Infeasible, LimitExceeded, StaleGeneration
from jupyter_gpu.model.reservation import Reservation, ReservationOwner
from jupyter_gpu.model.status import Phase
from jupyter_gpu.model.view import GpuState, Mode, View
from jupyter_gpu.server.reservations import Reservations

from .backends import reaches, running
from .conftest import Make


def run(make: Make, play: Callable[[Backend], Awaitable[None]], **options: object) -> None:
    """Run a test with a backend of the kind, started."""

    async def whole() -> None:
        async with running(make(**options)) as backend:
            await play(backend)

    asyncio.run(whole())


def test_new_pod_has_nothing_and_its_view_shows_the_machine(make: Make) -> None:
    """The first view has no GPU, the machine's amounts, the steps of the slider and an instance."""

    async def play(backend: Backend) -> None:
        view = backend.view()
        assert view.status.phase is Phase.IDLE
        assert (view.total, view.limit) == (3000, 3000)
        assert view.steps == (0, 250, 500, 1000, 2000, 3000)
        assert view.gpus == ()
        assert view.instance
        assert view.backend == backend.name
        assert View.from_json(view.to_json()) == view

    run(make, play)


def test_wish_is_recorded_decided_and_attached(make: Make) -> None:
    """The answer to a request is the view after it, with one card for each GPU."""

    async def play(backend: Backend) -> None:
        for amount in (1000, 3000, 2000, 500, 0):
            view = await backend.request(Wish(amount))
            assert view.status.requested == view.status.allocated == view.status.attached == amount
            assert view.status.phase is (Phase.READY if amount else Phase.IDLE)
            assert sum(card.milli for card in view.gpus) == amount
            assert all(card.state is GpuState.ATTACHED for card in view.gpus)
            assert backend.view() == view

    run(make, play)


def test_pieces_are_on_different_gpus(make: Make) -> None:
    """`each` divides the amount."""

    async def play(backend: Backend) -> None:
        view = await backend.request(Wish(1500, each=500))
        assert [card.milli for card in view.gpus] == [500, 500, 500]

    run(make, play)


def test_new_wish_is_a_generation_and_the_same_one_is_not(make: Make) -> None:
    """Generations count the user's changes."""

    async def play(backend: Backend) -> None:
        assert (await backend.request(Wish(1000))).generation == 1
        assert (await backend.request(Wish(1000))).generation == 1
        assert (await backend.request(Wish(2000), generation=1)).generation == 2

    run(make, play)


def test_reservations_add_to_the_base(make: Make) -> None:
    """With reservations and a request beside them, what is recorded keeps the base and all else."""

    class Seen:
        async def check(self, owner: ReservationOwner) -> None:
            pass

        def pid_of(self, owner: ReservationOwner) -> int | None:
            return None

        def watch(self, owners: Iterable[ReservationOwner], ended: Callable[[ReservationOwner], None]) -> None:
            pass

    async def play(backend: Backend) -> None:
        reservations, owner = Reservations(backend, Seen()), ReservationOwner(1, 1, 1)
        await reservations.request(lambda _: Wish(1000, priority=3), None)
        await reservations.begin(Reservation("a", 2000, owner))
        view = await reservations.begin(Reservation("b", 3000, owner))
        assert view.requested
        assert view.requested.wish == Wish(3000, priority=3, base=1000)
        assert view.status.attached == 3000
        await reservations.end("b")
        await reaches(backend, lambda view: view.status.attached == 2000)
        await reservations.request(lambda _: Wish(0), None)
        view = await reservations.end("a")
        await reaches(backend, lambda view: view.status.phase is Phase.IDLE)
        reservations.stop()

    run(make, play)


def test_stale_generation_changes_nothing(make: Make) -> None:
    """A client that did not see the latest wish cannot replace it unknowingly."""

    async def play(backend: Backend) -> None:
        before = await backend.request(Wish(1000), generation=0)
        for generation in (0, 2, 7):
            with pytest.raises(StaleGeneration) as caught:
                await backend.request(Wish(2000), generation)
            assert caught.value.current == 1
        assert backend.view() == before

    run(make, play)


@pytest.mark.parametrize(
    ("wish", "error"),
    [
        (Wish(2500), LimitExceeded),
        (Wish(1_000_000), LimitExceeded),
        (Wish(1000, model=("Abacus",)), Infeasible),
        (Wish(1000, memory=2**50), Infeasible),
        (Wish(2000, each=500), Infeasible),
    ],
)
def test_infeasible_wish_is_refused_and_not_recorded(make: Make, wish: Wish, error: type[GpuError]) -> None:
    """The previous wish stands, with what was attached for it."""

    async def play(backend: Backend) -> None:
        before = await backend.request(Wish(1000))
        with pytest.raises(error):
            await backend.request(wish)
        assert backend.view() == before

    run(make, play, limit=2000)


def test_limit_shows_in_the_view(make: Make) -> None:
    """The slider ends at the limit; a limit above the machine's amount means that amount."""

    async def play(backend: Backend) -> None:
        assert backend.view().steps[-1] == backend.view().limit

    run(make, play, limit=1500)
    run(make, play, limit=9000)


def test_wish_beyond_the_free_gpus_is_granted_in_part_and_completed_later(make: Make) -> None:
    """The second of two servers waits in the queue, keeps what it got, and is served when the first gives back."""

    async def play(first: Backend) -> None:
        await first.request(Wish(2000))
        async with running(make()) as second:
            view = await second.request(Wish(2000))
            assert (view.status.phase, view.status.reason) == (Phase.WAITING, Reason.PARTIAL)
            assert view.status.attached == 1000
            assert view.allocated is not None
            assert view.allocated.position == 1
            await first.request(Wish(1000))
            view = await reaches(second, lambda view: view.status.phase is Phase.READY)
            assert not {card.gpu.uuid for card in view.gpus} & {card.gpu.uuid for card in first.view().gpus}

    run(make, play)


def test_queue_is_first_come_first_served_within_a_priority(make: Make) -> None:
    """Three servers want the same GPUs: the urgent one is served first, the others in the order of asking."""

    async def play(holder: Backend) -> None:
        await holder.request(Wish(3000))
        async with running(make()) as early, running(make()) as late, running(make(priority=5)) as urgent:
            for backend in (early, late, urgent):
                assert (await backend.request(Wish(1000))).status.reason is Reason.DEFERRED
            for amount, served in ((2000, urgent), (1000, early), (0, late)):
                await holder.request(Wish(amount))
                await reaches(served, lambda view: view.status.phase is Phase.READY)
                ready = [backend.view().status.phase is Phase.READY for backend in (urgent, early, late)]
                assert ready == sorted(ready, reverse=True)

    run(make, play)


def test_waiting_wish_can_be_cancelled(make: Make) -> None:
    """Cancelling leaves the queue, and those behind move up."""

    async def play(holder: Backend) -> None:
        await holder.request(Wish(3000))
        async with running(make()) as first, running(make()) as second:
            await first.request(Wish(2000))
            await second.request(Wish(1000))
            assert (await first.request(Wish(0))).status.phase is Phase.IDLE
            await reaches(second, lambda view: view.allocated is not None and view.allocated.position == 1)

    run(make, play)


def test_views_are_published_in_order_and_only_on_change(make: Make) -> None:
    """Versions rise by one; consecutive views differ in more than the version."""

    async def play(backend: Backend) -> None:
        seen: list[View] = []
        stop = backend.subscribe(seen.append)
        before = backend.view().version
        for amount in (1000, 2000, 2000, 0):
            await backend.request(Wish(amount))
        assert [view.version for view in seen] == list(range(before + 1, before + 1 + len(seen)))
        assert all(view.instance == seen[0].instance for view in seen)
        assert [view.generation for view in seen] == sorted(view.generation for view in seen)
        count = len(seen)
        await backend.request(Wish(0))
        assert len(seen) == count
        stop()
        await backend.request(Wish(1000))
        assert len(seen) == count

    run(make, play)


def test_failing_listener_affects_no_other(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """The others get the view all the same, and the failure is logged."""

    async def play(backend: Backend) -> None:
        def bad(_: View) -> None:
            raise ZeroDivisionError

        seen: list[View] = []
        backend.subscribe(bad)
        backend.subscribe(seen.append)
        assert (await backend.request(Wish(1000))).status.phase is Phase.READY
        assert seen
        assert "A listener" in caplog.text

    run(make, play)


def test_many_requests_at_once_end_in_the_last_one(make: Make) -> None:
    """Each of 200 concurrent requests is answered, generations count them, and nothing is left over."""

    async def play(backend: Backend) -> None:
        amounts = [1000 * (number % 4) for number in range(200)]
        views = await asyncio.gather(*(backend.request(Wish(amount)) for amount in amounts))
        assert len(views) == 200
        final = backend.view()
        assert final.generation == 200
        assert (final.status.requested, final.status.attached) == (3000, 3000)

    run(make, play)


def test_request_of_a_vanished_caller_is_done_wholly_or_not_at_all(make: Make) -> None:
    """A browser that closes its tab leaves no half-done resize behind, and the next request works."""

    async def play(backend: Backend) -> None:
        for _ in range(20):
            task = asyncio.create_task(backend.request(Wish(2000)))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            view = await backend.request(Wish(1000))
            assert (view.status.phase, view.status.attached) == (Phase.READY, 1000)

    run(make, play)


def test_sample_has_the_load_of_the_pods_gpus_alone(make: Make) -> None:
    """It has one load for each attached GPU, and none when nothing is attached."""

    async def play(backend: Backend) -> None:
        assert (await backend.sample()).loads == {}
        view = await backend.request(Wish(2000))
        sample = await backend.sample()
        assert sample.loads.keys() == {card.gpu.uuid for card in view.gpus}
        assert sample.to_json()["gpus"]

    run(make, play)


def test_details_are_of_the_pods_gpus_alone(make: Make) -> None:
    """They cover each attached GPU, and none when nothing is attached."""

    async def play(backend: Backend) -> None:
        assert (await backend.details()).gpus == {}
        view = await backend.request(Wish(2000))
        details = await backend.details()
        assert details.gpus.keys() == {card.gpu.uuid for card in view.gpus}
        assert all(found.slowdown for found in details.gpus.values())

    run(make, play)


def test_nothing_blocks_the_event_loop(make: Make) -> None:
    """While requests are processed the loop keeps running: no pause comes near the time of a scan of /proc."""

    async def play(backend: Backend) -> None:
        loop = asyncio.get_running_loop()
        pauses = []

        async def tick() -> None:
            last = loop.time()
            while True:
                await asyncio.sleep(0.001)
                pauses.append(loop.time() - last)
                last = loop.time()

        ticker = asyncio.create_task(tick())
        for amount in (1000, 3000, 1000, 0) * 5:
            await backend.request(Wish(amount))
        ticker.cancel()
        assert sorted(pauses)[len(pauses) // 2] < 0.02

    run(make, play)


def test_stopped_backend_grants_nothing(make: Make) -> None:
    """It reports that it is stopped, can be stopped again, and its GPUs are free."""

    async def play(first: Backend) -> None:
        await first.request(Wish(3000))
        await first.stop()
        await first.stop()
        with pytest.raises(BackendUnavailable):
            await first.request(Wish(1000))
        async with running(make()) as second:
            assert (await second.request(Wish(3000))).status.phase is Phase.READY

    run(make, play)


def test_caller_that_cannot_await_can_wait_for_the_guard(make: Make) -> None:
    """After the first step of the start a caller may block the loop until the pod is guarded."""

    async def whole() -> None:
        backend = make()
        own = backend.name == "local"  # in a cluster the pod was guarded before this process began
        starting = asyncio.create_task(backend.start())
        await asyncio.sleep(0)
        backend.await_guard()
        groups = Path("/proc/self/cgroup").read_text()
        await starting
        try:
            view = backend.view()
            assert (f"jupyter-gpu-{view.instance}" in groups) == (own and view.mode is Mode.ENFORCED)
        finally:
            await backend.stop()

    asyncio.run(whole())
