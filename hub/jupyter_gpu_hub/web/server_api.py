"""REST of servers: the own pod of the server whose token it is, for servers without a token of the cluster."""

from __future__ import annotations

from jupyter_gpu.model import strict
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.message import gettext
from jupyter_gpu_hub.rules import server_pod
from jupyter_gpu_hub.rules.access import Visitor
from jupyter_gpu_hub.rules.refusals import Refusal
from jupyter_gpu_hub.rules.server_pod import HubServer, PodChange

from .api import ApiHandler
from .base import verbs

WRITES = "writes"
"""Keys of the application's settings: whether requests of servers are written here, ..."""
SERVERS = "rate_limiter_of_servers"
"""... and the `RateLimiter` of their tokens."""


class ServerPodHandler(ApiHandler):
    """The pod of the server whose token it is. Nothing else says which pod: no path, no query, no body.

    The hub is asked about the token for each request: that of a stopped server ends at once.
    """

    async def prepare(self) -> None:
        """Limit the rate of each token before the hub is asked about it, and refuse all but the tokens of servers."""
        if self.request.method in verbs(type(self)):
            self._check_rate(self._client(), SERVERS)
        await super().prepare()
        if not self.settings[WRITES]:
            raise Refusal(403, self.site.place.no_requests)
        if not getattr(self, "_token_authenticated", False):
            raise Refusal(403, gettext("A browser's login names no server: send the token of the server."))
        strict.no_unknown(self.query(), ())

    async def get(self) -> None:
        """Answer with the pod as it is now."""
        visitor = await self.ask_hub()
        if visitor is None:
            self.refuse_stranger()
        else:
            self.answer(server_pod.to_json(await self.site.server_pods.read(self._server(visitor))))

    async def put(self) -> None:
        """Write a request for one version of the pod; answer with the pod after that."""
        server = self._server(self.visitor)
        change = PodChange.from_json(self.body())
        self.answer(server_pod.to_json(await self.site.server_pods.write(server, change)))

    def _server(self, visitor: Visitor) -> HubServer:
        """Return the only server that the visitor's token may access."""
        if visitor.sole_server is None:
            raise Refusal(
                403,
                gettext(
                    "This token names no server: it needs the scope access:servers!server=… of one server of its user, "
                    "and no wider one."
                ),
            )
        return HubServer(Owner("User", visitor.name, self.site.hub), visitor.sole_server)
