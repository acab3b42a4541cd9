"""Who may write what: the chart's policies and rights, tried with real tokens on a real API server."""
