"""Device access of pods: rules, their BPF program, control groups, and the enforcement."""
