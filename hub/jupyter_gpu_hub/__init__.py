"""The hub's service of GPU limits: page, REST and a mirror of the hub's groups; it decides nothing.

`rules` compute, `state` keeps what the API server and the hub say, `web` answers browsers and programs.
"""
