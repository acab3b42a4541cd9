"""Pure: the order in which pods are served, and one pass over it."""
