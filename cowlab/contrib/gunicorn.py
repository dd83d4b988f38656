"""gunicorn whose workers share what the master loaded.

On the command line:

    gunicorn -c python:cowlab.contrib.gunicorn app:application

or in a gunicorn.conf.py, with settings of its own:

    from cowlab.contrib.gunicorn import hooks

    workers = 8
    globals().update(hooks(requests=["/", "/items?page=2"]))

The application is loaded in the master (``preload_app``), which then prepares, before
the first worker and after each reload. Workers that replace others share as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["hooks", "on_reload", "preload_app", "when_ready"]


def hooks(
    *,
    warm: Callable[[], object] | None = None,
    requests: Sequence[str] = (),
    prepare: Mapping[str, Any] | None = None,
    record: str | None = None,
    report_to: str | Path | None = None,
) -> dict[str, Any]:
    """Settings for a gunicorn.conf.py: ``globals().update(hooks(...))``.

    ``requests`` are paths that the master asks the (WSGI) application for, a few times
    each, before it prepares; ``warm`` is called before that. ``prepare`` has further
    arguments of ``prepare_fork``. With ``record`` (a mode of ``cowlab.record``) the
    first worker records which lines copy pages, and writes its blame report to the
    log when it exits or is sent SIGUSR2, and to the file ``report_to``.

    A preparation that fails is logged, and the server runs without: memory is not worth
    an outage. So it does where ``preload_app`` is switched off again.
    """
    settings: dict[str, Any] = {"preload_app": True}
    options = dict(prepare or {})

    def prepare_master(server: Any) -> None:
        if not server.cfg.preload_app:
            server.log.warning(
                "cowlab: not prepared: preload_app is off, so that each worker loads"
                " the application for itself"
            )
            return

        def warm_up() -> None:
            if warm is not None:
                warm()
            _ask(server.app.wsgi(), requests)

        _prepare(server, warm_up, options)

    settings["when_ready"] = settings["on_reload"] = prepare_master
    if record is not None:
        settings.update(_recording(record, report_to))
    return settings


def _ask(application: Any, targets: Sequence[str]) -> None:
    """Code specialises itself in its first few runs: each path is asked for eight
    times."""
    from cowlab._web import Request, wsgi

    for target in targets:
        for _ in range(8):
            response = wsgi(application, Request(target))
        if response.status >= 500:
            raise RuntimeError(f"the warm-up's {target} was answered {response.status}")


def _prepare(server: Any, warm: Callable[[], None], options: Mapping[str, Any]) -> None:
    from cowlab._prepare import prepare_fork

    try:
        report = prepare_fork(warm, **options)
    except (Exception, SystemExit):  # that of a request, too: it ends a worker only
        server.log.exception("cowlab: not prepared, workers will copy what they read")
        return
    immortal = report.step("immortalize")
    made = f"{immortal.figures['made']} objects immortal" if immortal.done else ""
    taken = ", ".join(step.name for step in report.steps if step.done)
    server.log.info(
        "cowlab: prepared in %.2f s (%s)%s", report.seconds, taken, made and f"; {made}"
    )
    for line in report.warnings:
        server.log.warning("cowlab: %s", line)


def _recording(mode: str, report_to: str | Path | None) -> dict[str, Any]:
    """The hooks that record in the first worker."""
    from cowlab.contrib._recording import WorkerRecording

    recordings: list[WorkerRecording] = []

    def post_fork(server: Any, worker: Any) -> None:
        if worker.age == 1:
            recordings.append(WorkerRecording(mode, report_to, server.log.info))
            recordings[0].start()

    def post_worker_init(worker: Any) -> None:
        # Here, since gunicorn resets all signals before.
        for recording in recordings:
            recording.listen()

    def worker_exit(server: Any, worker: Any) -> None:
        for recording in recordings:
            recording.finish()

    return {
        "post_fork": post_fork,
        "post_worker_init": post_worker_init,
        "worker_exit": worker_exit,
    }


_defaults = hooks()
preload_app: bool = _defaults["preload_app"]
when_ready: Callable[[Any], None] = _defaults["when_ready"]
on_reload: Callable[[Any], None] = _defaults["on_reload"]
