"""Pure: which processes may have a GPU open."""
