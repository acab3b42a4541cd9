"""Print requirements from pyproject.toml, one a line: `build`, what building needs; `user`, what a user installs."""

import sys
import tomllib
from pathlib import Path

settings = tomllib.loads(Path("pyproject.toml").read_text())
project = settings["project"]
lab = [requirement for requirement in project["optional-dependencies"]["test"] if requirement.startswith("jupyterlab")]
requirements = {
    "build": [
        *settings["build-system"]["requires"],
        *settings["tool"]["hatch"]["build"]["hooks"]["jupyter-builder"]["dependencies"],
    ],
    "user": [*project["dependencies"], *lab],
}
for kind in sys.argv[1:]:
    print(*requirements[kind], sep="\n")
