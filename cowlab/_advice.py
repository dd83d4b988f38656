"""The lines to paste for each remedy and server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["lines_to_paste"]

_CALLS = {
    "freeze": ("gc", ["gc.collect()", "gc.freeze()"]),
    "immortalize": ("cowlab", ["cowlab.immortalize()"]),
    "both": ("gc cowlab", ["cowlab.immortalize()", "gc.collect()", "gc.freeze()"]),
    "prepare": ("cowlab", ["cowlab.prepare_fork()"]),
}

PATHS = 5
"""Paths for a warm-up that are written out."""

_WARM_UP = "# warm_up: a function of yours that does once what each worker will do"


def lines_to_paste(arm: str, server: str, command: Mapping[str, Any]) -> str:
    """What to write, and where, for that arm's remedy. "" for plain.

    ``command`` is a trial's: its ``target``, ``kind``, ``requests``, ``workers`` and
    ``warm`` are in the lines.

    >>> command = {"target": "shop:app", "kind": "wsgi", "workers": 4, "warm": 0}
    >>> print(lines_to_paste("prepare", "gunicorn", command))
    # gunicorn.conf.py; or, without a file: gunicorn -c python:cowlab.contrib.gunicorn
    from cowlab.contrib.gunicorn import hooks
    <BLANKLINE>
    globals().update(hooks())
    """
    if arm not in _CALLS:
        return ""
    modules, calls = _CALLS[arm]
    warm = arm == "prepare" and bool(command["warm"])
    if warm:
        calls = ["cowlab.prepare_fork(warm_up)"]
    imports = "\n".join(f"import {module}" for module in modules.split())
    lines = {
        "gunicorn": _gunicorn,
        "uwsgi": _uwsgi,
        "celery": _celery,
        "multiprocessing": _multiprocessing,
    }[server](arm == "prepare", imports, calls, command)
    if "warm_up" in lines:
        lines = lines.replace("\n", f"\n{_WARM_UP}\n", 1)
    return lines


def _body(calls: list[str]) -> str:
    return "\n".join(f"    {call}" for call in calls)


_ASGI = (
    "# With --worker-class uvicorn_worker.UvicornWorker: processes that uvicorn itself"
    "\n# starts (--workers) load everything anew, and share nothing.\n"
)


def _gunicorn(
    prepare: bool, imports: str, calls: list[str], command: Mapping[str, Any]
) -> str:
    lines = _configuration(prepare, imports, calls, command)
    if command["kind"] == "asgi":
        lines = lines.replace("\n", f"\n{_ASGI}", 1)
    return lines


def _configuration(
    prepare: bool, imports: str, calls: list[str], command: Mapping[str, Any]
) -> str:
    if prepare and command["warm"]:
        paths = _warm_paths(command)
        warm = f"requests={paths}" if paths else "warm=warm_up"
        return (
            "# gunicorn.conf.py\nfrom cowlab.contrib.gunicorn import hooks\n\n"
            f"globals().update(hooks({warm}))"
        )
    if prepare:
        return (
            "# gunicorn.conf.py; or, without a file: gunicorn -c"
            " python:cowlab.contrib.gunicorn\n"
            "from cowlab.contrib.gunicorn import hooks\n\n"
            "globals().update(hooks())"
        )
    return (
        f"# gunicorn.conf.py\n{imports}\n\n"
        "preload_app = True\n\n\n"
        "def when_ready(server):  # loaded, and before the first fork\n"
        f"{_body(calls)}\n\n\n"
        "on_reload = when_ready"
    )


def _warm_paths(command: Mapping[str, Any]) -> str:
    """Some paths for ``hooks(requests=...)``; "" where these are not all there is."""
    if command["kind"] != "wsgi":
        return ""
    paths = []
    for one in command["requests"]:
        if one["method"] != "GET" or one["headers"] or one["body"]:
            return ""
        paths.append(one["target"])
    return json.dumps(list(dict.fromkeys(paths))[:PATHS])


def _uwsgi(
    prepare: bool, imports: str, calls: list[str], command: Mapping[str, Any]
) -> str:
    module, _, name = str(command["target"]).partition(":")
    if command["kind"] == "exercise":
        module, name = "your_application", "application"
    first, _, rest = name.partition(".")
    load = f"from {module} import {first}"
    if rest:
        load += f"\n\napplication = {name}"
    elif first != "application":
        load += " as application"
    return (
        "# prepared.py, loaded in place of the application: uwsgi --master"
        f" --processes {command['workers']} --module prepared ...\n"
        "# Without --lazy-apps, which loads it in each worker anew.\n"
        f"{load}\n\n{imports}\n\n" + "\n".join(calls)
    )


def _celery(
    prepare: bool, imports: str, calls: list[str], command: Mapping[str, Any]
) -> str:
    return (
        "# beside the Celery application; for the prefork pool\n"
        f"{imports}\nfrom celery.signals import worker_init\n\n\n"
        "@worker_init.connect\n"
        "def share(**_):  # tasks are imported, and nothing is forked yet\n"
        f"{_body(calls)}"
    )


def _multiprocessing(
    prepare: bool, imports: str, calls: list[str], command: Mapping[str, Any]
) -> str:
    workers = command["workers"]
    if prepare:
        warm = ', prepare={"warm": warm_up}' if command["warm"] else ""
        return (
            "# after all data is loaded, in place of multiprocessing.Pool\n"
            "from cowlab.contrib.multiprocessing import Pool\n\n"
            f"with Pool({workers}{warm}) as pool:\n    ..."
        )
    return (
        f"# after all data is loaded, before the first process\n{imports}\n"
        "import multiprocessing\n\n"
        + "\n".join(calls)
        + '\nwith multiprocessing.get_context("fork").Pool('
        + f"{workers}) as pool:\n    ..."
    )
