"""Time shares on one machine: one process, the arbiter, hands out the turns on all GPUs of a state directory.

Each server that has or wants a GPU has a `supervisor`, which keeps that process running; `pod_client` is its pod's
side. The process itself is `arbiter`: it follows the records that the servers write, so it needs no messages, and
whatever is killed continues from the same records. `trust` says whose arbiter is trusted. An administrator can keep one
running (`standalone`).

    <state>/arbiter.lock              locked by the process that starts the arbiter, and handed over: there is one
    <state>/arbiter.serving           locked by the arbiter itself: the kernel tells others whose process it is
    <state>/arbiters/<user id>/       of the arbiters of one user: log, own/ (files that count), <pod>/shares/ (sockets)
    <state>/shares.json               rules that were set (`machine_rules`), where there is no file of the machine
    <state>/gates/<pod>               link of a pod's server to where its sockets are now: what its programs know
"""
