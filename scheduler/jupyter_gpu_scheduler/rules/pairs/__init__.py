"""Pure: pairs of nodes: the GPUs on one, the pod on the same or another."""
