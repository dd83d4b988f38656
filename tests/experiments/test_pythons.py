"""Other interpreters: built for on the fly, or impossible for a reason."""

import os
import shlex
import shutil
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from conftest import requires

from cowlab import _build, _pythons
from cowlab._errors import Unsupported, UsageError
from cowlab._runner import run

TOY = str(Path(__file__).with_name("toy.py"))
VERSION = "{}.{}.{}".format(*sys.version_info[:3])


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("COWLAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def a_python(path, says):
    """A program that answers as that interpreter would."""
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{says}\nEND\n")
    path.chmod(0o755)
    return str(path)


def a_probe(version, **changes):
    facts = {
        "version": [int(part) for part in version.split(".")],
        "python": version,
        "implementation": "CPython",
        "free_threaded": False,
        "tag": "cpython",
        "suffix": ".so",
        "executable": "/nowhere",
        "cowlab": None,
    }
    import json

    return "cowlab:" + json.dumps({**facts, **changes})


@pytest.mark.any_python
def test_a_python_without_cowlab_gets_one_and_keeps_it(tmp_path, cache, monkeypatch):
    header = Path(sysconfig.get_path("include"), "Python.h")
    compiler = _build.find_compiler()
    if not header.is_file() or compiler is None:
        pytest.skip("there is no C compiler, or no Python.h")
    # The last flags count: half the time.
    quick = tmp_path / "cc"
    quick.write_text(f'#!/bin/sh\nexec {shlex.join(compiler)} "$@" -O0 -g0\n')
    quick.chmod(0o755)
    monkeypatch.setenv("CC", str(quick))
    venv.create(tmp_path / "bare", with_pip=False)
    python = str(tmp_path / "bare" / "bin" / "python")
    told = []
    results = run(
        TOY,
        arms=["good"],
        repeat=1,
        pythons=[python, sys.executable],
        progress=lambda *step: told.append(step[2]),
    ).results
    assert told[0] == f"building for {VERSION}"
    assert [r.environment["python"] for r in results] == [VERSION, VERSION]
    assert [r.median("good", "rows") for r in results] == [10, 10]

    made = {path: path.stat().st_mtime_ns for path in cache.rglob("*")}
    assert not [path for path in made if path.name.startswith(".making")]
    place = _pythons.prepare(python, pytest.fail)
    assert place.environment()["python"] == VERSION
    assert Path(place.root).is_relative_to(cache)
    built = {path for path in made if path.suffix == ".so"}
    assert all(path.stat().st_mtime_ns == made[path] for path in built)


@requires("gil")
def test_this_python_is_not_built_for():
    place = _pythons.prepare(sys.executable, pytest.fail)
    assert place.python == sys.executable


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (a_probe("3.10.9"), "CPython 3.10.9: cowlab needs CPython 3.11"),
        (a_probe("2.7.18"), "needs CPython 3.11"),
        (a_probe("3.99.0"), "up to 3.15"),
        (a_probe("3.11.1", implementation="PyPy"), "PyPy 3.11.1: .* CPython only"),
        (a_probe("3.14.1", free_threaded=True), "free-threaded"),
    ],
)
def test_an_interpreter_that_cannot_be_measured_is_told(tmp_path, says, why):
    with pytest.raises(Unsupported, match=why):
        _pythons.prepare(a_python(tmp_path / "python", says))


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/bin/true", "is not Python"),
        ("/nowhere/python", "no such interpreter"),
        ("/etc", "is a directory"),
        (sys.prefix, "Did you mean .*/bin/python3"),
        (__file__, "not executable"),
        ("", "no such interpreter"),
    ],
)
def test_what_is_no_interpreter_is_told(path, why):
    with pytest.raises(UsageError, match=why):
        _pythons.prepare(path)


def test_what_a_wrong_program_says_is_passed_on(tmp_path):
    path = tmp_path / "python"
    path.write_text("#!/bin/sh\necho 'python: that version is not installed' >&2\n")
    path.chmod(0o755)
    with pytest.raises(UsageError, match=r"\(python: that version is not installed\)"):
        _pythons.prepare(str(path))


def test_what_does_not_answer_is_told_and_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(_pythons, "PROBE_SECONDS", 0.2)
    path = tmp_path / "python"
    path.write_text("#!/bin/sh\nsleep 1000 &\nsleep 1000\n")
    path.chmod(0o755)
    with pytest.raises(UsageError, match="did not answer"):
        _pythons.prepare(str(path))


def test_a_build_that_is_impossible_says_what_to_install(tmp_path, cache):
    script = tmp_path / "python"
    a_python(script, a_probe("3.12.0"))
    script.write_text(
        script.read_text() + "case $* in *_build.py*) echo it has no C headers;; esac\n"
    )
    with pytest.raises(Unsupported, match=r"cannot be built for .* no C headers"):
        _pythons.prepare(str(script))
    assert list(cache.iterdir()) == [], "nothing half made is left"


def test_a_build_without_headers_names_the_package(monkeypatch, capsys):
    monkeypatch.setattr(sysconfig, "get_path", lambda name: "/nowhere")
    assert _build.main("/nowhere", "/nowhere") == 1
    said = capsys.readouterr().out
    assert "/nowhere/Python.h is missing" in said
    assert "apt-get install python3." in said


def test_a_build_without_compiler_names_one(monkeypatch, capsys, tmp_path):
    (tmp_path / "Python.h").write_text("")
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert _build.main("/nowhere", "/nowhere") == 1
    assert "apt-get install gcc" in capsys.readouterr().out


def test_a_build_that_fails_shows_the_compilers_error(monkeypatch, capsys, tmp_path):
    if _build.find_compiler() is None:
        pytest.skip("there is no C compiler")
    (tmp_path / "Python.h").write_text("")
    (tmp_path / "x.c").write_text("#error no such layout\n")
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    assert _build.main(str(tmp_path), str(tmp_path / "x.so")) == 1
    assert "no such layout" in capsys.readouterr().out


def test_a_cache_that_cannot_be_written_names_the_variable(monkeypatch):
    monkeypatch.setenv("COWLAB_CACHE", "/proc/cowlab")
    with pytest.raises(Unsupported, match="set COWLAB_CACHE"):
        _pythons.cache_directory()


def test_the_cache_is_where_the_user_wants_it(monkeypatch, tmp_path):
    monkeypatch.setenv("COWLAB_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert _pythons.cache_directory() == tmp_path / "xdg" / "cowlab"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert _pythons.cache_directory() == tmp_path / ".cache" / "cowlab"


def test_sources_are_found_in_a_checkout_and_in_an_installed_package(tmp_path):
    package = tmp_path / "cowlab"
    package.mkdir()
    with pytest.raises(Unsupported, match="without its C sources"):
        _pythons._c_sources(package)
    for place in (tmp_path / "src", package / "_src"):
        place.mkdir()
        (place / "py_module.c").write_text("")
        assert _pythons._c_sources(package) == place


def test_the_digest_is_of_every_source(tmp_path):
    package = tmp_path / "cowlab"
    (package / "cli").mkdir(parents=True)
    (package / "_src").mkdir()
    files = [
        package / "a.py",
        package / "cli" / "b.py",
        package / "_src" / "py_module.c",
    ]
    for file in files:
        file.write_text("one")
    digests = {_pythons._digest(package)}
    for file in files:
        file.write_text("two")
        digests.add(_pythons._digest(package))
    os.rename(files[0], package / "c.py")
    digests.add(_pythons._digest(package))
    assert len(digests) == 5
