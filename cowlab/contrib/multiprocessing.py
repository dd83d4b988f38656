"""multiprocessing and concurrent.futures over workers that share what was loaded.

The start method is "fork", whatever the program's default: a worker that is spawned
loads everything anew, and shares nothing.

    from cowlab.contrib.multiprocessing import Pool, ProcessPoolExecutor

    table = load()
    with Pool(8) as pool:
        pool.map(look_up, keys)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent import futures
from multiprocessing import context as contexts
from multiprocessing import pool as pools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cowlab.contrib._recording import WorkerRecording

if TYPE_CHECKING:
    from cowlab._prepare import PrepareReport

__all__ = ["ForkContext", "Pool", "ProcessPoolExecutor", "context"]


class ForkContext(contexts.ForkContext):
    """The "fork" context, which prepares this process before its first child.

    Everything that takes a ``multiprocessing`` context takes this one. ``report`` is
    what the preparation did, None before the first child.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        record: str | None = None,
        report_to: str | Path | None = None,
    ) -> None:
        super().__init__()
        self._options = dict(options)
        self.report: PrepareReport | None = None
        # For the first child alone: taken by it when it is forked.
        recordings = [] if record is None else [WorkerRecording(record, report_to)]
        outer = self

        class Process(contexts.ForkProcess):
            """A child of a prepared parent."""

            recording: WorkerRecording | None = None

            @staticmethod
            def _Popen(process_obj: Any) -> Any:
                if outer.report is None:
                    outer.prepare()
                if recordings:
                    process_obj.recording = recordings.pop()
                return contexts.ForkProcess._Popen(process_obj)

            def _bootstrap(self, parent_sentinel: int | None = None) -> int:
                """The child's whole life."""
                if self.recording is not None:
                    self.recording.start()
                    self.recording.listen(leave_on_term=True)
                try:
                    code: int = super()._bootstrap(parent_sentinel)  # type: ignore[misc]
                    return code
                finally:
                    if self.recording is not None:
                        self.recording.finish()

        self.Process = Process  # type: ignore[misc]

    def prepare(self) -> PrepareReport:
        """Prepare now; again, for instance, where more was loaded since."""
        from cowlab._prepare import prepare_fork

        self.report = prepare_fork(**self._options)
        return self.report


def context(
    *,
    record: str | None = None,
    report_to: str | Path | None = None,
    **options: Any,
) -> ForkContext:
    """A context whose first child is preceded by ``cowlab.prepare_fork(**options)``.

    Load everything before. Pass it on as ``mp_context`` or ``multiprocessing_context``
    (an executor's and a DataLoader's words for it), or use its ``Process``, ``Pool``
    and ``Queue``.

    With ``record`` (a mode of ``cowlab.record``) the first child records which of its
    lines copy pages, and reports when it ends or is sent SIGUSR2: to standard error,
    and to the file ``report_to``. It does before a pool's ``terminate()`` ends it, too.
    """
    return ForkContext(options, record, report_to)


def Pool(
    processes: int | None = None,
    initializer: Callable[..., object] | None = None,
    initargs: Iterable[Any] = (),
    maxtasksperchild: int | None = None,
    *,
    prepare: Mapping[str, Any] | None = None,
    record: str | None = None,
    report_to: str | Path | None = None,
) -> pools.Pool:
    """``multiprocessing.Pool`` with workers forked from a prepared process.

    ``prepare`` has the arguments of ``prepare_fork``; ``record`` and ``report_to`` are
    as for ``context()``. Workers that replace others, when
    ``maxtasksperchild`` is reached, share as the first ones do.
    """
    forked = context(record=record, report_to=report_to, **(prepare or {}))
    return forked.Pool(processes, initializer, initargs, maxtasksperchild)


class ProcessPoolExecutor(futures.ProcessPoolExecutor):
    """``concurrent.futures.ProcessPoolExecutor`` over a prepared process.

    ``prepare`` has the arguments of ``prepare_fork``, which is called when the first
    task is submitted: what was loaded by then is shared. ``preparation`` is its report.
    ``record`` and ``report_to`` are as for ``context()``.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        *,
        prepare: Mapping[str, Any] | None = None,
        record: str | None = None,
        report_to: str | Path | None = None,
    ) -> None:
        self._context = context(record=record, report_to=report_to, **(prepare or {}))
        super().__init__(
            max_workers,
            mp_context=self._context,
            initializer=initializer,
            initargs=initargs,
        )

    @property
    def preparation(self) -> PrepareReport | None:
        return self._context.report
