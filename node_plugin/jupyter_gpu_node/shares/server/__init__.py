"""The arbiter's server of one node: sockets, connections, the GPUs whose turns it serves, and the files of shares."""
