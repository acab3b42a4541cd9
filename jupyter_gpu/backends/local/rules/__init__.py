"""Pure: the view of a server's pod, and what its user should know."""
