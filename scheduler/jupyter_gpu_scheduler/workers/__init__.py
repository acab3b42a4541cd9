"""The worker controller: creates and removes the pods in which notebooks use GPUs of other nodes.

A process with an account of its own, as only it may create pods. The scheduler decides which workers there are
(``service`` of a notebook's pod); the controller creates what is named there and removes what is not. It remembers
nothing: failures are counted in ``worker-status``, and a pod's name makes a second creation a conflict.
"""
