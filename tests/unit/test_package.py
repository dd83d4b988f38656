"""The package's table of names."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import cowlab


@pytest.mark.parametrize("name", cowlab.__all__)
def test_every_public_name_is_there(name):
    value = getattr(cowlab, name)
    assert value.__doc__, "it is public, and says nothing of itself"
    assert name in dir(cowlab)


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'meassure'"):
        cowlab.meassure  # noqa: B018


def test_type_checkers_see_the_same_names():
    stub = Path(cowlab.__file__).with_name("__init__.pyi").read_text()
    seen = set(re.findall(r"^from cowlab\.(\w+) import (\w+) as \2$", stub, re.M))
    table = {(home, name) for name, home in cowlab._HOME.items()}
    missing = [f"from cowlab.{h} import {n} as {n}" for h, n in sorted(table - seen)]
    assert not missing, "to be added to __init__.pyi:\n" + "\n".join(missing)
    assert not seen - table, "in __init__.pyi but not in the table"


def test_importing_it_imports_nothing_else():
    code = (
        "import sys\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "before = set(sys.modules)\n"
        "import cowlab\n"
        "print(*set(sys.modules) - before)"
    )
    place = str(Path(cowlab.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, place],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["cowlab"], done.stderr
