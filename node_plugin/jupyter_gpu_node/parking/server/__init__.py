"""The socket on which the gates of a pod listen for orders to park."""
