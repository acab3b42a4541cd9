"""The node side: which pods may open the machine's GPUs, which processes have them open, and the GPUs themselves."""
