"""Pure: the view of a server's pod, what its user should know, and what limits it."""
