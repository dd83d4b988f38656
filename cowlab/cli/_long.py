"""What several commands share: progress, and files that can be written."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from cowlab._errors import UsageError
from cowlab._runner import Progress

__all__ = ["Bar", "check_writable", "draw"]


def check_writable(file: str) -> None:
    """Better before the long run than after it; and by doing it, since root may all."""
    import tempfile

    if not file:
        raise UsageError("an empty text is no name of a file to write")
    path = Path(file).resolve()
    if path.is_dir():
        raise UsageError(f"{file} is a directory, and should be a file to write")
    if not path.parent.is_dir():
        raise UsageError(f"cannot write {file}: there is no directory {path.parent}")
    if path.exists() and not path.is_file():  # such as /dev/stdout or a named pipe
        return
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}") from None


def draw(figure: Any, file: str) -> None:
    """Save a plot; UsageError for an ending that is no image's."""
    try:
        figure.savefig(file)
    except ValueError as error:
        raise UsageError(f"cannot draw {file}: {error}") from None


class Bar:
    """Progress on stderr, where that is a terminal; nothing otherwise."""

    def __init__(self) -> None:
        self.progress: Progress | None = None

    def __enter__(self) -> Bar:
        if not sys.stderr.isatty():
            return self
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as Drawn

        self._bar = Drawn(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            console=Console(file=sys.stderr),
            transient=True,
        )
        self._bar.start()
        task = self._bar.add_task("starting", total=None)

        def progress(done: int, total: int, label: str) -> None:
            self._bar.update(task, completed=done, total=total, description=label)

        self.progress = progress
        return self

    def __exit__(self, *exception: object) -> None:
        if self.progress is not None:
            self._bar.stop()
