"""Which processes of which pod have a GPU open: the proof before a GPU is released."""
