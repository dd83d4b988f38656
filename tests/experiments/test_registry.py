"""All experiments alike: one shape, and nothing that an arm cannot have."""

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import requires

from cowlab._experiment import Experiment, load, names
from cowlab._result import Result
from cowlab._runner import judge, run

README = Path(__file__).parent.parent.parent / "README.md"
UNITS = {"", "MiB", "KiB", "%", "x", "s", "ms", "us", "ns"}


@pytest.mark.parametrize("name", names())
def test_an_experiment_has_the_shape(name):
    experiment = load(name)
    assert isinstance(experiment, Experiment)
    assert experiment.name == name
    assert experiment.title
    assert not experiment.title.endswith(".")
    assert sys.modules[experiment.run_arm.__module__].__doc__
    for things in (experiment.claims, experiment.arms, experiment.columns):
        assert things
    assert len({arm.name for arm in experiment.arms}) == len(experiment.arms)
    assert len({claim.id for claim in experiment.claims}) == len(experiment.claims)
    arms = {arm.name for arm in experiment.arms}
    for column in experiment.columns:
        assert column.unit in UNITS
        assert set(column.published) <= arms, column.title
    for arm in experiment.arms:
        assert " " not in arm.name, "it is typed on a command line"
    for claim in experiment.claims:
        assert claim.origin
        assert claim.text
    for key, parameter in experiment.parameters.items():
        assert parameter.about, key
        assert parameter.parse(str(parameter.default)) == parameter.default


@pytest.mark.parametrize("name", names())
def test_a_run_without_figures_leaves_every_claim_unanswered(name):
    experiment = load(name)
    empty = Result(
        experiment.name,
        experiment.title,
        experiment.columns,
        experiment.settings({}),
        {},
        (),
    )
    for answer in judge(experiment, empty).claims:
        assert answer.verdict == "unanswered", answer
        assert answer.why


def test_experiments_need_the_standard_library_only():
    code = (
        "import sys\n"
        "for name in ('numpy', 'rich', 'click', 'psutil'): sys.modules[name] = None\n"
        "from cowlab._experiment import load, names\n"
        "import cowlab._arm, cowlab._forking, cowlab._result\n"
        "assert 'random' not in sys.modules, 'it has an at-fork handler'\n"
        "assert 'threading' not in sys.modules, 'and so has this'\n"
        "for name in names(): load(name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_readme_lists_the_experiments_as_they_are():
    rows = []
    for name in names():
        experiment = load(name)
        claims = " ".join(claim.id for claim in experiment.claims)
        rows.append(f"| `{name}` | {claims} | {experiment.title} |")
    listed = [
        line
        for line in README.read_text(encoding="utf-8").splitlines()
        if line.startswith("| `") and line.count("|") == 4
    ]
    assert listed == rows, "the table for README.md:\n" + "\n".join(rows)


@requires("gil")
def test_the_example_in_the_documentation_is_an_experiment(tmp_path):
    import textwrap

    import cowlab.experiments

    text = cowlab.experiments.__doc__
    begin, end = text.index("    '''Reading"), text.index("The rules:")
    file = tmp_path / "warm_reads.py"
    file.write_text(textwrap.dedent(text[begin:end]))
    result = run(str(file), repeat=1, parameters={"rows": 50_000})
    assert [answer.verdict for answer in result.claims] == ["reproduced"], result
