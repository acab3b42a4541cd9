"""Pure: messages between page and kernel."""
