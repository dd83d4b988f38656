"""The experiments: one file per published claim, the same shape in each.

``experiments/warm_reads.py`` is the experiment ``warm-reads``. A whole one:

    '''Reading an inherited list copies its pages; reading an array does not.'''

    from __future__ import annotations

    from array import array

    from cowlab._experiment import (
        MIB, Arm, Claim, Column, Experiment, Metrics, Parameter, Verdict,
        refuted, reproduced,
    )
    from cowlab._forking import measure
    from cowlab._result import Result


    def run_arm(arm: str, *, rows: int) -> Metrics:
        numbers = range(1 << 32, (1 << 32) + rows)
        data = list(numbers) if arm == "list" else array("q", numbers)
        report = measure(sum, data)
        return {
            "copied": report.copied * report.page_size,
            "share": report.copied / report.inherited,
            "warnings": report.warnings,
        }


    def lists_are_copied(result: Result) -> Verdict:
        many, few = result.median("list", "share"), result.median("array", "share")
        why = f"{many:.0%} of the pages copied with a list, {few:.1%} with an array"
        return reproduced(why) if many > 10 * few else refuted(why)


    EXPERIMENT = Experiment(
        name="warm-reads",
        title="Reading a list copies it, reading an array does not",
        claims=(Claim("A11", "A §7", "one array instead of ...", lists_are_copied),),
        parameters={"rows": Parameter(800_000, "rows in the parent", minimum=100)},
        arms=(Arm("list", "sums a list"), Arm("array", "sums an array")),
        columns=(
            Column("copied", "copied MiB", "MiB", published={"list": 153.7 * MIB}),
            Column("share", "of parent", "%"),
        ),
        run_arm=run_arm,
    )

The rules:

- At import: the standard library and cowlab's core, nothing else. An arm may run
  under an interpreter without numpy, rich or click; import what an arm needs inside
  ``run_arm``, and where it is not there raise ``cowlab.Unsupported("install ...")``.
  That arm is then shown as not possible here with your sentence, and is no failure.
- ``run_arm(arm, **parameters)`` runs once per fresh interpreter, which starts without
  the user's PYTHON* settings and with its output captured, and prints nothing. It
  returns numbers in base units (bytes, seconds, fractions, counts); None is "not to be
  had here". An interpreter that needs its own environment or options gets them from
  its Arm (``env={"PYTHONMALLOC": "malloc"}``, ``options=("-X", "...")``).
- A judge computes its verdict from ``result.median(arm, metric)`` (also ``low``,
  ``high``, ``values``, ``summary()``, ``parameters``, ``environment``) and puts the
  figures into the sentence. An absent figure makes the claim "unanswered" by itself.
  The words: ``reproduced``; ``refuted``: it does not happen here though it should;
  ``different``: another figure, with the measured reason; ``unanswered``: this run
  cannot tell (too few rows, for instance).
- Verdicts must hold at the default parameters. Tests run the same file with small ones.
- While it is being written it can be run from anywhere: ``cowlab run ./my_file.py``.
- ``notes(result)`` may add sentences under the table; ``published`` figures in a Column
  are printed below your own.
"""
