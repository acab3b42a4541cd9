"""Pure: who is parked when others need the GPUs, and what comes back once it is needed."""
