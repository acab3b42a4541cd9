"""The kernel's side of the slider in a cell."""
