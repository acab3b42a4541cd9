"""Holders: the processes that have a GPU open, by pod. The proof before a GPU is released."""
