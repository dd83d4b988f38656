"""A result with something of everything, made up."""

from cowlab._experiment import Column
from cowlab._result import Answer, Failure, Result, Sample


def a_result(**changes):
    fields = {
        "experiment": "toy",
        "title": "A toy",
        "columns": (Column("copied", "copied MiB", "MiB", {"read": 1.5 * 2**20}),),
        "parameters": {"rows": 10},
        "environment": {"python": "3.13.0", "page_size": 4096},
        "samples": (
            Sample("read", {"copied": 3.0, "gone": None}, 0, 0.5, ("careful",)),
            Sample("nothing", {"copied": 0.0, "gone": None}, 0, 0.5),
            Sample("nothing", {"copied": 2.0, "gone": None}, 1, 0.5),
            Sample("read", {"copied": 1.0, "gone": None}, 1, 0.5),
        ),
        "failures": (Failure("both", "unsupported", "no perf: install it"),),
        "claims": (Answer("A9", "reproduced", "as published", "A", "so it is"),),
        "notes": ("mind this",),
    }
    return Result(**{**fields, **changes})
