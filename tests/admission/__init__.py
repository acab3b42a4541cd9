"""Rights to write: the chart's policies and rights, tried with real tokens on a real API server."""
