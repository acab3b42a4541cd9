"""Workers: real processes, real sockets."""
