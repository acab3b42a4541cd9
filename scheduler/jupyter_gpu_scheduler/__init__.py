"""The assignment of GPU shares to pods: decisions are in `rules`, the same on one machine and in a cluster.

`rules.state` has what is known, `rules.queue` decides what changes, `rules.placement` chooses the GPUs for a wish, and
`rules.limits` divides an owner's maximum among the owner's pods. None of them reads a clock, a file or the network.
"""
