"""Pure: history and text of the terminal view."""
