"""cowlab doctor: the table, the JSON, the exit codes."""

from __future__ import annotations

import io
import json

import pytest

pytest.importorskip("click")
pytest.importorskip("rich")

from rich.console import Console

from cowlab import Capability, host
from cowlab._capability import Outcome, World
from cowlab._host import Host
from cowlab.cli import main
from cowlab.report._host import print_host, size, value_text


def doctor(capsys, *args):
    with pytest.raises(SystemExit) as left:
        main(["doctor", *args])
    said = capsys.readouterr()
    return left.value.code, said.out, said.err


def test_the_table_names_every_capability_and_its_group(capsys):
    code, out, _ = doctor(capsys)
    assert code == 0
    for name in host():
        assert name in out
    for title in ("this kernel", "this process's privileges", "this interpreter"):
        assert title in out


def test_each_missing_one_has_its_reason_and_cost():
    """On a machine that has nothing."""
    nothing = Host(World(proc="/no", sys="/no", probe=lambda name: Outcome(False)))
    out = io.StringIO()
    print_host(nothing, Console(file=out, width=1000))
    missing = [name for name in nothing if not nothing[name]]
    assert len(missing) > 20
    for name in missing:
        assert nothing[name].reason in out.getvalue()
        assert nothing.without(name) in out.getvalue()


def test_json_is_the_host_as_data(capsys):
    code, out, _ = doctor(capsys, "--json")
    assert code == 0
    report = json.loads(out)
    assert report["schema"] == 1
    assert list(report["capabilities"]) == list(host())


def test_one_capability_and_the_exit_code(capsys):
    code, out, _ = doctor(capsys, "page_size")
    assert code == 0
    assert "page_size" in out
    assert "pagemap_scan" not in out
    missing = next((name for name in host() if not host()[name]), None)
    if missing is None:
        pytest.skip("this machine lacks nothing")
    code, out, _ = doctor(capsys, missing, "--json")
    assert code == 1
    assert list(json.loads(out)["capabilities"]) == [missing]


def test_an_unknown_name_is_wrong_usage(capsys):
    code, _, err = doctor(capsys, "perf_sigtrp")
    assert code == 2
    assert "Did you mean 'perf_sigtrap'?" in err


@pytest.mark.parametrize(
    ("number", "text"),
    [(100, "100 bytes"), (4096, "4 KiB"), (2 << 20, "2 MiB"), (3 << 29, "1.5 GiB")],
)
def test_sizes(number, text):
    assert size(number) == text


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        (
            "cgroup",
            {"version": 2, "path": "x", "usage": 4096, "limit": 8192, "high": 6144},
            "version 2, 4 KiB in use, limit 8 KiB, high 6 KiB",
        ),
        ("ksmd", {"run": 1, "may_start": False}, "running"),
        ("swap", {"total": 8192, "free": 4096}, "8 KiB, 4 KiB free"),
        (
            "thp",
            {"setting": "always", "defrag": "madvise", "size": 2 << 20},
            "always, defrag madvise, 2 MiB",
        ),
        ("gil", {"free_threaded_build": True, "enabled": False}, "free-threaded"),
        ("immortality", {"count_of_none": 3221225472}, "3,221,225,472"),
        (
            "privileges",
            {
                "euid": 33,
                "capabilities": [],
                "seccomp": "filter",
                "no_new_privs": True,
                "user_namespace": True,
            },
            "user 33, in a user namespace",
        ),
    ],
)
def test_values_in_words(name, value, text):
    assert text in value_text(Capability(name, True, value))
