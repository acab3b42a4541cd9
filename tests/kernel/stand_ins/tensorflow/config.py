"""Stands for tf.config."""

from .python.eager import context


def list_physical_devices(device_type: str | None = None) -> list[str]:
    return context.context().list_physical_devices(device_type)
