"""The end of a sentence about an unknown name: the nearest one, or all there are."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["suggest"]


def suggest(word: str, known: Iterable[str]) -> str:
    """A sentence to put after "there is no ...", from the names that exist.

    >>> suggest("refcont", ["refcount", "thp"])
    "Did you mean 'refcount'?"
    >>> suggest("zzz", ["refcount", "thp"])
    'There are: refcount, thp.'
    """
    from difflib import get_close_matches

    names = list(known)
    lowered = {name.lower(): name for name in names}
    for near in get_close_matches(word.lower(), lowered, n=1, cutoff=0.6):
        return f"Did you mean {lowered[near]!r}?"
    inside = [name for name in names if word and word.lower() in name.lower()]
    if len(inside) == 1:
        return f"Did you mean {inside[0]!r}?"
    return f"There are: {', '.join(names)}." if names else "There are none."
