"""Run an experiment: every sample in a fresh interpreter, arms in alternating order."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from cowlab._errors import CowlabError, Unsupported, UsageError
from cowlab._experiment import Experiment, load, source, unanswered
from cowlab._interpreter import ArmDied, ArmTimeout, Interpreter
from cowlab._result import Answer, Comparison, Failure, Missing, Result, Sample

__all__ = ["Progress", "judge", "run"]

Progress = Callable[[int, int, str], None]
"""Called with samples done, samples in all, and what is being done now."""


def run(
    experiment: str | Experiment,
    *,
    repeat: int | None = None,
    parameters: Mapping[str, Any] | None = None,
    arms: Sequence[str] = (),
    pythons: Sequence[str] = (),
    timeout: float | None = None,
    progress: Progress | None = None,
) -> Result | Comparison:
    """Run an experiment by name, and have its claims judged.

    Arms run forwards in one repetition and backwards in the next, so that drift
    falls on all alike. With ``pythons``, paths of interpreters, the result is a
    Comparison. An arm that crashes, raises or runs past ``timeout`` (seconds) is a
    Failure in the result, and the others go on. Ctrl-C ends the run: the result has
    what was finished, and ``interrupted`` is set.
    """
    exp = load(experiment) if isinstance(experiment, str) else experiment
    settings = exp.settings(parameters or {})
    chosen = [exp.arm(name).name for name in dict.fromkeys(arms)]
    chosen = chosen or [arm.name for arm in exp.arms]
    times = exp.repeat if repeat is None else repeat
    if times < 1:
        raise UsageError(f"repeat is {times}, and must be at least 1")
    limit = exp.timeout if timeout is None else timeout
    if not 0 < limit <= 1e9:
        raise UsageError(
            f"timeout is {limit:g}, and must be above 0 seconds and finite"
        )

    if pythons:
        from cowlab._pythons import prepare

        def say(text: str) -> None:
            if progress:
                progress(0, 1, text)

        places = [prepare(path, say) for path in dict.fromkeys(pythons)]
    else:
        if "t" in sys.abiflags:
            raise Unsupported(
                "the experiments are about objects, heaps and a collector that this"
                " free-threaded build of CPython has in another way: use the default"
                " build; measure() and `cowlab trial` work here"
            )
        places = [Interpreter.current()]
    results = [
        Result(exp.name, exp.title, exp.columns, settings, place.environment(), ())
        for place in places
    ]
    once = list(product(chosen, range(len(places))))
    todo = ((n, *step) for n in range(times) for step in once[:: -1 if n % 2 else 1])
    interrupted = False
    try:
        for done, (turn, arm, at) in enumerate(todo):
            version = results[at].environment["python"]
            if progress:
                label = f"{arm} on {version}" if len(places) > 1 else arm
                progress(done, len(once) * times, label)
            if _has_failed(results[at], arm):
                continue
            outcome = _one(exp, arm, turn, settings, places[at], limit)
            results[at] = _add(results[at], outcome)
    except KeyboardInterrupt:
        interrupted = True
    results = [judge(exp, replace(r, interrupted=interrupted)) for r in results]
    return Comparison(tuple(results)) if pythons else results[0]


def _has_failed(result: Result, arm: str) -> bool:
    """An arm that failed once is not waited for again."""
    return any(failure.arm == arm for failure in result.failures)


def _add(result: Result, outcome: Sample | Failure) -> Result:
    if isinstance(outcome, Sample):
        return replace(result, samples=(*result.samples, outcome))
    return replace(result, failures=(*result.failures, outcome))


def _one(
    exp: Experiment,
    name: str,
    turn: int,
    settings: Mapping[str, Any],
    place: Interpreter,
    limit: float,
) -> Sample | Failure:
    arm = exp.arm(name)
    order: dict[str, Any] = {"do": "run", "experiment": source(exp), "arm": name}
    order["parameters"] = settings
    try:
        answer = place.ask(order, timeout=limit, env=arm.env, options=arm.options)
    except ArmTimeout as error:
        return Failure(name, "timeout", str(error), turn)
    except ArmDied as error:
        return Failure(name, "crashed", str(error), turn)
    if "unsupported" in answer:
        return Failure(name, "unsupported", answer["unsupported"], turn)
    if "raised" in answer:
        return Failure(name, "raised", answer["raised"] + answer["said"], turn)
    seconds, warnings = answer["seconds"], tuple(answer["warnings"])
    return Sample(name, answer["metrics"], turn, seconds, warnings)


def judge(exp: Experiment, result: Result) -> Result:
    """The result with the verdict of every claim, and the experiment's notes."""
    answers = []
    for claim in exp.claims:
        try:
            verdict = claim.judge(result)
        except Missing as error:
            verdict = unanswered(str(error))
        except ZeroDivisionError:
            verdict = unanswered("a figure is 0: the parameters are too small")
        word, why = verdict.word, verdict.why
        answers.append(Answer(claim.id, word, why, claim.origin, claim.text))
    notes: tuple[str, ...] = ()
    if exp.notes is not None:
        try:
            notes = tuple(exp.notes(result))
        except (CowlabError, ZeroDivisionError):
            notes = ()
    return replace(result, claims=tuple(answers), notes=notes)
