"""``cowlab blame`` on a script, a function and a WSGI application."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import requires

import cowlab

pytestmark = requires("gil")

pytest.importorskip("click")
pytest.importorskip("rich")

ROOT = Path(cowlab.__file__).parents[1]

SHOP = """
PRICES = {f"item{i}": [float(i)] for i in range(20_000)}

def total():
    return sum(price[0] for price in PRICES.values())

def app(environ, start_response):
    start_response("200 OK", [])
    found = [n for n, price in PRICES.items() if price[0] > 1 or environ["PATH_INFO"]]
    return [str(len(found)).encode()]

def broken(environ, start_response):
    start_response("500 Oh", [])
    return []
"""

SCRIPT = """
import shop
print(shop.total())
"""


@pytest.fixture(autouse=True)
def shop(tmp_path: Path) -> Path:
    try:
        with cowlab.record("lines"):
            pass
    except cowlab.Unsupported as error:
        pytest.skip(str(error))
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "job.py").write_text(SCRIPT)
    return tmp_path


def blame(where: Path, *arguments: str, status: int = 0) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "cowlab", "blame", *arguments],
        capture_output=True,
        text=True,
        cwd=where,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=120,
        check=False,
    )
    assert done.returncode == status, done.stderr
    return done


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["shop:total"], 5),
        (["--preload", "shop", "job.py"], 5),
        (["shop:app", "--request", "/?q=1"], 9),
    ],
)
def test_the_line_comes_first(shop: Path, arguments: list[str], line: int) -> None:
    data = json.loads(blame(shop, *arguments, "--json", "-").stdout)
    first = data["by_line"][0]
    assert first["name"] in (f"{shop}/shop.py:{line}", f"{shop}/shop.py:{line - 1}")
    assert first["pages"] >= 200
    assert data["copied"] == sum(row["pages"] for row in data["by_cause"])


def test_the_report_shows_the_source_and_advice(shop: Path) -> None:
    text = blame(shop, "shop:total").stdout
    assert "> return sum(price[0] for price in PRICES.values())" in text
    assert "prepare_fork()" in text
    assert "note: A page belongs to its first writer" in text


def test_html_is_one_file(shop: Path) -> None:
    assert blame(shop, "shop:total", "--html", "out.html").stdout == ""
    page = (shop / "out.html").read_text()
    assert "shop.py:5" in page
    assert "http" not in page and "<script" not in page


@pytest.mark.skipif(sys.version_info < (3, 12), reason="no immortality")
def test_prepared_copies_little(shop: Path) -> None:
    plain = json.loads(blame(shop, "shop:total", "--json", "-").stdout)
    kept = json.loads(blame(shop, "--prepare", "shop:total", "--json", "-").stdout)
    assert kept["copied"] < plain["copied"] / 4


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["shop:nothing"], 2, "has no 'nothing'"),
        (["nowhere:total"], 2, "no module 'nowhere'"),
        (["nowhere.py"], 2, "no script"),
        (["shop"], 2, "script.py or module:function"),
        (["shop:PRICES"], 2, "cannot be called"),
        (["job.py", "--request", "/"], 2, "not with a script"),
        (["shop:broken", "--request", "/"], 1, "500 Oh"),
        (["shop:total", "--json", ""], 2, "no name of a file"),
        (["shop:total", "--html", "/nowhere/x"], 2, "no directory /nowhere"),
        (["shop:total", "--json", "a", "--html", "a"], 2, "the same file"),
    ],
)
def test_wrong_use_is_one_sentence(
    shop: Path, arguments: list[str], status: int, said: str
) -> None:
    done = blame(shop, *arguments, status=status)
    assert said in done.stderr
    assert "Traceback" not in done.stderr
