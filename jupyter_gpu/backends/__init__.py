"""One implementation of :class:`~jupyter_gpu.backend.Backend` for each place where GPUs can be."""
