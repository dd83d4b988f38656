"""A run's result: inert data with its raw samples, which saves and loads itself."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, cast

from cowlab._errors import CowlabError, needs
from cowlab._experiment import Column
from cowlab._stats import Summary, summarise

__all__ = [
    "Answer",
    "Comparison",
    "Failure",
    "Missing",
    "Result",
    "Sample",
    "load_result",
    "save_text",
]

SCHEMA = 1
TOOL = "cowlab"


class Missing(CowlabError):
    """A figure that this result does not have; the message says why."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of one arm in an interpreter of its own. ``seconds`` is the whole arm."""

    arm: str
    metrics: Mapping[str, float | None]
    repetition: int = 0
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """A run of an arm that gave no sample. "unsupported" is no fault of the arm's."""

    arm: str
    kind: Literal["unsupported", "raised", "crashed", "timeout"]
    why: str
    repetition: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """A claim's verdict as it is reported, with where and what was claimed."""

    id: str
    verdict: str
    why: str
    origin: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """One experiment under one interpreter: raw samples, and what follows from them."""

    experiment: str
    title: str
    columns: tuple[Column, ...]
    parameters: Mapping[str, Any]
    environment: Mapping[str, Any]
    samples: tuple[Sample, ...]
    failures: tuple[Failure, ...] = ()
    claims: tuple[Answer, ...] = ()
    notes: tuple[str, ...] = ()
    interrupted: bool = False
    schema: int = field(default=SCHEMA)

    @property
    def failed(self) -> bool:
        """Whether an arm crashed, raised or ran out of time, or none could be run."""
        return not self.samples or any(f.kind != "unsupported" for f in self.failures)

    @property
    def arms(self) -> list[str]:
        """The arms that have samples, in the order in which they first came."""
        return list(dict.fromkeys(sample.arm for sample in self.samples))

    def values(self, arm: str, metric: str) -> list[float]:
        """All samples of one figure; Missing where there is none."""
        mine = [s.metrics.get(metric) for s in self.samples if s.arm == arm]
        values = [value for value in mine if value is not None]
        if values:
            return values
        if mine:
            raise Missing(f"{arm} has no figure for {metric}")
        for failure in self.failures:
            if failure.arm == arm:
                raise Missing(f"{arm}: {failure.why.splitlines()[-1]}")
        reason = "the run was interrupted" if self.interrupted else "it was not run"
        raise Missing(f"{arm} has no sample: {reason}")

    def median(self, arm: str, metric: str) -> float:
        """The median of one figure; Missing where there is none."""
        return summarise(self.values(arm, metric)).median

    def low(self, arm: str, metric: str) -> float:
        """The smallest sample of one figure."""
        return min(self.values(arm, metric))

    def high(self, arm: str, metric: str) -> float:
        """The largest sample of one figure."""
        return max(self.values(arm, metric))

    def summary(self) -> dict[str, dict[str, Summary]]:
        """Median, min, max and n, by arm and metric. Absent figures are left out."""
        table: dict[str, dict[str, list[float]]] = {}
        for sample in self.samples:
            row = table.setdefault(sample.arm, {})
            for metric, value in sample.metrics.items():
                if value is not None:
                    row.setdefault(metric, []).append(value)
        return {
            arm: {metric: summarise(values) for metric, values in row.items()}
            for arm, row in table.items()
        }

    def to_json(self) -> dict[str, Any]:
        """The whole result as plain data."""
        return {
            "schema": SCHEMA,
            "tool": TOOL,
            "experiment": self.experiment,
            "title": self.title,
            "columns": [asdict(column) for column in self.columns],
            "parameters": dict(self.parameters),
            "environment": dict(self.environment),
            "samples": [asdict(sample) for sample in self.samples],
            "summary": {
                arm: {metric: asdict(s) for metric, s in row.items()}
                for arm, row in self.summary().items()
            },
            "claims": [asdict(claim) for claim in self.claims],
            "failures": [asdict(failure) for failure in self.failures],
            "notes": list(self.notes),
            "interrupted": self.interrupted,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Result:
        """The result that ``to_json`` gave; CowlabError says what is wrong with it."""
        _check(data)
        try:
            return cls(
                experiment=_text(data["experiment"]),
                title=_text(data.get("title", "")),
                columns=tuple(_column(c) for c in data.get("columns", ())),
                parameters=dict(data.get("parameters", {})),
                environment=_environment(data["environment"]),
                samples=tuple(_sample(sample) for sample in data["samples"]),
                failures=tuple(_failure(f) for f in data.get("failures", ())),
                claims=tuple(_answer(claim) for claim in data["claims"]),
                notes=tuple(_text(note) for note in data.get("notes", ())),
                interrupted=bool(data.get("interrupted", False)),
            )
        except KeyError as error:
            raise CowlabError(f"the result has no {error.args[0]!r}") from None
        except (TypeError, ValueError, AttributeError) as error:
            raise CowlabError(f"a part of the result is damaged: {error}") from None

    def to_csv(self) -> str:
        """The raw samples: a line for each figure, under a heading."""
        return _csv([self])

    def plot(self, metric: str | None = None) -> Any:
        """A matplotlib figure of one metric, the first column's unless it is named."""
        from cowlab.report._plot import plot

        return plot([self], metric)

    def _repr_html_(self) -> str:
        from cowlab.report._html import page

        return page([self])

    def __str__(self) -> str:
        with needs("The text of a result", "rich"):
            from cowlab.report._text import as_text

        return as_text([self])


@dataclass(frozen=True, slots=True)
class Comparison:
    """The same experiment under several interpreters, a Result for each."""

    results: tuple[Result, ...]

    @property
    def failed(self) -> bool:
        """Whether any of the results failed."""
        return any(result.failed for result in self.results)

    @property
    def interrupted(self) -> bool:
        """Whether the run was cut short."""
        return any(result.interrupted for result in self.results)

    def to_json(self) -> dict[str, Any]:
        """All results as plain data."""
        return {
            "schema": SCHEMA,
            "tool": TOOL,
            "experiment": self.results[0].experiment,
            "results": [result.to_json() for result in self.results],
        }

    def to_csv(self) -> str:
        """The raw samples of all of them."""
        return _csv(self.results)

    def plot(self, metric: str | None = None) -> Any:
        """A matplotlib figure of one metric, the first column's unless it is named."""
        from cowlab.report._plot import plot

        return plot(self.results, metric)

    def _repr_html_(self) -> str:
        from cowlab.report._html import page

        return page(self.results)

    def __str__(self) -> str:
        with needs("The text of a result", "rich"):
            from cowlab.report._text import as_text

        return as_text(self.results)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _numbers(data: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in data.items():
        if value is not None and not isinstance(value, (int, float)):
            raise TypeError(f"{name} is {value!r}, no number")
    return dict(data)


def _column(data: Mapping[str, Any]) -> Column:
    published = _numbers(data.get("published", {}))
    return Column(
        metric=_text(data["metric"]),
        title=_text(data["title"]),
        unit=cast(Any, _text(data.get("unit", ""))),
        published={arm: v for arm, v in published.items() if v is not None},
        about=_text(data.get("about", "")),
    )


def _environment(data: Mapping[str, Any]) -> dict[str, Any]:
    _numbers({name: data.get(name) for name in ("page_size", "memory")})
    return dict(data)


def _failure(data: Mapping[str, Any]) -> Failure:
    kind = _text(data["kind"])
    return Failure(
        arm=_text(data["arm"]),
        kind=cast(Any, kind),
        why=_text(data["why"]),
        repetition=int(data.get("repetition", 0)),
    )


def _answer(data: Mapping[str, Any]) -> Answer:
    fields = ("id", "verdict", "why")
    extra = (_text(data.get(name, "")) for name in ("origin", "text"))
    return Answer(*(_text(data[name]) for name in fields), *extra)


def _sample(data: Mapping[str, Any]) -> Sample:
    return Sample(
        arm=_text(data["arm"]),
        metrics=_numbers(data["metrics"]),
        repetition=int(data.get("repetition", 0)),
        seconds=float(data.get("seconds", 0.0)),
        warnings=tuple(_text(warning) for warning in data.get("warnings", ())),
    )


def _check(data: object) -> None:
    """CowlabError unless this is a result of a schema that is known here."""
    if not isinstance(data, Mapping) or not {"schema", "experiment"} <= data.keys():
        raise CowlabError("it is no result of cowlab run")
    schema = data["schema"]
    if not isinstance(schema, int) or schema < 1:
        raise CowlabError(f"its schema is {schema!r}, and should be a number from 1")
    if schema > SCHEMA:
        raise CowlabError(
            f"it has schema {schema}, from a newer cowlab; this one reads up to"
            f" {SCHEMA}: upgrade cowlab"
        )


def load_result(path: str | os.PathLike[str]) -> Result | Comparison:
    """The result in a file that ``cowlab run --json`` wrote."""
    from pathlib import Path

    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        what = "is empty" if _empty(path) else f"is not whole JSON ({error})"
        raise CowlabError(f"{path} {what}: it is no result of cowlab run") from None
    try:
        _check(data)
        if "results" not in data:
            return Result.from_json(data)
        if not isinstance(data["results"], list):
            raise CowlabError("its list of results is damaged")
        parts = tuple(Result.from_json(part) for part in data["results"])
        if not parts:
            raise CowlabError("it has no results in it")
        return Comparison(parts)
    except CowlabError as error:
        raise CowlabError(f"cannot show {path}: {error}") from None


def _empty(path: str | os.PathLike[str]) -> bool:
    return os.path.getsize(path) == 0


def save_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a file so that at no moment it is there by half."""
    import tempfile
    from pathlib import Path

    target = Path(path).resolve()  # what a link leads to is replaced, not the link
    if target.exists() and not target.is_file():  # /dev/stdout, a named pipe
        target.write_text(text, encoding="utf-8")
        return
    handle, partial = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(partial, 0o666 & ~_umask())
        os.replace(partial, target)
    except BaseException:
        os.unlink(partial)
        raise


def _umask() -> int:
    """There is no way to ask for it but to set it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _csv(results: tuple[Result, ...] | list[Result]) -> str:
    import csv
    import io

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["experiment", "python", "arm", "repetition", "metric", "value"])
    for result in results:
        python = result.environment.get("python", "")
        for sample in result.samples:
            for metric, value in sample.metrics.items():
                shown = "" if value is None else value
                row = [sample.arm, sample.repetition, metric, shown]
                writer.writerow([result.experiment, python, *row])
    return out.getvalue()
