"""Pure: the terms of a machine's pods under the limits of their owners."""
