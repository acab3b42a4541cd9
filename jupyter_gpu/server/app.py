"""The Jupyter server extension: its configuration, its routes, its start and its end."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from jupyter_server.extension.application import ExtensionApp
from traitlets import Bool, CaselessStrEnum, Float, Int, List, TraitError, Unicode, Union, default, validate
from traitlets.config.application import catch_config_error

from jupyter_gpu.backends import choose
from jupyter_gpu.backends.base import Backend
from jupyter_gpu.common import rendezvous
from jupyter_gpu.common.later import later
from jupyter_gpu.model.errors import BackendUnavailable
from jupyter_gpu.model.quantity import MILLI_PER_GPU, parse_milli
from jupyter_gpu.model.sentence import sentence
from jupyter_gpu.model.view import View
from jupyter_gpu.server.events import SCHEMA
from jupyter_gpu.server.rules import hub_service, limits_page

from . import provisioning
from .keys import (
    BACKEND,
    LOCAL_ENDPOINT,
    PAGE_LIMITS,
    PAGE_MACHINE,
    SHOW_MACHINE,
    STARTING,
    STATE_DIR,
    VIEWERS,
    VISIBLE_BY,
)
from .local_endpoint import LocalEndpoint, start_endpoint
from .programs import forget_terminals, prepare_terminals

if TYPE_CHECKING:  # loaded when the server is up
    from jupyter_gpu.server.monitoring.metrics_collector import MetricsCollector

    from .service import GpuService

PREFIX = "/jupyter-gpu/api"
"""Path of our routes, below the server's own."""
PROVISIONER = "jupyter-gpu"
"""Entry point of the kernel provisioner that prepares every kernel for GPUs that come later."""

MAX_HISTORY = 86_400.0
"""The longest history, in seconds: a day."""

SERVICE_DELAY = 0.05
"""Seconds from the guard until what serves requests is loaded, so that the server's first page does not wait for it."""


class GpuExtension(ExtensionApp):
    """GPUs of this server's notebooks, changed while they run.

    Configure it in ``jupyter_server_config.py`` or ``jupyter_gpu_config.py`` (``c.GpuExtension.limit = "2"``)
    or on the command line (``--GpuExtension.simulated_gpus=4``).
    """

    name = "jupyter_gpu"
    description = "GPUs of this server's notebooks, changed while they run."
    load_other_extensions = True

    backend = CaselessStrEnum(
        ["auto", "local", "kubernetes"],
        default_value="auto",
        help="""Where the GPUs of this server come from.
        local: this machine. kubernetes: the cluster whose pod this server runs in; the options simulated_gpus,
        vendors, state_dir, enforcement and system_holders mean nothing then.
        auto: kubernetes in a pod that has the resource jupyter-gpu.io/slot and a service account, else local.""",
    ).tag(config=True)

    simulated_gpus = Int(
        0,
        min=0,
        max=24,
        help="""How many GPUs to simulate, 0 to 24. 0: use the GPUs of this machine.
        Simulated GPUs are for trying things out; the panel says so.""",
    ).tag(config=True)

    vendors = List(
        Unicode(),
        default_value=["nvidia"],
        help="""Vendors of the GPUs of this machine that are used: "nvidia", "amd", or that of an installed package.
        With "amd", programs of this server open no device of graphics cards (/dev/dri) but GPUs that they were given.
        In a cluster the node plugin's `node.settings.vendors` applies instead.""",
    ).tag(config=True)

    limit = Union(
        [Unicode(), Int(), Float()],
        default_value="",
        help="""The most GPUs that the notebooks of this server may have, such as "2", "0.5" or "500m".
        Empty: all of them.""",
    ).tag(config=True)

    fractions = List(
        Union([Unicode(), Float()]),
        default_value=["0.25", "0.5"],
        help="""Shares of one GPU that the slider offers below a whole one, such as ["0.25", "0.5"].
        Other amounts can still be asked for in code.""",
    ).tag(config=True)

    state_dir = Unicode(
        "",
        help="""Directory with the records of all servers and their GPUs: an absolute path, the same for all servers of
        the machine that share its GPUs. Empty: the machine's own place for such records.""",
    ).tag(config=True)

    enforcement = CaselessStrEnum(
        ["auto", "soft", "required"],
        default_value="auto",
        help="""What keeps notebooks from GPUs that they were not given.
        auto: the kernel of the operating system where this server has the right to ask for it, else soft.
        required: the kernel of the operating system; where that is not possible, the server does not start.
        soft: nothing; notebooks only see which GPUs are theirs.""",
    ).tag(config=True)

    visible_devices_by = CaselessStrEnum(
        ["uuid", "index"],
        default_value="uuid",
        help="""How CUDA_VISIBLE_DEVICES names the GPUs of kernels: by uuid, which always means the same GPU, or by
        index, for programs that read numbers there, such as vLLM. With indices keep CUDA_DEVICE_ORDER at PCI_BUS_ID.
        A kernel spec chooses its own with JUPYTER_GPU_VISIBLE_BY in its env.""",
    ).tag(config=True)

    system_holders = List(
        Unicode(),
        help="""Names of programs outside this server that may have a GPU open without keeping it from being
        given back, such as ["Xorg", "nvidia-persistenced"].""",
    ).tag(config=True)

    follow_visible_devices = Bool(
        True,
        help="""Whether the CUDA_VISIBLE_DEVICES that this server is started with, by SLURM for example, limits which
        GPUs of this machine it uses. Simulated GPUs are never limited by it.""",
    ).tag(config=True)

    sample_interval = Float(
        1.0,
        min=0.1,
        max=3600.0,
        help="""Seconds between two samples of the load, at least 0.1. Samples are taken only while a chart is
        in view, and once for all viewers.""",
    ).tag(config=True)

    history = Float(
        300.0,
        min=0.0,
        max=MAX_HISTORY,
        help="""Seconds of samples that are kept for charts that are opened later, at most a day. What does not fit
        into a megabyte is kept at larger distances, the oldest first. 0: none.""",
    ).tag(config=True)

    priority = Int(
        0,
        min=0,
        max=9,
        help="""Priority of this server among those that wait for GPUs, 0 to 9: higher is served first, equal ones
        in the order of their requests.""",
    ).tag(config=True)

    show_machine = CaselessStrEnum(
        ["everybody", "own", "nobody"],
        default_value="everybody",
        help="""What users of this server may see of the other servers on this machine.
        everybody: which user has which GPU, and who waits; folders only of their own servers.
        own: only servers of the same user; all others as a sum. nobody: nothing is shown.
        It decides what is shown here: every user of the machine can read the records themselves.
        In a cluster, sums of the node are shown unless it is nobody.""",
    ).tag(config=True)

    patience = Float(
        600.0,
        min=1.0,
        help="""Seconds in line after which no later request is served first, whatever its priority. Set the same for
        all servers of the machine. In a cluster, the scheduler's `line.patienceSeconds` applies instead.""",
    ).tag(config=True)

    limits_url = Unicode(
        "",
        help="""Address of the page where users see their limit, which the panel links: a path such as
        "/services/gpu/", an https address, or a path without a slash before it, such as "services/gpu/", which is below
        the JupyterHub that the server runs under. Empty, or such a path without a hub: no link.""",
    ).tag(config=True)

    hub_service = Unicode(
        help="""In a pod without a token of the cluster: the address of JupyterHub's service of GPU limits, as pods
        reach it, such as "http://proxy-public/services/gpu/". The service writes this server's requests then, and the
        token that the hub gave to this server says which server it is. Plain http is accepted inside the cluster only.
        Empty: requests are written with the pod's own token. Default: JUPYTER_GPU_HUB_SERVICE of the environment.""",
    ).tag(config=True)

    _backend: Backend | None = None
    _service: GpuService | None = None
    _starting: asyncio.Task[None] | None = None
    _endpoint: LocalEndpoint | None = None

    def _config_file_name_default(self) -> str:
        return "jupyter_gpu_config"

    @default("hub_service")
    def _hub_service_default(self) -> str:
        return self._checked_hub_service(os.environ.get(hub_service.VARIABLE, ""))

    @validate("hub_service")
    def _check_hub_service(self, proposal: Any) -> str:
        return self._checked_hub_service(str(proposal["value"]))

    @staticmethod
    def _checked_hub_service(url: str) -> str:
        try:
            return hub_service.check(url)
        except ValueError as error:
            raise TraitError(f"GpuExtension.hub_service: {error}") from None

    @validate("limit")
    def _check_limit(self, proposal: Any) -> str:
        text = str(proposal["value"]).strip()
        if text:
            _milli("limit", text)
        return text

    @validate("limits_url")
    def _check_limits_url(self, proposal: Any) -> str:
        try:
            return limits_page.check(str(proposal["value"]))
        except ValueError as error:
            raise TraitError(f"GpuExtension.limits_url: {error}") from None

    @validate("fractions")
    def _check_fractions(self, proposal: Any) -> list[str]:
        texts = [str(value) for value in proposal["value"]]
        for text in texts:
            if not 0 < _milli("fractions", text) < MILLI_PER_GPU:
                raise TraitError(f"GpuExtension.fractions: {text} is not between 0 and 1 GPU.")
        return texts

    @validate("vendors")
    def _check_vendors(self, proposal: Any) -> list[str]:
        from jupyter_gpu.backends.local import read_vendors

        names = list(proposal["value"])
        try:
            read_vendors(names)
        except ValueError as error:
            raise TraitError(f"GpuExtension.vendors: {error}") from None
        return names

    @validate("state_dir")
    def _check_state_dir(self, proposal: Any) -> str:
        path = str(proposal["value"])
        if path and not Path(path).is_absolute():
            raise TraitError(f"GpuExtension.state_dir: {path!r} must be an absolute path, such as /run/jupyter-gpu.")
        return path

    @validate("system_holders")
    def _check_system_holders(self, proposal: Any) -> list[str]:
        names = list(proposal["value"])
        for name in names:
            if not name.strip() or "/" in name:
                raise TraitError(f"GpuExtension.system_holders: {name!r} must be the name of a program, without path.")
        return names

    @validate("history", "sample_interval", "patience")
    def _check_history(self, proposal: Any) -> float:
        value = float(proposal["value"])
        # A NaN passes every comparison that traitlets makes.
        if value != value:
            raise TraitError(f"GpuExtension.{proposal['trait'].name} must be a number of seconds.")
        return value

    @property
    def metrics(self) -> MetricsCollector | None:
        """Collector of figures for Prometheus; None without a backend."""
        return self._service.metrics if self._service else None

    @property
    def points(self) -> int:
        """Number of samples that the history covers."""
        return int(self.history / self.sample_interval)

    # A server with wrong GPU settings must not start without them: the limit would be gone. jupyter_server only logs
    # that an extension cannot be linked; so report it and exit, as it does for its own settings.
    @catch_config_error
    def _link_jupyter_server_extension(self, serverapp: Any) -> None:
        super()._link_jupyter_server_extension(serverapp)

    def initialize_settings(self) -> None:
        """Start the backend, before the server listens."""
        assert self.serverapp is not None
        self._share(VIEWERS, BackendUnavailable("GPUs cannot be used yet: the server is starting."))
        self._share(STATE_DIR, self.state_dir)
        self._share(VISIBLE_BY, self.visible_devices_by)
        self._share(SHOW_MACHINE, self.show_machine)
        loop: asyncio.AbstractEventLoop = cast("Any", self.serverapp.io_loop).asyncio_loop
        if loop.is_running():  # a server that is embedded in a running program
            self._starting = loop.create_task(self._start())
        else:
            # The system takes some 10 ms to move a process into a control group: let the server start meanwhile, but
            # not handle its first request. What is scheduled before the loop runs comes before any of them.
            self._starting = loop.run_until_complete(self._begin())
            loop.call_soon(self._await_guard)
        self.settings[STARTING] = self._starting
        options = self.serverapp.web_app.settings.setdefault("page_config_data", {})
        options[PAGE_MACHINE] = self.show_machine
        options[PAGE_LIMITS] = limits_page.resolve(self.limits_url, os.environ)
        self._endpoint = start_endpoint(self.serverapp, loop, self.log, container=self._kind() == "kubernetes")
        self._share(LOCAL_ENDPOINT, self._endpoint)

    def initialize_handlers(self) -> None:
        """Add our routes; the first that matches is used."""
        routes = "jupyter_gpu.server.routes"
        monitoring = "jupyter_gpu.server.monitoring.routes"
        self.handlers.extend(
            [
                (rf"{PREFIX}/v1/status", later(routes, "StatusHandler")),
                (rf"{PREFIX}/v1/sample", later(routes, "SampleHandler")),
                (rf"{PREFIX}/v1/usage", later("jupyter_gpu.server.usage_route", "UsageHandler")),
                (
                    rf"{PREFIX}/v1/workers",
                    later("jupyter_gpu.server.workers_route", "WorkersHandler", streams_body=True),
                ),
                (rf"{PREFIX}/v1/doctor", later("jupyter_gpu.server.doctor_route", "FactsHandler")),
                (rf"{PREFIX}/v1/request", later(routes, "RequestHandler", streams_body=True)),
                (
                    rf"{PREFIX}/v1/reservations/([A-Za-z0-9-]{{1,64}})",
                    later(routes, "ReservationHandler", streams_body=True),
                ),
                (rf"{PREFIX}/v1/stream", later("jupyter_gpu.server.stream", "StreamHandler")),
                (rf"{PREFIX}/v1/details", later(monitoring, "DetailsHandler")),
                (rf"{PREFIX}/v1/machine", later(monitoring, "MachineHandler")),
                (rf"/{rendezvous.DASK}([0-9a-f]{{16}})/(.*)", later("jupyter_gpu.server.dask_route", "DaskHandler")),
                (rf"{PREFIX}(?:/.*)?", later(routes, "NotFoundHandler")),
            ]
        )

    async def stop_extension(self) -> None:
        """Answer all waiting requests, end the kernels, give the GPUs back."""
        if self._starting:
            await self._starting
        service, self._service = self._service, None
        if service:
            await service.stop()
        backend, self._backend = self._backend, None
        if backend and self.serverapp:
            # The server ends its kernels only after its extensions. But what a kernel has open cannot be given back.
            await self.serverapp.cleanup_kernels()
            if service:
                await service.stop_workers()
            await backend.stop()
            forget_terminals(self.serverapp)
        endpoint, self._endpoint = self._endpoint, None
        if endpoint:
            self._share(LOCAL_ENDPOINT, None)
            endpoint.close()

    def make_backend(self) -> Backend:
        """Return the backend that is configured; raises `BackendUnavailable` if its client is not installed."""
        limit = parse_milli(self.limit) if self.limit else None
        fractions = tuple(sorted({parse_milli(text) for text in self.fractions}))
        if self._kind() == "kubernetes":
            try:
                from jupyter_gpu.backends.kubernetes import KubernetesBackend  # only if it is used
            except ImportError as error:
                raise BackendUnavailable(
                    f"The Kubernetes client is not installed ({error}). Install the wheel of jupyter-gpu with what it "
                    "needs in a cluster: pip install 'jupyter_gpu-….whl[kubernetes]', with the wheel's whole name."
                ) from None
            try:
                address = self.hub_service
            except TraitError as error:  # the variable of the environment
                raise BackendUnavailable(str(error)) from None
            return KubernetesBackend(limit=limit, fractions=fractions, priority=self.priority, hub_service=address)
        from jupyter_gpu.backends.local import LocalBackend, Settings, read_vendors

        return LocalBackend(
            Settings(
                state_dir=Path(self.state_dir) if self.state_dir else None,
                simulated_gpus=self.simulated_gpus,
                vendors=read_vendors(self.vendors),
                limit=limit,
                fractions=fractions,
                enforcement=self.enforcement,
                system_holders=tuple(self.system_holders),
                priority=self.priority,
                patience=self.patience,
                follow_visible_devices=self.follow_visible_devices,
            )
        )

    def _kind(self) -> str:
        return choose(self.backend, os.environ)

    async def _start(self) -> None:
        await (await self._begin())

    async def _begin(self) -> asyncio.Task[None]:
        """Begin to start the backend, and return that task; register events and the provisioner meanwhile."""
        assert self.serverapp is not None
        assert self.serverapp.event_logger is not None
        starting = asyncio.get_running_loop().create_task(self._start_backend())
        await asyncio.sleep(0)  # from here on it is under way
        self.serverapp.event_logger.register_event_schema(json.loads(SCHEMA.read_bytes()))
        provisioning.set_default(PROVISIONER, self.serverapp, self.log)
        return starting

    def _await_guard(self) -> None:
        """Block until no program that the server starts can open a GPU that was not granted."""
        if self._backend and self._starting and not self._starting.done():
            self._backend.await_guard()

    async def _start_backend(self) -> None:
        try:
            self._backend = backend = self.make_backend()
            await backend.guard()
            self._share(BACKEND, backend)
            # The terminals' extension may be loaded after this one, and all are before the loop goes on.
            asyncio.get_running_loop().call_soon(prepare_terminals, self.serverapp)
            await asyncio.sleep(SERVICE_DELAY)
            await backend.start()
        except BackendUnavailable as error:
            self.log.error("GPUs cannot be used: %s", error)
            if self.enforcement == "required":  # notebooks of a server that starts all the same could open any GPU
                self.log.critical("GpuExtension.enforcement is 'required', so the server does not start.")
                self.exit(1)
            self._go_without(error)
        except Exception:
            self.log.exception("GPUs cannot be used: the backend did not start.")
            self._go_without(BackendUnavailable("GPUs cannot be used: an error inside the server. Its log says what."))
        else:
            from . import routes, stream  # noqa: F401 # before the first request, which would wait for them
            from .service import GpuService

            self._service = GpuService(
                self.serverapp, backend, self._share, self.log, interval=self.sample_interval, points=self.points
            )
            self.log.info("GPUs: %s", _summary(backend.view()))

    def _go_without(self, why: BackendUnavailable) -> None:
        """Go on without a backend, and say so to every request."""
        self._backend = None
        self._share(BACKEND, None)
        self._share(VIEWERS, why)

    def _share(self, key: str, value: object) -> None:
        """Make ``value`` known to all handlers, ours and the server's."""
        assert self.serverapp is not None
        self.settings[key] = self.serverapp.web_app.settings[key] = value


def _milli(trait: str, text: str) -> int:
    try:
        return parse_milli(text)
    except ValueError as error:
        raise TraitError(f"GpuExtension.{trait}: {error}") from None


def _summary(view: View) -> str:
    kind = "simulated, " if view.simulated else ""
    return f"{sentence(view)} ({kind}{view.mode})"
