"""Limits: how many GPUs each user, group and namespace may have, as they are written, combined and shown. Pure.

Three words mean three things in every field: absent (``None``) inherits, ``0`` is nothing, ``unlimited`` is no limit of
this level.
"""
