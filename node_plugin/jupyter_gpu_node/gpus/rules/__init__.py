"""Pure: managed GPUs, MIG instances, Xid errors, simulated sensors."""
