"""Pure: how many GPUs each user, group and namespace may have, as it is written, combined and shown.

Three words mean three things in every field: absent (``None``) inherits, ``0`` is nothing, ``unlimited`` is no limit of
this level.
"""
