"""Runs in a notebook's container: opens every simulated GPU again and again and reports what ever succeeded and failed.

`python prober.py COUNT STOP`: COUNT devices, until the file STOP exists. Prints one JSON object at the end.
"""

import json
import os
import sys

count, stop = int(sys.argv[1]), sys.argv[2]
opened, refused = [0] * count, [0] * count
while not os.path.exists(stop):  # noqa: PTH110 imports nothing that is not needed: it starts at once
    for index in range(count):
        try:
            os.close(os.open(f"/dev/jupyter-gpu/gpu{index}", os.O_RDWR))
            opened[index] += 1
        except OSError:
            refused[index] += 1
print(json.dumps({"opened": opened, "refused": refused}))
