"""Print what pyproject.toml requires, one a line.

usage: tools/requirements.py {build,run,EXTRA}...
"""

import sys
import tomllib
from pathlib import Path

with (Path(__file__).parent.parent / "pyproject.toml").open("rb") as file:
    pyproject = tomllib.load(file)
groups = {
    **pyproject["project"]["optional-dependencies"],
    "build": pyproject["build-system"]["requires"],
    "run": pyproject["project"]["dependencies"],
}
for name in sys.argv[1:]:
    if name not in groups:
        sys.exit(f"tools/requirements.py: no {name!r}; there are: {', '.join(groups)}")
    print(*groups[name], sep="\n")
