"""Pure: what a program outside every Jupyter server is told."""
