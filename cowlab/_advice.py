"""The lines to paste for each remedy and server."""

from __future__ import annotations

__all__ = ["lines_to_paste"]

_CALLS = {
    "freeze": ("import gc", ["gc.collect()", "gc.freeze()"]),
    "immortalize": ("import cowlab", ["cowlab.immortalize()"]),
    "both": (
        "import gc\nimport cowlab",
        ["cowlab.immortalize()", "gc.collect()", "gc.freeze()"],
    ),
    "prepare": ("import cowlab", ["cowlab.prepare_fork()"]),
}


def lines_to_paste(arm: str, server: str) -> str:
    """What to write, and where, for that arm's remedy. "" for plain.

    >>> print(lines_to_paste("prepare", "uwsgi"))
    # at the end of the module that uWSGI loads; without lazy-apps, which loads it
    # again in each worker
    import cowlab
    <BLANKLINE>
    cowlab.prepare_fork()
    """
    if arm not in _CALLS:
        return ""
    imports, calls = _CALLS[arm]
    return {
        "gunicorn": _gunicorn,
        "uwsgi": _uwsgi,
        "celery": _celery,
        "multiprocessing": _multiprocessing,
    }[server](imports, calls)


def _body(calls: list[str]) -> str:
    return "\n".join(f"    {call}" for call in calls)


def _gunicorn(imports: str, calls: list[str]) -> str:
    return (
        f"# gunicorn.conf.py\n{imports}\n\n"
        "preload_app = True\n\n\n"
        "def when_ready(server):  # loaded, and before the first fork\n"
        f"{_body(calls)}\n\n\n"
        "on_reload = when_ready"
    )


def _uwsgi(imports: str, calls: list[str]) -> str:
    return (
        "# at the end of the module that uWSGI loads; without lazy-apps, which loads"
        " it\n# again in each worker\n"
        f"{imports}\n\n" + "\n".join(calls)
    )


def _celery(imports: str, calls: list[str]) -> str:
    return (
        f"# where the Celery application is made; for the prefork pool\n{imports}\n\n"
        "from celery.signals import worker_before_create_process\n\n\n"
        "@worker_before_create_process.connect\n"
        "def prepare(**_):  # before the first fork, and no more\n"
        "    worker_before_create_process.disconnect(prepare)\n"
        f"{_body(calls)}"
    )


def _multiprocessing(imports: str, calls: list[str]) -> str:
    if "cowlab.prepare_fork()" in calls:
        return (
            "# after all data is loaded, in place of multiprocessing.Pool\n"
            "from cowlab.contrib.multiprocessing import Pool\n\n"
            "with Pool(8) as pool:\n    ..."
        )
    return (
        f"# after all data is loaded, before the first process\n{imports}\n"
        "import multiprocessing\n\n"
        + "\n".join(calls)
        + '\nwith multiprocessing.get_context("fork").Pool(8) as pool:\n    ...'
    )
