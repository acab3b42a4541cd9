"""Which devices a pod may open: rules, their BPF program, control groups, and what enforces them."""
