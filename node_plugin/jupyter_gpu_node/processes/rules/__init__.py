"""Pure: the identity of a process, and the budget of a scan of `/proc`."""
