"""Pure: the known nodes and pods, kept incrementally."""
