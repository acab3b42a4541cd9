"""Time shares on one machine: one process, the arbiter, hands out the turns on all GPUs of a state directory.

Each server that has or wants a GPU has a `supervisor`, which sees to it that there is one; `pod_client` is what
its pod knows of it. The process itself is `arbiter`: it follows the records as the servers write them, so it
needs to be told nothing, and whatever is killed begins again from the same records. Whose is believed: `trust`.
An administrator can have one stand by (`standalone`).

    <state>/arbiter.lock              locked by whoever starts the arbiter, and handed over: there is one
    <state>/arbiter.serving           locked by the arbiter itself: the kernel tells others whose process it is
    <state>/arbiters/<user id>/       of the arbiters of one user: log, own/ (files that count), <pod>/shares/ (sockets)
    <state>/shares.json               rules that were set (`machine_rules`), where there is no file of the machine
    <state>/gates/<pod>               link of a pod's server to where its sockets are now: what its programs know
"""
