"""Makes real Kubernetes clusters on this machine, and removes them.

`control_plane()` is etcd and an API server, without root and in some seconds; `Cluster` has nodes too and needs root.
"""

from tests.cluster.testbed.cluster import Cluster, temporary_cluster
from tests.cluster.testbed.commands import ClusterError, until
from tests.cluster.testbed.control_plane import ControlPlane, control_plane

__all__ = ["Cluster", "ClusterError", "ControlPlane", "control_plane", "temporary_cluster", "until"]
