"""Finding and reaching the server of a program."""
