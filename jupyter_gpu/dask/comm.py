"""The addresses of Dask's processes, ``gpu…://w1:40123``, and connections to them: a communication backend of Dask.

All of them are TLS from process to process, as Dask's own. One to another place leads through the gateway of this node
(`gateway`). Each cluster has a scheme of its own, as a program may have several clusters.
"""

from __future__ import annotations

from typing import Any

from distributed.comm.addressing import parse_host_port
from distributed.comm.core import CommClosedError
from distributed.comm.registry import backends
from distributed.comm.tcp import MAX_BUFFER_SIZE, TLS, TLSBackend, TLSConnector, TLSListener
from tornado.iostream import StreamClosedError

from jupyter_gpu.dask.gateway import LOOPBACK
from jupyter_gpu.dask.rules.targets import Target


class PlaceConnector(TLSConnector):
    """The connector to processes of any place."""

    def __init__(self, backend: PlaceBackend) -> None:
        self._backend = backend

    async def connect(self, address: str, deserialize: bool = True, **settings: Any) -> Any:
        """Connect to the process with an address. Raises `CommClosedError`."""
        place, port = parse_host_port(address)
        if place == self._backend.place:
            connector: Any = super()  # it has no types
            return await connector.connect(f"{LOOPBACK}:{port}", deserialize, **settings)
        try:
            stream: Any = await self.client.connect(
                LOOPBACK, self._backend.gateway, max_buffer_size=int(MAX_BUFFER_SIZE)
            )
            await stream.write(Target(place, port).line())
            stream = await stream.start_tls(False, ssl_options=settings["ssl_context"])
        except (StreamClosedError, OSError) as error:
            raise CommClosedError(f"{address} cannot be reached: {error}") from error
        scheme = self._backend.scheme
        made: Any = TLS
        return made(stream, f"{scheme}://{self._backend.place}:0", f"{scheme}://{address}", deserialize)


class PlaceListener(TLSListener):
    """The listener on this node alone, which is known by its place."""

    def __init__(self, backend: PlaceBackend, *arguments: Any, **settings: Any) -> None:
        self._backend = backend
        super().__init__(*arguments, **settings)  # type: ignore[no-untyped-call] # it has no types

    @property
    def listen_address(self) -> str:
        """Its address."""
        return f"{self._backend.scheme}://{self._backend.place}:{self.get_host_port()[1]}"  # type: ignore[no-untyped-call]

    @property
    def contact_address(self) -> str:
        """The same."""
        return self.listen_address


class PlaceBackend(TLSBackend):
    """The backend of a process: its place, and the port of the gateway there."""

    def __init__(self, scheme: str, place: str, gateway: int) -> None:
        self.scheme, self.place, self.gateway = scheme, place, gateway

    def get_connector(self) -> PlaceConnector:
        """Return what connects."""
        return PlaceConnector(self)

    def get_listener(self, loc: str, handle_comm: Any, deserialize: Any, **settings: Any) -> PlaceListener:  # noqa: ARG002
        """Return what listens."""
        return PlaceListener(self, f"{LOOPBACK}:0", handle_comm, deserialize, **settings)

    def resolve_address(self, loc: str) -> str:
        """Return it as it is."""
        return loc

    def get_local_address_for(self, loc: str) -> str:  # noqa: ARG002
        """Return an address of this process."""
        return f"{self.place}:0"

    def register(self) -> None:
        """Have Dask use it for addresses of its scheme."""
        backends[self.scheme] = self

    def forget(self) -> None:
        """Have Dask not use it any more."""
        backends.pop(self.scheme, None)
