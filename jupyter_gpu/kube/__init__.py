"""The only Kubernetes client of the project: asyncio, plain JSON objects, and what every controller needs.

Import from here. `rules` reads objects and builds paths, `client` makes calls, `reflector` keeps copies of objects,
`lease` elects a leader, and `recorder` writes Events.
"""

from .client import MERGE_PATCH, Kube, Listing, WatchEvent
from .credentials import Credentials, in_cluster, kubeconfig, load
from .errors import Conflict, Forbidden, Gone, Invalid, KubeError, NotFound, TooMany, Unauthorized, Unavailable
from .lease import LeaderLease, LeaseTimes, identity
from .object_store import ObjectStore
from .recorder import Recorder
from .reflector import ObjectChange, Reflector, Selection

__all__ = [
    "MERGE_PATCH",
    "Conflict",
    "Credentials",
    "Forbidden",
    "Gone",
    "Invalid",
    "Kube",
    "KubeError",
    "LeaderLease",
    "LeaseTimes",
    "Listing",
    "NotFound",
    "ObjectChange",
    "ObjectStore",
    "Recorder",
    "Reflector",
    "Selection",
    "TooMany",
    "Unauthorized",
    "Unavailable",
    "WatchEvent",
    "identity",
    "in_cluster",
    "kubeconfig",
    "load",
]
