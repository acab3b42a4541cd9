"""The vocabulary that every part shares: standard library only, pure, frozen.

Nothing here reads a clock, a file, an environment or a random number.
"""
