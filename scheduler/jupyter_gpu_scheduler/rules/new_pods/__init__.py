"""Pure: pods without a node: admission, nomination, review, preemption."""
