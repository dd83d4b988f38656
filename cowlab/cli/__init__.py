"""The command line: one module per command, loaded when that command is called.

The command NAME is the object ``command`` in ``cowlab.cli._NAME``, with one line in
COMMANDS. What it returns is the exit code: None or 0 for done, 1 when the
measurement failed, 2 for wrong usage. It raises errors and does not print them:
a CowlabError becomes its message on stderr and exit 1, a UsageError exit 2.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

try:
    import click
except ModuleNotFoundError as missing:
    sys.exit(
        f"cowlab: the command line needs {missing.name}: pip install {missing.name}"
    )

from cowlab import __version__
from cowlab._errors import CowlabError, UsageError
from cowlab._suggest import suggest

__all__ = ["COMMANDS", "main"]

COMMANDS = {
    "blame": "Which lines copy inherited pages, and why.",
    "doctor": "What this machine allows, and what would enable the rest.",
    "heap": "Arenas of pymalloc: what is live, what pins them, what a trim returns.",
    "list": "The experiments and the claims they answer.",
    "run": "Run an experiment on this machine.",
    "show": "Show a result that `run --json` saved.",
    "smaps": "Where a process's memory is, and what two of them share.",
    "trial": "Each remedy on your own program: what it saves, and costs.",
}

INTERRUPTED = 130


class _Commands(click.Group):
    """A group that knows its commands' names, and loads the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"cowlab.cli._{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0]
        if word not in COMMANDS and not word.startswith("-"):
            ctx.fail(f"There is no command {word!r}. {_instead_of(word)}")
        return super().resolve_command(ctx, args)

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = "cowlab",
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, False, **extra)
        _prepare_streams()
        try:
            code = super().main(args, prog_name, complete_var, False, **extra)
            sys.stdout.flush()
        except click.ClickException as error:
            error.show()
            _leave(error.exit_code)
        except (click.Abort, KeyboardInterrupt):
            _leave(INTERRUPTED)
        except BrokenPipeError:  # the reader has left (`| head`): without a word
            _leave(1)
        except UsageError as error:
            _fail(str(error), 2)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.startswith("cowlab"):
                raise
            _fail(f"this needs {error.name}: pip install {error.name}", 1)
        except OSError as error:
            # What and where, not "[Errno 2]".
            where = "" if error.filename is None else f" ({error.filename})"
            _fail(f"{error.strerror}{where}" if error.strerror else str(error), 1)
        except CowlabError as error:
            _fail(str(error), 1)
        _leave(code if isinstance(code, int) else 0)


def _instead_of(word: str) -> str:
    """What may have been meant, for instance an experiment's name without "run"."""
    from cowlab._experiment import names

    if word.replace("_", "-") in names():
        return f"It is an experiment: cowlab run {word}"
    return suggest(word, COMMANDS)


def _prepare_streams() -> None:
    """A character that the locale lacks is a "?", a closed stream the null device."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _fail(text: str, code: int) -> NoReturn:
    """One sentence on stderr."""
    click.echo(f"cowlab: {text}", err=True)
    _leave(code)


def _leave(code: int) -> NoReturn:
    """Exit; what cannot be written any more must not become a traceback at the end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(code)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 the measurement failed, 2 wrong usage.",
)
@click.version_option(__version__, prog_name="cowlab", message="%(prog)s %(version)s")
def main() -> None:
    """Which pages a forked worker copied, why, and how to keep them shared."""
