"""The assignment of GPU shares to pods: decisions are in `rules`, the same on one machine and in a cluster.

`snapshot` holds what is known, `decide` says what should change, `placement` which GPUs serve a wish and
`limits` which wishes can never be served. None of them reads a clock, a file or the network.
"""
