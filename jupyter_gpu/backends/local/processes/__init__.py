"""The processes of this machine's pods: their identity, the pod that each belongs to, and their ends."""
