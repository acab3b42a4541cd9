"""Code that runs in a kernel, a script or a terminal: `gpu` and all that it needs."""
