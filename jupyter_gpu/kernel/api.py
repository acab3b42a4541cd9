"""`gpu`: the object that users of a notebook, a script or a terminal call.

Only this facade is loaded in every kernel; the modules that do the work are imported at the first call.
"""

from __future__ import annotations

from . import KEEP

TYPE_CHECKING = False  # as in typing, whose import costs more than this module
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, ParamSpec, TypeVar

    import distributed

    from jupyter_gpu.kernel.reports.machine import MachineReport
    from jupyter_gpu.kernel.reports.shares import GpuUsage
    from jupyter_gpu.kernel.reports.status import GpuDevice, GpuStatus
    from jupyter_gpu.kernel.widget import GpuWidget
    from jupyter_gpu.model.view import View

    from .blocks import AtLeast
    from .changes import Callback, Changes, Subscription
    from .client import Call, Client
    from .progress import Progress
    from .task import Calls, Clients, Task
    from .waiting import Patience, Pause, Steps

    P = ParamSpec("P")
    R = TypeVar("R")


class ServerGpus:
    """The GPUs of the Jupyter server that this code belongs to, the same as in its panel.

    Every method raises `ServerUnreachable` where no server is found or none answers; one kind of
    it, OutsideServer, where this code belongs to no server and has not chosen one with `connect`.
    """

    def __init__(self, client: Client | None = None, progress: Progress | None = None) -> None:
        self._runner = Runner(client)
        self._progress = progress
        self._changes: Changes | None = None
        self._widget: GpuWidget | None = None
        self._calls: Calls | None = None
        self._clients: Clients | None = None

    def connect(self, url: str | None = None, token: str | None = None) -> None:
        """Use the Jupyter server at ``url``, as Jupyter prints it, from now on; ``token`` if it is not in there.

        Needed only where this code was not started by the server. Without ``url`` it is the only one of yours that runs
        here; OutsideServer names them if there are several. One of yours that runs here needs no token. The same can be
        said by ``JUPYTER_GPU_URL`` and ``JUPYTER_GPU_TOKEN``. Raises InvalidRequest for what is no address.
        """
        from jupyter_gpu.model.errors import InvalidRequest

        from . import discovery
        from .client import Client

        if url is None and token is not None:
            raise InvalidRequest("A token is of one server; say which: gpu.connect(url, token).", field="url")
        self._runner.use(Client(discovery.wanted() if url is None else discovery.named(url, token)))
        self._widget = None  # the one that was shown is of the other server

    def resize(
        self,
        amount: float | str = KEEP,
        *,
        each: float | str | None = KEEP,
        memory: int | str | None = KEEP,
        model: str | Iterable[str] | None = KEEP,
        vendor: str | None = KEEP,
        topology: str | None = KEEP,
        placement: str | None = KEEP,
        priority: int | str | None = KEEP,
        lendable: bool | None = KEEP,
        wait: bool = True,
        timeout: float | None = None,
    ) -> GpuStatus:
        """Have ``amount`` GPUs: ``2``, ``0.5``, ``"500m"``. Blocks until that is so and returns the status.

        ``each``: cut into shares of this size, each on another GPU. ``memory``: of each share, bytes or ``"20GiB"``,
        also more than its part where that is enforced; without ``amount`` of the least share, which runs in time that
        others leave.
        ``model``: acceptable models. ``vendor``: ``"nvidia"``, ``"amd"``, where nodes have GPUs of several.
        ``topology``: ``"island"`` (one NVLink island) or ``"switch"`` (one PCIe switch).
        ``placement``: ``"local"`` (this node alone) or ``"any"`` (other nodes, too, where a cluster lets them serve).
        ``priority``: 0–9, higher is served first.
        ``lendable``: whether whole GPUs may serve others while they rest, for a quarter of their memory, where a
        cluster lends and no limit decides that.
        What you do not name stays as it is; None or ``"any"`` takes it back.
        ``wait=False`` returns at once; ``timeout`` is in seconds.

        Raises InvalidRequest, LimitExceeded or Infeasible, and nothing was changed; or, when the time is over,
        NoCapacity (not enough is free) or Draining (what is given back is still open), and the request stands.
        Draining is raised at once where this kernel itself has the GPU open: to wait would never end.
        """
        asked = self._asked(amount, each, memory, model, vendor, topology, placement, priority, lendable)
        steps = self._resize(asked, wait, timeout)
        self._make_room(asked["milli"])
        return self._runner.run(steps)

    async def aresize(
        self,
        amount: float | str = KEEP,
        *,
        each: float | str | None = KEEP,
        memory: int | str | None = KEEP,
        model: str | Iterable[str] | None = KEEP,
        vendor: str | None = KEEP,
        topology: str | None = KEEP,
        placement: str | None = KEEP,
        priority: int | str | None = KEEP,
        lendable: bool | None = KEEP,
        wait: bool = True,
        timeout: float | None = None,
    ) -> GpuStatus:
        """Do the same as `resize` without blocking the event loop."""
        asked = self._asked(amount, each, memory, model, vendor, topology, placement, priority, lendable)
        steps = self._resize(asked, wait, timeout)
        if self._calls is not None or self._clients is not None:
            import asyncio

            await asyncio.to_thread(self._make_room, asked["milli"])
        return await self._runner.arun(steps)

    def release(self, *, wait: bool = True, timeout: float | None = None) -> GpuStatus:
        """Give all GPUs back, cancel what is still waited for, and take back all options."""
        return self.resize(
            0,
            each=None,
            memory=None,
            model=None,
            vendor=None,
            topology=None,
            placement=None,
            priority=None,
            lendable=None,
            wait=wait,
            timeout=timeout,
        )

    def overrule(self, amount: float | str) -> GpuStatus:
        """Have ``amount`` GPUs as the slider does: also what blocks of `at_least` hold is taken back. Does not wait."""
        from .arguments import fields
        from .waiting import resize

        return self._runner.run(resize({**fields(amount), "overrule": True}, None))

    def at_least(self, amount: float | str, *, timeout: float | None = None, together: bool = False) -> AtLeast:
        """Return a context manager, for `with` and `async with`: inside it, at least ``amount`` GPUs are attached.

        The server keeps what each block needs: it takes only what is missing, gives back at the end what no other block
        needs, whatever happens inside, and does the same when this process ends. Blocks may be nested and may overlap,
        also those of other notebooks. If the time is over before all are there, nothing stays taken. ``together``: all
        on one node, where a cluster serves you from several.
        """
        from .arguments import fields, seconds
        from .blocks import AtLeast

        milli, left = fields(amount)["milli"], seconds(timeout)
        return AtLeast(self._runner, milli, lambda: self._patience(left), together=together)

    def run(self, function: Callable[..., R], /, *args: Any, gpus: float | str = 1, **named: Any) -> R:
        """Call ``function(*args, **named)`` in another process that sees the GPUs of now, and return its result.

        CUDA looks for GPUs once in a process, so a kernel in which it has started cannot use new ones; that process
        can. At least ``gpus`` are attached meanwhile, as in a block of `at_least`. The function reads the values of now
        of this notebook; what it changes stays there. What it prints appears here, and Ctrl-C interrupts it.

        Raises what the function raises; `CannotSend` for what cannot be pickled, before anything is called;
        `WorkerLost` if that process ended, and the call is not repeated; and what `at_least` raises.
        """
        result: R = self._remote().run(function, args, named, gpus)
        return result

    async def arun(self, function: Callable[..., R], /, *args: Any, gpus: float | str = 1, **named: Any) -> R:
        """Do the same as `run` without blocking the event loop; the end of the task interrupts the function."""
        result: R = await self._remote().arun(function, args, named, gpus)
        return result

    def keep(self, name: str, function: Callable[..., Any], /, *args: Any, gpus: float | str = 1, **named: Any) -> Any:
        """Call a function as `run` does, but leave its result in that process, as the variable ``name`` of it.

        Returns a handle, which is `remote` ``.name``, too: as an argument of `run` it is the value itself; its
        ``get()`` brings the value. The value is there while the process is: so as many GPUs must have been asked for
        before, by `resize` or a block of `at_least`, else InvalidRequest is raised.
        """
        return self._remote().keep(name, function, args, named, gpus)

    def map(
        self,
        function: Callable[[Any], R],
        items: Iterable[Any],
        /,
        *,
        gpus: float | str = 1,
        return_exceptions: bool = False,
    ) -> list[R]:
        """Call ``function`` with each of ``items`` as `run` does, and return the results in their order.

        One process for each ``gpus`` that are attached, which sees no others: as many calls run at a time as whole sets
        are there, also while their number changes. At least one set is attached meanwhile.

        The first error ends all and is raised. With ``return_exceptions`` all are called, and an error, also the loss
        of a process, is the result of its item.
        """
        return self._remote().map(function, items, gpus, return_exceptions)

    def task(self, gpus: float | str = 1) -> Callable[[Callable[P, R]], Task[P, R]]:
        """Make calls of a function those of `run`, as a decorator: ``@gpu.task(2)``. ``f.local`` is the function."""
        from .task import Task

        return lambda function: Task(self, function, gpus)

    @property
    def remote(self) -> Any:
        """The values that stayed in a worker after `keep` or a cell with ``%%gpu``: ``gpu.remote.model.get()``."""
        return self._remote().remote

    def client(self) -> distributed.Client:
        """Return a new `distributed.Client` with one worker for each attached GPU: a process that sees it alone.

        Workers come and go with the GPUs, whoever changes them. What a worker has is moved to others before its GPU is
        given back. While results are left that no worker could take, `resize(0)` and `release` raise `WorkerRefused`.
        ``client.shutdown()`` ends all of it, as does the end of this process. Raises `ExtraNotInstalled`.
        """
        if self._clients is None:
            from jupyter_gpu import _make_clients  # `dask` stands above this folder

            self._clients = _make_clients(self._runner)
        return self._clients.client()

    def _remote(self) -> Calls:
        if self._calls is None:
            from jupyter_gpu import _make_calls  # `remote` stands above this folder

            self._calls = _make_calls(self._runner, self.at_least)
        return self._calls

    def _make_room(self, milli: int) -> None:
        """End the processes of `run` and `client` that nothing else would end before their GPUs are given back."""
        for one in (self._clients, self._calls):
            if one is not None:
                one.make_room(milli)

    def wait(self, *, timeout: float | None = None) -> GpuStatus:
        """Wait until the current request is fulfilled, whichever program made it; returns and raises like `resize`."""
        from .waiting import wait_settled

        return self._runner.run(wait_settled(self._view(), self._patience(timeout)))

    def on_change(self, callback: Callback) -> Subscription:
        """Call ``callback(change)`` whenever the GPUs that can be used here change, for any reason.

        ``change`` says what was ``added``, ``removed`` and ``resized``, and has the ``status``. In a kernel the main
        thread calls it: between cells, or while a cell awaits something. In a program with an event loop that loop
        calls it, in another one a thread does. ``callback`` may be an async function; its errors are logged.

        Returns a handle: its ``cancel()``, or the end of a ``with`` block, ends it. So does the end of this process.
        """
        if self._changes is None:
            from .changes import Changes

            self._changes = Changes(lambda: self._runner.client, _report)
        return self._changes.add(callback)

    def status(self) -> GpuStatus:
        """Return the current state of your GPUs."""
        return _report(self._view())

    def sentence(self, patience: float = 30.0) -> str:
        """Describe your GPUs in one line, as they are now; ``patience`` is how many seconds the server may take."""
        from jupyter_gpu.model.sentence import sentence

        return sentence(self._view(patience))

    def machine(self) -> MachineReport:
        """Report all GPUs of this machine, who has them, and who waits. In a cluster: sums of this node."""
        from jupyter_gpu.kernel.reports.machine import machine_report

        return machine_report(self._runner.client)

    def usage(self) -> GpuUsage:
        """Report what this server held and used since it started, and each time share's slice, bank and waits."""
        from jupyter_gpu.kernel.reports.shares import usage

        total = self._runner.client.usage()  # the first of the three: it looks at what the others tell
        return usage(self._view(), self._runner.client.sample(), total)

    @property
    def devices(self) -> tuple[GpuDevice, ...]:
        """The GPUs that can be used now: uuid, index, model, memory, milli, exclusive or share, path, node, remote."""
        from jupyter_gpu.kernel.reports.status import devices

        return devices(self._view())

    def __repr__(self) -> str:
        return self._glance()[1]

    def __reduce__(self) -> str:
        """Arrive in another process as the `gpu` of that process; functions of a notebook use it."""
        return "gpu"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Any:  # noqa: ARG002 - IPython's
        """Show a slider in a notebook, elsewhere one line of text."""
        from .progress import in_kernel

        status, plain = self._glance()
        if status is None or not in_kernel():
            return {"text/plain": plain}
        return self._slider(status)._repr_mimebundle_()

    def widget(self) -> GpuWidget:
        """Return the slider that a cell with `gpu` shows, to be put beside other widgets; always the same one.

        Its traits: `value` (set it to ask for GPUs), and to be read and observed `attached`, `limit`, `phase`,
        `sentence`, `error`.
        """
        return self._slider(self._glance()[0])

    def _slider(self, status: GpuStatus | None) -> GpuWidget:
        if self._widget is None or self._widget.comm is None:  # closed
            from jupyter_gpu.kernel.widget import GpuWidget

            self._widget = GpuWidget(lambda: self._runner.client, None if status is None else status.view)
        elif status is not None:
            self._widget.show(status.view)
        return self._widget

    def _glance(self) -> tuple[GpuStatus | None, str]:
        """Return the status and one line of text; never raises, because consoles and debuggers call it."""
        from jupyter_gpu.model.errors import GpuError

        try:
            status = _report(self._view(patience=2.0))
        except GpuError as error:
            return None, f"GPU: {error}"
        return status, f"GPU: {status.sentence}"

    def _view(self, patience: float = 30.0) -> View:
        from .client import get_status

        return self._runner.client.send(get_status(patience=patience))

    def _asked(
        self,
        amount: float | str,
        each: float | str | None,
        memory: int | str | None,
        model: str | Iterable[str] | None,
        vendor: str | None,
        topology: str | None,
        placement: str | None,
        priority: int | str | None,
        lendable: bool | None,
    ) -> Mapping[str, Any]:
        from .arguments import fields

        options = {"each": each, "memory": memory, "model": model, "vendor": vendor, "topology": topology}
        return fields(amount, **options, placement=placement, priority=priority, lendable=lendable)

    def _resize(self, asked: Mapping[str, Any], wait: bool, timeout: float | None) -> Steps:
        from .waiting import resize

        return resize(asked, self._patience(timeout) if wait else None)

    def _patience(self, timeout: float | None) -> Patience:
        from .arguments import seconds
        from .own_holds import nvml_refusal, own_holders
        from .progress import choose
        from .waiting import Patience

        return Patience(seconds(timeout), self._progress or choose(), own_holders, nvml_refusal)


class Runner:
    """A driver for the generators of `waiting`, blocking or not."""

    def __init__(self, client: Client | None) -> None:
        self._client = client

    @property
    def client(self) -> Client:
        """The client, created at its first use."""
        if self._client is None:
            from .client import Client

            self._client = Client()
        return self._client

    def use(self, client: Client) -> None:
        """Use ``client`` from the next call on."""
        self._client = client

    def run(self, steps: Steps) -> GpuStatus:
        """Run ``steps`` to its end; blocks."""
        import time

        from jupyter_gpu.kernel.reports.status import GpuStatus

        from .waiting import Pause

        answer: View | None = None
        problem: BaseException | None = None
        while True:
            step = _advance(steps, answer, problem)
            if isinstance(step, GpuStatus):
                return step
            answer = problem = None
            try:
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                else:
                    answer = self.client.send(step)
            except BaseException as error:  # the generator decides, also about Ctrl-C
                problem = error

    async def arun(self, steps: Steps) -> GpuStatus:
        """Do the same without blocking; each call waits in a thread."""
        import asyncio

        from jupyter_gpu.kernel.reports.status import GpuStatus

        from .waiting import Pause

        answer: View | None = None
        problem: BaseException | None = None
        while True:
            step = _advance(steps, answer, problem)
            if isinstance(step, GpuStatus):
                return step
            answer = problem = None
            try:
                if isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                else:
                    answer = await self._ask(step)
            except BaseException as error:  # the generator decides, also when the task is cancelled
                problem = error

    async def _ask(self, call: Call) -> View:
        import asyncio

        exchange = self.client.exchange(call)
        try:
            return await asyncio.to_thread(exchange.run)
        except asyncio.CancelledError:
            exchange.abort()  # else the thread would wait for its answer, and the end of the process for the thread
            raise


def _advance(steps: Steps, answer: View | None, problem: BaseException | None) -> Call | Pause | GpuStatus:
    """Return the next step of ``steps``, or its result at the end; raises the error that it ends with."""
    from jupyter_gpu.model.errors import GpuError

    try:
        if problem is not None:
            return steps.throw(problem)
        return next(steps) if answer is None else steps.send(answer)
    except StopIteration as end:
        return _report(end.value)
    except GpuError as error:
        raise error.with_traceback(None)  # noqa: B904 - it is the same; our steps do not help its reader


def _report(view: View) -> GpuStatus:
    from jupyter_gpu.kernel.cuda import guard
    from jupyter_gpu.kernel.reports.status import GpuStatus

    return GpuStatus(view, guard.seen(view))


gpu = ServerGpus()
