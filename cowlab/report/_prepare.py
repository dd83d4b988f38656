"""What a preparation did, for a person."""

from __future__ import annotations

from collections.abc import Mapping

from cowlab._prepare import PrepareReport, Step
from cowlab.report._format import figure

__all__ = ["as_text"]

TYPES_SHOWN = 3


def _counted(name: str, value: int) -> str:
    shown = f"{figure(value, 'MiB')} MiB" if "bytes" in name else figure(value)
    return f"{name.replace('_', ' ')} {shown}"


def _line(step: Step, width: int) -> str:
    if not step.done:
        return f"  {step.name:{width}}  left out: {step.reason}"
    figures = ", ".join(_counted(name, n) for name, n in step.figures.items() if n)
    return f"  {step.name:{width}}  {figures or 'done'}"


def _left(reason: str, types: Mapping[str, int]) -> str:
    most = sorted(types.items(), key=lambda item: -item[1])
    shown = ", ".join(f"{name} {figure(n)}" for name, n in most[:TYPES_SHOWN])
    more = f" and {len(most) - TYPES_SHOWN} more types" * (len(most) > TYPES_SHOWN)
    return f"  {reason}: {shown}{more}"


def as_text(report: PrepareReport) -> str:
    """The steps, what stays mortal and why, and what stands in the way."""
    paused = "the collector is off in this process" if report.gc_paused else ""
    lines = [
        f"Prepared in {report.seconds:.2f} s on CPython {report.python}"
        + (f"; {paused}" if paused else "")
    ]
    width = max(len(step.name) for step in report.steps)
    lines += [_line(step, width) for step in report.steps]
    if report.immortal is not None and report.immortal.left:
        lines.append("Left mortal")
        lines += [_left(*left) for left in sorted(report.immortal.left.items())]
    lines += [f"Warning: {line}" for line in report.warnings]
    return "\n".join(lines)
