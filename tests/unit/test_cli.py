"""The command line, as someone new to it may use it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import requires

pytest.importorskip("click")
pytest.importorskip("rich")

TOY = str(Path(__file__).parent.parent / "experiments" / "toy.py")


def cowlab(*args, **kwargs):
    """Run it as a user would; the environment changes by ``env``, None takes away."""
    changes = kwargs.pop("env", {})
    env = {**os.environ, **changes}
    env = {name: value for name, value in env.items() if value is not None}
    root = (
        Path(sys.modules["cowlab"].__file__).parent.parent if "cwd" in kwargs else None
    )
    if root is not None:
        env["PYTHONPATH"] = str(root)
    return subprocess.run(
        [sys.executable, "-m", "cowlab", *map(str, args)],
        capture_output=True,
        text=True,
        errors="replace",
        env=env,
        timeout=120,
        check=False,
        **kwargs,
    )


def run_toy(*args, **kwargs):
    return cowlab("run", TOY, "--arm", "good", "--repeat", 1, *args, **kwargs)


def test_help_loads_no_command():
    code = (
        "import sys, cowlab.cli\n"
        "try: cowlab.cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'rich', 'numpy', 'cowlab._runner', 'cowlab._native', 'dataclasses'}\n"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Commands:" in done.stdout


def test_every_command_loads_and_has_help(capsys):
    from cowlab.cli import COMMANDS, main

    for name in COMMANDS:
        with pytest.raises(SystemExit) as left:
            main([name, "--help"])
        assert not left.value.code
        assert f"cowlab {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["lst"], "Did you mean 'list'?"),
        (["zzz"], "There are: "),
        (["--nope"], "No such option"),
        (["refcount-privatisation"], "cowlab run refcount-privatisation"),
        (["run", TOY, "--timeout", "nan"], "above 0"),
        (["run", TOY, "--json", "x", "--csv", "x"], "same file"),
        (["run"], "Missing argument"),
        (["run", "refcount"], "Did you mean 'refcount-privatisation'?"),
        (["run", "nowhere.py"], "no experiment file"),
        (["run", __file__], "has no EXPERIMENT"),
        (["run", TOY, "--arm", "god"], "Did you mean 'good'?"),
        (["run", TOY, "--set", "row=1"], "Did you mean 'rows'?"),
        (["run", TOY, "--set", "rows"], "KEY=VALUE"),
        (["run", TOY, "--set", "rows=x"], "'x' is no number"),
        (["run", TOY, "--set", "how=odd"], "none of plain, careful"),
        (["run", TOY, "--repeat", "0"], "at least 1"),
        (["run", TOY, "--repeat", "x"], "not a valid integer"),
        (["run", TOY, "--timeout", "-1"], "above 0"),
        (["run", TOY, "--json", "/nowhere/x"], "no directory /nowhere"),
        (["run", TOY, "--json", "/proc"], "is a directory"),
        (["run", TOY, "--json", ""], "is no name of a file"),
        (["run", TOY, "--json", "-", "--csv", "-"], "same file"),
        (["run", TOY, "--python", "/nowhere"], "no such interpreter"),
        (["show", "/nowhere"], "does not exist"),
        (["heap", "--plot", "/nowhere/x.png"], "no directory /nowhere"),
        (["heap", "--plot", "/tmp"], "is a directory"),
        (["list", "zzz"], "There are:"),
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_2(args, says, capsys):
    from cowlab.cli import main

    with pytest.raises(SystemExit) as left:
        main(args)
    out, err = capsys.readouterr()
    assert left.value.code == 2
    assert says in err
    assert out == ""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x ===", "SyntaxError: invalid syntax (mine.py, line 1)"),
        ("import os\n1 / 0", "ZeroDivisionError: division by zero (mine.py, line 2)"),
        ("import sys\nsys.exit(3)", "SystemExit: 3 (mine.py, line 2)"),
    ],
)
def test_an_experiment_that_cannot_be_loaded_is_one_sentence(
    text, says, tmp_path, capsys
):
    from cowlab.cli import main

    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(SystemExit) as left:
        main(["run", str(tmp_path / "mine.py")])
    assert left.value.code == 2
    assert f"cannot be loaded: {says}\n" in capsys.readouterr().err


def test_wrong_usage_of_the_program_itself():
    done = cowlab("lst")
    assert done.returncode == 2
    assert "Did you mean 'list'?" in done.stderr
    assert "Traceback" not in done.stderr


def test_list_has_every_experiment_whole_when_piped(capsys):
    from cowlab._experiment import load, names
    from cowlab.cli import main

    done = cowlab("list", env={"COLUMNS": None})
    assert done.returncode == 0
    for name in names():
        assert name in done.stdout
        assert load(name).title in done.stdout
        with pytest.raises(SystemExit) as left:
            main(["list", name])
        assert not left.value.code
        assert name in capsys.readouterr().out


@requires("gil")
def test_a_run_prints_its_table_and_its_claims():
    done = run_toy("--set", "rows=2_000")
    assert done.returncode == 0, done.stderr
    assert "2,000" in done.stdout
    assert "A0 reproduced" in done.stdout
    assert done.stderr == "", "progress is for terminals"


@requires("gil")
def test_show_prints_what_run_printed(tmp_path):
    saved = tmp_path / "result.json"
    done = run_toy("--json", saved, "--csv", tmp_path / "result.csv")
    assert json.loads(saved.read_text())["experiment"] == "toy"
    assert (tmp_path / "result.csv").read_text().startswith("experiment,python,arm")
    shown = cowlab("show", saved)
    assert shown.returncode == 0
    assert shown.stdout == done.stdout


@requires("gil")
def test_json_on_stdout_is_json_alone():
    data = json.loads(run_toy("--json", "-").stdout)
    assert data["samples"][0]["metrics"]["rows"] == 10


@requires("gil")
def test_a_failed_arm_is_shown_and_exit_1():
    done = cowlab("run", TOY, "--arm", "crash", "--arm", "good", "--repeat", 1)
    assert done.returncode == 1
    assert "these are my last words" in done.stdout
    assert "A0 reproduced" in done.stdout


def test_show_of_what_is_no_result_is_one_sentence_and_exit_1(tmp_path):
    file = tmp_path / "x.json"
    file.write_text('{"schema": 99, "experiment": "x"}')
    done = cowlab("show", file)
    assert done.returncode == 1
    assert "newer cowlab" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("to", "code", "says"),
    [
        ("| true", 0, ""),
        (">&-", 0, ""),
        ("2>&-", 0, ""),
        (">/dev/full", 1, "cowlab: No space left on device\n"),
    ],
)
def test_output_that_nobody_can_read_is_no_traceback(to, code, says):
    command = f"{sys.executable} -m cowlab list refcount-privatisation {to}"
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (code, says)


@requires("gil")
def test_failures_are_told_when_stdout_is_json():
    done = cowlab("run", TOY, "--arm", "raise", "--repeat", 1, "--json", "-")
    assert done.returncode == 1
    assert json.loads(done.stdout)["failures"]
    assert "no such row" in done.stderr


@pytest.mark.parametrize(
    "env",
    [
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "ascii"},
        {"NO_COLOR": "1", "TERM": "dumb"},
        {"COLUMNS": "60"},
        {"COLUMNS": "5"},
        {"COLUMNS": "wide"},
        {"HOME": None},
        {"HOME": "/nowhere", "XDG_CACHE_HOME": None},
        {"PATH": "/nowhere"},
    ],
)
def test_it_works_in_a_poor_environment(env):
    commands = [["list", "refcount-privatisation"]]
    if "COLUMNS" in env:
        commands.append(["list"])
    for args in commands:
        done = cowlab(*args, env=env)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        if env.get("COLUMNS") == "60":
            assert max(map(len, done.stdout.splitlines())) <= 60


@requires("gil")
def test_a_run_works_in_a_poor_environment():
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "HOME": None}
    done = run_toy(env={**env, "PATH": "/nowhere", "COLUMNS": "5"})
    assert done.returncode == 0, done.stderr


@requires("gil")
def test_it_works_where_nothing_can_be_written(tmp_path):
    tmp_path.chmod(0o555)
    assert run_toy(cwd=tmp_path).returncode == 0
    assert run_toy(cwd="/proc/self").returncode == 0
    done = run_toy("--json", "/proc/self/x")
    assert done.returncode == 2
    assert "cannot write" in done.stderr


@requires("gil")
def test_show_draws_what_was_saved(tmp_path, capsys):
    from cowlab.cli import main

    saved, image = tmp_path / "result.json", tmp_path / "plot.svg"
    run_toy("--json", saved)
    done = cowlab("show", saved, "--plot", image, "--metric", "double")
    if "needs matplotlib" in done.stderr:
        assert done.returncode == 1
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    assert "<svg" in image.read_text()
    with pytest.raises(SystemExit) as left:
        main(["show", str(saved), "--plot", str(tmp_path / "plot.txt")])
    assert left.value.code == 2
    assert "not supported" in capsys.readouterr().err
