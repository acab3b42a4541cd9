"""Keeps every attached GPU busy."""

from jupyter_gpu.simulate import work

print("working", flush=True)
work(600)
