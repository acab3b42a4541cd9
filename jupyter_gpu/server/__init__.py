"""The Jupyter server extension: routes, stream, views, leases, and how kernels start."""
