"""The only Kubernetes client of the project: asyncio, plain JSON objects, and what every controller needs.

Import from here; the modules are divided by what they know: `rules` reads objects and makes paths, `client` talks,
`reflector` remembers, `lease` elects, `recorder` tells.
"""

from .client import MERGE_PATCH, Event, Kube, Listing
from .credentials import Credentials, in_cluster, kubeconfig, load
from .errors import Conflict, Forbidden, Gone, Invalid, KubeError, NotFound, TooMany, Unauthorized, Unavailable
from .lease import Lease
from .recorder import Recorder
from .reflector import Change, Reflector

__all__ = [
    "MERGE_PATCH",
    "Change",
    "Conflict",
    "Credentials",
    "Event",
    "Forbidden",
    "Gone",
    "Invalid",
    "Kube",
    "KubeError",
    "Lease",
    "Listing",
    "NotFound",
    "Recorder",
    "Reflector",
    "TooMany",
    "Unauthorized",
    "Unavailable",
    "in_cluster",
    "kubeconfig",
    "load",
]
