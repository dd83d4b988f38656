"""Trials of small programs: real interpreters, real forks."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from conftest import IMMORTALITY, requires

import cowlab
from cowlab._trial import TrialReport, trial
from cowlab._web import Request

PROGRAM = '''
import os, random, signal, sys, time

table = {f"key {i}": {"name": str(i), "values": [i, i + 1]} for i in range(20_000)}


def read(unit):
    """Each unit a tenth of the table."""
    total = 0
    for i in range(unit % 10, len(table), 10):
        row = table[f"key {i}"]
        total += len(row["name"]) + row["values"][1]
    return {"total": total, "unit": unit}


def idle():
    pass


def tidy():
    assert os.listdir(os.environ["SCRATCH"]) == []


def dice():
    return random.random()


def opaque():
    return lambda: None


def broken(unit):
    if unit == 3:
        raise LookupError("nothing here")


def killed(unit):
    if unit == 3:
        os.kill(os.getpid(), signal.SIGKILL)


def leaves(unit):
    sys.exit(7)


def hangs():
    time.sleep(60)


async def later(unit):
    return 1

def some():
    yield 1

def two(a, b):
    pass


def by_arm():
    """Differs where it was frozen, and only there."""
    import gc

    return gc.get_freeze_count() > 15_000


def fails_frozen(unit):
    if by_arm():
        raise LookupError("cold in here")


number = 7


def wsgi(environ, start_response):
    path = environ["PATH_INFO"]
    errors = {"/missing": "404 Not Found", "/bad": "400 Bad Request"}
    errors["/moved"] = "301 Moved Permanently"
    status = errors.get(path, "200 OK")
    if path == "/raises":
        raise ValueError("not today")
    start_response(status, [("Content-Type", "text/plain")])
    sent = environ["wsgi.input"].read()
    said = f"{environ['REQUEST_METHOD']} {environ.get('HTTP_X_COLOUR')} {sent!r}"
    return [said.encode(), repr(read(int(environ["QUERY_STRING"] or 0))).encode()]


async def asgi(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        scope["state"]["started"] = True
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    assert scope["state"]["started"]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    body = repr(read(int(scope["query_string"] or 0))).encode()
    await send({"type": "http.response.body", "body": body})
'''


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the program in it, and this process in the directory."""
    (tmp_path / "shop.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> TrialReport:
    place = tmp_path_factory.mktemp("trial")
    (place / "shop.py").write_text(PROGRAM)
    before = Path.cwd()
    os.chdir(place)
    try:
        return trial("shop", exercise="shop:read", workers=3, work=30, repeat=2)
    finally:
        os.chdir(before)


@requires("gil")
def test_every_arm_has_its_samples_or_says_why_not(report: TrialReport) -> None:
    assert not report.failed, report.failures
    assert not report.differences
    if IMMORTALITY:
        assert report.arms == ["plain", "freeze", "immortalize", "both", "prepare"]
        assert not report.failures
    else:
        assert report.arms == ["plain", "freeze", "prepare"]
        assert {f.arm for f in report.failures} == {"immortalize", "both"}
        assert {f.kind for f in report.failures} == {"unsupported"}
        assert any(
            "immortalize left out" in warning
            for sample in report.samples
            for warning in sample.warnings
        )
    assert {report.summary(arm, "pss").n for arm in report.arms} == {2}


def test_reading_copies_and_the_remedy_keeps_it_shared(report: TrialReport) -> None:
    size = 20_000 * 300  # a dict, a list, two strings, and an int or two for each row
    plain = report.summary("plain", "copied").median
    assert plain > 3 * size
    assert report.summary("freeze", "copied").median > 0.9 * plain
    if IMMORTALITY:
        assert report.summary("prepare", "copied").median < 0.2 * plain
        assert report.summary("both", "uss").median < 0.5 * (
            report.summary("plain", "uss").median
        )
        assert report.recommendation == "prepare"
        assert report.samples[-1].immortal + report.samples[0].immortal >= 0
    for sample in report.samples:
        assert sample.uss <= sample.pss <= sample.rss
        assert len(sample.workers) == 3
        assert sum(worker["units"] for worker in sample.workers) == 30
        assert sample.copied == sum(worker["copied"] for worker in sample.workers)
        assert sample.minor_faults * 4096 >= 0.9 * sample.copied


def test_the_report_is_plain_data_text_and_html(report: TrialReport) -> None:
    data = json.loads(json.dumps(report.to_json()))
    assert data["report"] == "trial"
    assert data["summary"]["plain"]["pss"]["n"] == 2
    assert len(data["samples"]) == len(report.samples)
    pytest.importorskip("rich")
    text = report.text
    html = report._repr_html_()
    for words in ("PSS MiB", "plain", "freeze", "ceiling", "workers"):
        assert words in text
        assert words in html
    if IMMORTALITY:
        assert "Recommendation: prepare" in text
        assert "never freed" in text
        assert "cowlab.contrib.multiprocessing" in text
    else:
        assert "immortalize: not here" in text


def test_a_forecast_is_what_more_workers_then_take(report: TrialReport) -> None:
    more = trial(
        "shop", exercise="shop:read", workers=6, work=60, repeat=1, arms=["plain"]
    )
    measured = more.summary("plain", "pss").median
    assert report.forecast("plain", 6).pss == pytest.approx(measured, rel=0.1)
    forecast = report.forecast("plain", 3)
    assert forecast.pss == pytest.approx(report.summary("plain", "pss").median)
    assert forecast.ceiling >= forecast.pss
    assert measured < 1.05 * report.forecast("plain", 6).ceiling
    with pytest.raises(cowlab.UsageError):
        report.forecast("plain", 0)


@requires("gil")
def test_blame_names_the_lines_or_says_why_not() -> None:
    found = trial(
        "shop",
        exercise="shop:read",
        workers=2,
        work=20,
        repeat=1,
        arms=["prepare"],
        blame=True,
    )
    assert not found.failed
    best = found.recommendation or "prepare"
    assert [one.arm for one in found.blame] == ["plain", best]
    if not cowlab.host()["perf_sigtrap"]:
        assert all(one.missing and not one.lines for one in found.blame)
        return
    plain, after = found.blame
    first = plain.lines[0]
    line = PROGRAM.splitlines().index('        row = table[f"key {i}"]') + 1
    place, _, number = str(first["line"]).rpartition(":")
    assert place.endswith("shop.py")
    assert line - 1 <= int(number) <= line + 1
    assert first["pages"] > 0.5 * plain.copied
    if IMMORTALITY:
        assert after.copied < 0.3 * plain.copied
    if importlib.util.find_spec("rich") is not None:
        assert "plain: what copied most of" in found.text
        assert "shop.py" in found.text
    assert len(found.to_json()["blame"]) == 2


def test_an_interrupted_trial_has_what_was_finished() -> None:
    def interrupt(done: int, total: int, name: str) -> None:
        assert total == 2
        if done == 1:
            raise KeyboardInterrupt

    options = {"arms": ["freeze"], "workers": 1, "work": 4, "repeat": 1}
    found = trial(exercise="shop:read", progress=interrupt, **options)  # type: ignore[arg-type]
    assert found.interrupted
    assert found.arms == ["plain"]
    if importlib.util.find_spec("rich") is not None:
        assert "Interrupted: only what was finished" in found.text


def test_an_interrupted_blame_leaves_the_samples() -> None:
    def interrupt(done: int, total: int, name: str) -> None:
        if name == "recording freeze":
            raise KeyboardInterrupt

    options = {"arms": ["freeze"], "workers": 1, "work": 4, "repeat": 1, "blame": True}
    found = trial(exercise="shop:read", progress=interrupt, **options)  # type: ignore[arg-type]
    assert found.interrupted
    assert found.arms == ["plain", "freeze"]
    assert [one.arm for one in found.blame] == ["plain"]


def test_an_application_is_asked_without_a_server() -> None:
    request = Request("/?4", "POST", {"X-Colour": "red"}, b"\xff\x00 body")
    found = trial(
        wsgi="shop:wsgi",
        requests=[request, "/?2"],
        workers=2,
        work=8,
        repeat=1,
        arms=["prepare"],
    )
    assert not found.failed
    assert found.server == "gunicorn"
    if IMMORTALITY:
        assert found.recommendation == "prepare"


def test_work_is_dealt_out_at_random_and_alike_in_each_arm() -> None:
    """Two workers and two requests: in turns, each worker would meet one of them."""
    requests = [f"/?{n}" for n in range(2)]
    found = trial(
        wsgi="shop:wsgi",
        requests=requests,
        workers=2,
        work=40,
        repeat=1,
        arms=["freeze"],
    )
    both = trial(
        wsgi="shop:wsgi",
        requests=requests,
        workers=1,
        work=40,
        repeat=1,
        arms=["plain"],
    )
    assert not found.failed  # the same in both arms, unit by unit
    one = both.summary("plain", "copied").median
    for sample in found.samples:
        assert all(worker["units"] == 20 for worker in sample.workers)
        for worker in sample.workers:
            assert worker["copied"] > 0.9 * one


def test_redirects_are_told() -> None:
    asked = ["/moved", "/?1"]
    options = {"workers": 1, "work": 4, "repeat": 1, "arms": ["plain"]}
    found = trial(wsgi="shop:wsgi", requests=asked, **options)  # type: ignore[arg-type]
    (told,) = (text for text in found.samples[0].warnings if "redirect" in text)
    assert told.startswith("2 of 4 requests were answered by a redirect")


@requires("gil")
def test_an_asgi_application_is_started_in_each_worker() -> None:
    found = trial(
        asgi="shop:asgi",
        requests=["/?1", "/?2"],
        workers=2,
        work=8,
        repeat=1,
        arms=["prepare"],
        warm=1,
    )
    assert not found.failed
    assert found.arms == ["plain", "prepare"]
    # The master has asyncio, as that of a server: two workers do not load it anew.
    assert found.summary("plain", "fresh").median < 2 << 20


DJANGO = """
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.urls import path

from shop import read

settings.configure(
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["shop.example"],
    MIDDLEWARE=["django.middleware.common.CommonMiddleware"],
)
application = get_wsgi_application()
urlpatterns = [path("<int:unit>", lambda request, unit: HttpResponse(str(read(unit))))]
"""


def test_a_django_application(here: Path) -> None:
    pytest.importorskip("django")
    (here / "site_of_shop.py").write_text(DJANGO)
    options: dict[str, object] = {"workers": 2, "work": 20, "repeat": 1}
    options |= {"wsgi": "site_of_shop:application", "arms": ["prepare"]}
    with pytest.raises(cowlab.CowlabError, match=r"answered 400; .*--header"):
        trial(requests=["/1"], **options)  # type: ignore[arg-type]
    host = {"Host": "shop.example"}
    requests = [Request(f"/{n}", "GET", host) for n in range(10)]
    found = trial(requests=requests, **options)  # type: ignore[arg-type]
    assert not found.failed
    if IMMORTALITY:
        plain = found.summary("plain", "copied").median
        assert found.summary("prepare", "copied").median < 0.5 * plain


def exercise(name: str, **more: object) -> TrialReport:
    options: dict[str, object] = {
        "workers": 2,
        "work": 8,
        "repeat": 1,
        "arms": ["freeze"],
    }
    return trial("shop", exercise=f"shop:{name}", **(options | more))  # type: ignore[arg-type]


def test_work_that_rolls_dice_does_not_pass() -> None:
    found = exercise("dice", repeat=2, arms=["plain"])
    assert [(one.arm, one.kind, one.units) for one in found.differences] == [
        ("plain", "not deterministic", 8)
    ]
    assert found.failed
    assert found.recommendation is None
    once = exercise("dice")
    assert [(one.arm, one.kind) for one in once.differences] == [
        ("freeze", "one sample")
    ]
    asked = exercise("dice", compare=False, arms=["plain"])
    assert not asked.failed
    assert not asked.compared
    if importlib.util.find_spec("rich") is not None:
        assert "not deterministic" in found.text
        assert "--repeat 2 tells which" in once.text
        assert "No recommendation: no remedy was measured" in asked.text


def test_a_remedy_that_changes_the_results_is_named() -> None:
    found = exercise("by_arm", repeat=2)
    assert [(one.arm, one.kind) for one in found.differences] == [("freeze", "changed")]


def test_an_arm_that_fails_leaves_the_others() -> None:
    found = exercise("fails_frozen", repeat=2)
    assert found.arms == ["plain"]
    (failure,) = found.failures
    assert (failure.arm, failure.kind) == ("freeze", "raised")
    assert "LookupError: cold in here" in failure.why
    assert found.failed
    assert found.recommendation is None
    if importlib.util.find_spec("rich") is not None:
        assert "freeze raised: " in found.text


def test_results_that_cannot_be_compared_do_not_pass() -> None:
    found = exercise("opaque")
    assert [one.kind for one in found.differences] == ["incomparable"]
    assert found.differences[0].first == "function"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("broken", r"unit 3 \(shop:broken\) raised LookupError: nothing here"),
        ("killed", "a worker died: .*SIGKILL"),
        ("leaves", r"a worker died: .*sys.exit\(7\)"),
    ],
)
def test_work_that_fails_fails_the_trial(name: str, said: str) -> None:
    with pytest.raises(cowlab.CowlabError, match=said):
        exercise(name)


def test_workers_for_which_there_are_no_descriptors(here: Path) -> None:
    (here / "frugal.py").write_text(
        "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (40, 40))"
    )
    with pytest.raises(cowlab.CowlabError, match=r"trial itself: .*open files"):
        trial("frugal", exercise="shop:idle", workers=40, work=40, repeat=1)


def test_work_that_never_ends_is_ended() -> None:
    with pytest.raises(cowlab.CowlabError, match=r"a worker died: .* 1 s passed"):
        exercise("hangs", timeout=1.0)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("/missing", "GET /missing.* was answered 404"),
        ("/bad", "was answered 400; .*--header"),
        ("/raises", "raised ValueError: not today"),
    ],
)
def test_an_answer_that_is_an_error_fails_the_trial(target: str, said: str) -> None:
    with pytest.raises(cowlab.CowlabError, match=said):
        trial(wsgi="shop:wsgi", requests=[target], workers=1, work=2, repeat=1)


@pytest.mark.parametrize(
    ("module", "error", "said"),
    [
        ("nowhere", cowlab.UsageError, "no module 'nowhere'"),
        (".near", cowlab.UsageError, "'.near' is no module's name"),
        ("shop.sub", cowlab.CowlabError, "shop.sub"),
        ("raises", cowlab.CowlabError, "import raises raised OSError: not now"),
        ("needs", cowlab.CowlabError, "import needs raised ModuleNotFoundError"),
        ("exits", cowlab.CowlabError, "import exits raised SystemExit"),
        ("dies", cowlab.CowlabError, "the master: killed by SIGKILL"),
    ],
)
def test_a_preload_that_fails(
    here: Path, module: str, error: type[Exception], said: str
) -> None:
    (here / "raises.py").write_text("raise OSError('not now')")
    (here / "needs.py").write_text("import not_there")
    (here / "exits.py").write_text("raise SystemExit(3)")
    (here / "dies.py").write_text("import os; os.kill(os.getpid(), 9)")
    with pytest.raises(error, match=said):
        trial(module, exercise="shop:idle", workers=1, work=1, repeat=1)


@pytest.mark.parametrize(
    "name", ["nothing", "number", "two", "read.nothing", "later", "some"]
)
def test_what_cannot_be_called_is_wrong_usage(name: str) -> None:
    with pytest.raises(cowlab.UsageError):
        exercise(name)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"exercise": len}, "exercise is a name"),
        ({"exercise": "shop:idle", "timeout": "5"}, "timeout is '5'"),
        ({"exercise": "shop:idle", "preload": [None]}, "None is no module's name"),
        ({"exercise": "shop:idle", "arms": [5]}, "there is no arm 5"),
        ({"exercise": "shop:idle", "server": 5}, "there is no server 5"),
        ({"wsgi": "shop:wsgi", "requests": [b"/"]}, "a request is a path"),
        ({"wsgi": "shop:wsgi", "requests": "nowhere"}, "'nowhere' is no path"),
    ],
)
def test_wrong_usage_is_said_in_a_sentence(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(cowlab.UsageError, match=said):
        trial(**wrong)


def test_nothing_lies_in_the_directory_for_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not while an arm runs, either: a trial can be killed."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monkeypatch.setenv("SCRATCH", str(scratch))
    assert not exercise("tidy").failed
    assert list(scratch.iterdir()) == []


def command(*words: str) -> subprocess.CompletedProcess[str]:
    root = str(Path(cowlab.__file__).parents[1])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-P", "-m", "cowlab", "trial", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "80"},
    )


SMALL = ("--workers", "2", "--work", "8", "--repeat", "1", "--arm", "freeze")


def test_the_command_shows_saves_and_exits(here: Path) -> None:
    pytest.importorskip("rich")
    pytest.importorskip("click")
    saved = here / "trial.json"
    done = command("--exercise", "shop:read", *SMALL, "--json", str(saved))
    assert done.returncode == 0, done.stderr
    assert "PSS MiB" in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert json.loads(saved.read_text())["report"] == "trial"
    plain = command("--exercise", "shop:read", *SMALL, "--json", "-")
    assert json.loads(plain.stdout)["samples"][0]["arm"] == "plain"
    dice = command("--exercise", "shop:dice", *SMALL)
    assert dice.returncode == 1
    assert "--repeat 2 tells which" in " ".join(dice.stdout.split())
    (here / "paths.txt").write_text("/?1\n\n/?2\n")
    paths = command("--wsgi", "shop:wsgi", "--request", "@paths.txt", *SMALL)
    assert paths.returncode == 0, paths.stderr
    body = os.fsdecode(b"\xff")
    odd = command("--wsgi", "shop:wsgi", "--request", "/?1", "--body", body, *SMALL)
    assert odd.returncode == 0, odd.stderr
    odd = command("--wsgi", "shop:wsgi", "--request", f"/{body}", *SMALL)
    assert odd.returncode == 2
    assert "is not UTF-8" in odd.stderr
    lost = command("--wsgi", "shop:wsgi", "--request", "@nowhere.txt", *SMALL)
    assert lost.returncode == 2
    assert "cannot read nowhere.txt: No such file" in lost.stderr
    wrong = command("--exercise", "shop", *SMALL)
    assert wrong.returncode == 2
    assert "module:function" in wrong.stderr
