"""The Jupyter server extension: routes, stream, views, reservations, and how kernels start."""
