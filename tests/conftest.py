"""What all tests share."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

IMMORTALITY = (
    sys.version_info >= (3, 12)
    and not hasattr(sys, "gettotalrefcount")
    and "t" not in sys.abiflags
)
"""Whether this interpreter can have immortal objects of our making."""

immortality = pytest.mark.skipif(
    not IMMORTALITY,
    reason="no immortality: it begins with CPython 3.12, and is neither for debug"
    " builds nor for free-threaded ones",
)

_jit_on = getattr(getattr(sys, "_jit", None), "is_enabled", bool)
FEW_PAGES = 64 if _jit_on() else 32
"""What a child may copy besides: a JIT that compiles takes some 30 pages of stack."""

# How long an example takes says how busy the machine is.
settings.register_profile(
    "unhurried",
    settings(),
    deadline=None,
    suppress_health_check=[*settings().suppress_health_check, HealthCheck.too_slow],
)
settings.load_profile("unhurried")

# The interpreters that tests start import what is installed, not this tree.
os.environ["PYTHONSAFEPATH"] = "1"

# A shell has what runs in the background ignore it, and children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def requires(*names: str) -> pytest.MarkDecorator:
    """Skip a test where a capability is missing, with the capability's own reason.

    In a test module: ``from conftest import requires``, ``@requires("perf_sigtrap")``.
    """
    from cowlab import host

    missing = [str(host()[name]) for name in names if not host()[name]]
    return pytest.mark.skipif(bool(missing), reason="; ".join(missing))


@pytest.fixture
def uncollected() -> Iterator[None]:
    """The collector is off: it would free and close what other tests left."""
    was_on = gc.isenabled()
    gc.disable()
    yield
    if was_on:
        gc.enable()
