"""Questions to a real driver that its documentation leaves open: `python -m benchmarks.survey [NAME…] [--out FILE]`.

Each question runs in processes of its own and has a deadline; answers are lines of JSON. What has been found is in
docs/designs/real-gpu.md.
"""
