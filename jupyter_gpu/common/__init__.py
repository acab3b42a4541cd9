"""Code used on several sides: server, kernels, command line, node plugin and scheduler."""
