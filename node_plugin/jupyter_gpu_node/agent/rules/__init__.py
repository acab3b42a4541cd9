"""Pure: the next step of one pod, and which grants may be carried out."""
