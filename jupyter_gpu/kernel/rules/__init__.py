"""Pure: messages to programs that belong to no Jupyter server."""
