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
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cowlab._prepare import PrepareReport

__all__ = ["ForkContext", "Pool", "ProcessPoolExecutor", "context"]


class ForkContext(contexts.ForkContext):
    """The "fork" context, which prepares this process before its first child.

    Everything that takes a ``multiprocessing`` context takes this one. ``report`` is
    what the preparation did, None before the first child.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__()
        self._options = dict(options)
        self.report: PrepareReport | None = None
        outer = self

        class Process(contexts.ForkProcess):
            """A child of a prepared parent."""

            @staticmethod
            def _Popen(process_obj: Any) -> Any:
                if outer.report is None:
                    outer.prepare()
                return contexts.ForkProcess._Popen(process_obj)

        self.Process = Process  # type: ignore[misc]

    def prepare(self) -> PrepareReport:
        """Prepare now; again, for instance, where more was loaded since."""
        from cowlab._prepare import prepare_fork

        self.report = prepare_fork(**self._options)
        return self.report


def context(**options: Any) -> ForkContext:
    """A context whose first child is preceded by ``cowlab.prepare_fork(**options)``.

    Load everything before. Pass it on as ``mp_context`` or ``multiprocessing_context``
    (an executor's and a DataLoader's words for it), or use its ``Process``, ``Pool``
    and ``Queue``.
    """
    return ForkContext(options)


def Pool(
    processes: int | None = None,
    initializer: Callable[..., object] | None = None,
    initargs: Iterable[Any] = (),
    maxtasksperchild: int | None = None,
    *,
    prepare: Mapping[str, Any] | None = None,
) -> pools.Pool:
    """``multiprocessing.Pool`` with workers forked from a prepared process.

    ``prepare`` has the arguments of ``prepare_fork``. Workers that replace others, when
    ``maxtasksperchild`` is reached, share as the first ones do.
    """
    return context(**(prepare or {})).Pool(
        processes, initializer, initargs, maxtasksperchild
    )


class ProcessPoolExecutor(futures.ProcessPoolExecutor):
    """``concurrent.futures.ProcessPoolExecutor`` over a prepared process.

    ``prepare`` has the arguments of ``prepare_fork``, which is called when the first
    task is submitted: what was loaded by then is shared. ``preparation`` is its report.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        *,
        prepare: Mapping[str, Any] | None = None,
    ) -> None:
        self._context = context(**(prepare or {}))
        super().__init__(
            max_workers,
            mp_context=self._context,
            initializer=initializer,
            initargs=initargs,
        )

    @property
    def preparation(self) -> PrepareReport | None:
        return self._context.report
