"""Makes real Kubernetes clusters on this machine, and removes them.

`control_plane()` is etcd and an API server, without root and in some seconds; `Cluster` has nodes too and needs root.
`borrowed()` is one that was there before, where that is allowed.
"""

from tests.cluster.testbed.cluster import Cluster, temporary_cluster
from tests.cluster.testbed.commands import ClusterError, until
from tests.cluster.testbed.control_plane import ControlPlane, control_plane
from tests.cluster.testbed.existing import Existing, borrowed

__all__ = [
    "Cluster",
    "ClusterError",
    "ControlPlane",
    "Existing",
    "borrowed",
    "control_plane",
    "temporary_cluster",
    "until",
]
