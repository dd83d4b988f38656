"""The shape of an experiment. Standard library only: arms run under any interpreter.

``cowlab/experiments/__init__.py`` shows how one is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from math import isfinite
from os.path import abspath, basename, isfile
from typing import TYPE_CHECKING, Any, Literal

from cowlab._errors import UsageError
from cowlab._suggest import suggest

if TYPE_CHECKING:
    from cowlab._result import Result

__all__ = [
    "MIB",
    "Arm",
    "Claim",
    "Column",
    "Experiment",
    "Metrics",
    "Parameter",
    "Verdict",
    "different",
    "load",
    "names",
    "refuted",
    "reproduced",
    "source",
    "unanswered",
]

MIB = 1 << 20

Value = int | float | str | bool
Metrics = Mapping[str, float | Sequence[str] | None]
"""What one run of one arm gives: numbers in bytes, seconds, fractions or counts, by
name. None is "not to be had here". The one key that is no number is "warnings"."""

Word = Literal["reproduced", "refuted", "different", "unanswered"]
Unit = Literal["", "MiB", "KiB", "%", "x", "s", "ms", "us", "ns"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What this machine says about a claim, and the measured reason in a sentence."""

    word: Word
    why: str


def reproduced(why: str) -> Verdict:
    """The same happens here."""
    return Verdict("reproduced", why)


def refuted(why: str) -> Verdict:
    """It does not happen here, and should have."""
    return Verdict("refuted", why)


def different(why: str) -> Verdict:
    """Another figure, and ``why`` is the measured reason for it."""
    return Verdict("different", why)


def unanswered(why: str) -> Verdict:
    """This run cannot tell."""
    return Verdict("unanswered", why)


@dataclass(frozen=True, slots=True)
class Claim:
    """A published claim: its id, where it was published, its words, and its judge.

    ``judge`` computes the verdict from the result's figures. A figure that is absent
    (``Missing``) makes the verdict "unanswered" without any doing of the judge.
    """

    id: str
    origin: str
    text: str
    judge: Callable[[Result], Verdict]


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of doing the experiment. ``about`` completes "the child ...".

    ``env`` and ``options`` are for the arm's own interpreter, such as
    ``{"PYTHONMALLOC": "malloc"}`` and ``("-X", "importtime")``.
    """

    name: str
    about: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Column:
    """A metric to show: its heading, the unit to show it in, the published figures.

    Metrics and ``published`` (by arm) are in bytes, seconds, fractions or counts;
    ``unit`` says how a person reads them: "MiB", "KiB", "%", "x", "s", "ms", "us",
    "ns", or "" for a count.
    """

    metric: str
    title: str
    unit: Unit = ""
    published: Mapping[str, float] = field(default_factory=dict)
    about: str = ""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A setting with its default, whose type is the setting's type.

    ``choices`` are the valid words of a str. ``minimum`` and ``maximum`` bound a
    number; a size in bytes (``unit="bytes"``) can be given as 64MiB.
    """

    default: Value
    about: str = ""
    choices: tuple[str, ...] = ()
    minimum: float | None = 1
    maximum: float | None = None
    unit: Literal["", "bytes"] = ""

    def parse(self, text: str) -> Value:
        """The value that ``text`` means; ValueError says what would be valid."""
        text = text.strip()
        if isinstance(self.default, bool):
            return _truth(text)
        if isinstance(self.default, str):
            if self.choices and text not in self.choices:
                raise ValueError(f"{text!r} is none of {', '.join(self.choices)}")
            return text
        value = _number(text, self.default, self.unit)
        low, high = self.minimum, self.maximum
        if (low is not None and value < low) or (high is not None and value > high):
            bounds = [f"at least {low}"] if low is not None else []
            bounds += [f"at most {high}"] if high is not None else []
            raise ValueError(f"{text} is out of range: {' and '.join(bounds)}")
        return value


def _truth(text: str) -> bool:
    words = {"yes": True, "true": True, "on": True, "1": True}
    words |= {"no": False, "false": False, "off": False, "0": False}
    if text.lower() not in words:
        raise ValueError(f"{text!r} is neither yes nor no")
    return words[text.lower()]


_UNITS = {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "b": 1}


def _number(text: str, default: int | float, unit: str) -> int | float:
    """An int stays one: 800000, 800_000, 800,000, 8e5, and 64MiB where bytes are."""
    plain, factor = text.replace(",", ""), 1
    if unit == "bytes":
        for suffix, size in _UNITS.items():
            if plain.lower().endswith(suffix):
                plain, factor = plain[: -len(suffix)].strip(), size
                break
    whole = isinstance(default, int)
    try:
        value: int | float = int(plain) if whole else float(plain)
    except ValueError:
        try:
            value = float(plain)
        except ValueError:
            raise ValueError(f"{text!r} is no number") from None
    value *= factor
    if not isfinite(value):
        raise ValueError(f"{text} is no finite number")
    if whole and value != int(value):
        raise ValueError(f"{text} is no whole number")
    return int(value) if whole else value


@dataclass(frozen=True, slots=True)
class Experiment:
    """One file's worth: what was claimed, what is done, and who judges it.

    ``run_arm(arm, **parameters)`` does one arm once, in a fresh interpreter that ends
    afterwards, and returns its metrics. It raises Unsupported where this machine cannot
    do that arm. ``repeat`` and ``timeout`` (seconds for one sample) are defaults.
    ``notes(result)`` gives further sentences to print under the table.
    """

    name: str
    title: str
    claims: tuple[Claim, ...]
    arms: tuple[Arm, ...]
    columns: tuple[Column, ...]
    run_arm: Callable[..., Metrics]
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    repeat: int = 3
    timeout: float = 300.0
    notes: Callable[[Result], Iterable[str]] | None = None

    def arm(self, name: str) -> Arm:
        """The arm of that name; UsageError suggests the nearest."""
        for arm in self.arms:
            if arm.name == name:
                return arm
        known = [arm.name for arm in self.arms]
        raise UsageError(f"{self.name} has no arm {name!r}. {suggest(name, known)}")

    def settings(self, given: Mapping[str, Any]) -> dict[str, Value]:
        """All parameters: the defaults, and what was given as a value or as text."""
        values = {name: p.default for name, p in self.parameters.items()}
        for name, value in given.items():
            key = name.replace("-", "_")
            if key not in self.parameters:
                known = suggest(name, self.parameters)
                raise UsageError(f"{self.name} has no parameter {name!r}. {known}")
            try:
                values[key] = self.parameters[key].parse(str(value))
            except ValueError as error:
                raise UsageError(f"parameter {key}: {error}") from None
        return values


def names() -> list[str]:
    """The names of all experiments, sorted, without importing any."""
    from pkgutil import iter_modules

    import cowlab.experiments

    found = (m.name for m in iter_modules(cowlab.experiments.__path__) if not m.ispkg)
    return sorted(name.replace("_", "-") for name in found if not name.startswith("_"))


def load(name: str) -> Experiment:
    """The experiment of that name, or in that file; UsageError suggests the nearest."""
    if name.endswith(".py"):
        return _load_file(name)
    wanted = name.replace("_", "-")
    if wanted not in names():
        raise UsageError(f"There is no experiment {name!r}. {suggest(name, names())}")
    module = import_module(f"cowlab.experiments.{wanted.replace('-', '_')}")
    experiment: Experiment = module.EXPERIMENT
    return experiment


def _load_file(path: str) -> Experiment:
    """EXPERIMENT of a file of the reader's own."""
    from importlib.util import module_from_spec, spec_from_file_location

    if not isfile(path):
        raise UsageError(f"There is no experiment file {path!r}")
    spec = spec_from_file_location(basename(path).removesuffix(".py"), path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        what = f"{type(error).__name__}: {error}".rstrip(": ")
        if not isinstance(error, SyntaxError):  # which says it itself
            what += f" ({_place_of(error)})"
        raise UsageError(f"{path} cannot be loaded: {what}") from error
    found = getattr(module, "EXPERIMENT", None)
    if not isinstance(found, Experiment):
        raise UsageError(f"{path} has no EXPERIMENT in it")
    return found


def _place_of(error: BaseException) -> str:
    """The file and line that raised it."""
    from traceback import extract_tb

    last = extract_tb(error.__traceback__)[-1]
    return f"{basename(last.filename)}, line {last.lineno}"


def source(experiment: Experiment) -> str:
    """What ``load`` finds it by in another interpreter: its name, or its file."""
    code = experiment.run_arm.__code__
    if experiment.run_arm.__module__.startswith("cowlab.experiments."):
        return experiment.name
    return abspath(code.co_filename)
