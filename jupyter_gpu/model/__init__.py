"""Pure: the vocabulary that every part shares, frozen and on the standard library alone.

Nothing here reads a clock, a file, an environment or a random number.
"""
