"""Pure: the objects of a machine without a cluster, as the service reads and writes them."""
