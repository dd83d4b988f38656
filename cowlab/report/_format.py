"""Figures as a person reads them."""

from __future__ import annotations

__all__ = ["figure", "scale"]

_SCALES = {
    "MiB": 1 / (1 << 20),
    "KiB": 1 / (1 << 10),
    "%": 100.0,
    "x": 1.0,
    "s": 1.0,
    "ms": 1e3,
    "us": 1e6,
    "ns": 1e9,
    "": 1.0,
}


def scale(unit: str) -> float:
    """What a value in base units is multiplied by to be in ``unit``."""
    return _SCALES.get(unit, 1.0)


def figure(value: float | None, unit: str = "") -> str:
    """A value in base units, shown in ``unit``; the heading names that unit.

    >>> figure(1 << 20, "MiB"), figure(0.901, "%"), figure(37650), figure(None)
    ('1.0', '90.1%', '37,650', '-')
    """
    if value is None:
        return "-"
    shown = value * scale(unit)
    if unit == "" and float(shown).is_integer():
        return f"{shown:,.0f}"
    if unit == "x":
        return f"{shown:,.3f}" if abs(shown) < 10 else f"{shown:,.1f}"
    small = 0 < abs(shown) < 0.995  # 0.999 is 1.0 and not 1.00
    digits = 2 if small else 1
    return f"{shown:,.{digits}f}" + ("%" if unit == "%" else "")
