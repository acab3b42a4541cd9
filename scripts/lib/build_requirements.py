"""Print what building the package needs, one requirement a line."""

import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text())
hooks = project["tool"]["hatch"]["build"]["hooks"]
print(*project["build-system"]["requires"], *hooks["jupyter-builder"]["dependencies"], sep="\n")
