"""Other interpreters: what they are, and a cowlab for each, built into a cache.

The cache is ``$COWLAB_CACHE``, else ``$XDG_CACHE_HOME/cowlab``, else ~/.cache/cowlab.
Its entries are named after the sources they were made of, so nothing in it is ever
stale, and all of it can be deleted at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cowlab
from cowlab._errors import Unsupported, UsageError
from cowlab._interpreter import Interpreter, clean_environment

__all__ = ["cache_directory", "prepare"]

OLDEST = (3, 11)
NEWEST = (3, 15)
PROBE_SECONDS = 60.0
BUILD_SECONDS = 600.0

# In words that Python 2 understands, since that may be what is at the other end.
_PROBE = """
import json, platform, sys, sysconfig
sys.path[:] = [place for place in sys.path if place]
def where():
    try:
        from importlib.util import find_spec
        return find_spec("cowlab").origin
    except Exception:
        return None
print("cowlab:" + json.dumps({
    "version": list(sys.version_info[:3]),
    "python": platform.python_version(),
    "implementation": platform.python_implementation(),
    "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "tag": sysconfig.get_config_var("SOABI"),
    "suffix": sysconfig.get_config_var("EXT_SUFFIX"),
    "executable": sys.executable,
    "cowlab": where(),
}))
"""

Say = Callable[[str], None]


def prepare(path: str, say: Say = lambda text: None) -> Interpreter:
    """The interpreter at ``path`` with a cowlab of these very sources for it.

    It may be a path or a command's name. UsageError where it is no Python; Unsupported,
    with the reason, where cowlab cannot be had for it.
    """
    python = _find(path)
    facts = _probe(python, path)
    _check(facts, path)
    if _is_current(facts):
        return Interpreter.current()
    if _is_ours(facts):
        return Interpreter(python, str(Path(facts["cowlab"]).parent.parent))
    return Interpreter(python, str(_install(python, path, facts, say)))


def _find(path: str) -> str:
    if os.path.isdir(path):
        inside = os.path.join(path, "bin", "python3")
        hint = f" Did you mean {inside}?" if os.path.exists(inside) else ""
        raise UsageError(f"--python {path} is a directory and no interpreter.{hint}")
    found = shutil.which(path)
    if found is None:
        if os.path.exists(path):
            raise UsageError(f"--python {path} is not executable")
        raise UsageError(f"--python {path}: there is no such interpreter")
    return os.path.abspath(found)


def _probe(python: str, path: str) -> dict[str, Any]:
    """What it says of itself."""
    try:
        _, said, error = _call([python, "-E", "-s", "-c", _PROBE], PROBE_SECONDS)
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"--python {path} did not answer in {PROBE_SECONDS:g} s"
        ) from None
    except OSError as failure:
        raise UsageError(f"--python {path} cannot be run: {failure.strerror}") from None
    for line in said.splitlines():
        if line.startswith("cowlab:"):
            facts: dict[str, Any] = json.loads(line.removeprefix("cowlab:"))
            return facts
    first = next((line.strip() for line in error.splitlines() if line.strip()), "")
    words = f" ({first[:100]})" if first else ""
    raise UsageError(
        f"--python {path} is not Python: it does not run Python code{words}"
    )


def _call(command: list[str], seconds: float) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command that may be a script with children."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=clean_environment(),
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=seconds)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, out, err


def _check(facts: dict[str, Any], path: str) -> None:
    """Unsupported, with the reason, for an interpreter that cannot be measured."""
    name = f"{facts['implementation']} {facts['python']}"
    if facts["implementation"] != "CPython":
        raise Unsupported(f"{path} is {name}: cowlab measures CPython only")
    version = tuple(facts["version"][:2])
    if version < OLDEST:
        raise Unsupported(f"{path} is {name}: cowlab needs CPython 3.11 or newer")
    if version > NEWEST:
        raise Unsupported(
            f"{path} is {name}: this cowlab knows the object layouts up to 3.15 only"
        )
    if facts["free_threaded"]:
        raise Unsupported(
            f"{path} is {name}, free-threaded: the experiments are about objects,"
            " heaps and a collector that it has in another way. Name a default build."
        )


def _is_current(facts: dict[str, Any]) -> bool:
    here = (sys.executable, platform.python_version())
    return (facts["executable"], facts["python"]) == here


def _is_ours(facts: dict[str, Any]) -> bool:
    """Whether a cowlab that is installed there was made of the same sources as this."""
    if not facts["cowlab"]:
        return False
    theirs = Path(facts["cowlab"]).parent
    built = theirs / f"_native{facts['suffix']}"
    installed = (theirs / "_src").is_dir() and built.is_file()
    return installed and _digest(theirs) == _digest(_package())


def _package() -> Path:
    return Path(cowlab.__file__).parent


def _c_sources(package: Path) -> Path:
    """In an installed package beside its modules, in a checkout beside the package."""
    for place in (package / "_src", package.parent / "src"):
        if (place / "py_module.c").is_file():
            return place
    raise Unsupported(
        "this cowlab was installed without its C sources, so it cannot be built for"
        " another interpreter: install cowlab there, or run from a checkout"
    )


def _modules(package: Path) -> Iterator[Path]:
    """All Python files of the package, those behind the experiments' link too."""
    for folder, folders, files in os.walk(package, followlinks=True):
        folders[:] = sorted(f for f in folders if not f.startswith((".", "__")))
        for name in sorted(files):
            if name.endswith(".py"):
                yield Path(folder, name)


def _digest(package: Path) -> str | None:
    """One word for the Python files and the C sources; None without sources."""
    try:
        sources = _c_sources(package)
    except Unsupported:
        return None
    return _hash([(str(p.relative_to(package)), p) for p in _modules(package)]) + _hash(
        [(p.name, p) for p in sorted(sources.glob("*.[ch]"))]
    )


def _hash(files: list[tuple[str, Path]]) -> str:
    digest = hashlib.sha256()
    for name, path in files:
        data = path.read_bytes()
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()[:16]


def cache_directory() -> Path:
    """Where builds for other interpreters are kept; it is made where it is not."""
    chosen = os.environ.get("COWLAB_CACHE")
    if not chosen:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        chosen = os.path.join(base, "cowlab")
    if not os.path.isabs(chosen):
        chosen = os.path.abspath(chosen)
    try:
        os.makedirs(chosen, exist_ok=True)
        with tempfile.TemporaryFile(dir=chosen):
            pass
    except OSError as error:
        raise Unsupported(
            f"the cache {chosen} cannot be written ({error.strerror}):"
            " set COWLAB_CACHE to a directory that can"
        ) from None
    return Path(chosen)


def _install(python: str, path: str, facts: dict[str, Any], say: Say) -> Path:
    """The directory to import cowlab from, made unless it is there."""
    package = _package()
    sources = _c_sources(package)
    cache = cache_directory()
    who = hashlib.sha256(f"{python}\0{facts['python']}".encode()).hexdigest()[:8]
    kind = f"{facts['tag']}-{who}"
    core = f"core-{_hash([(p.name, p) for p in sorted(sources.glob('*.[ch]'))])}-{kind}"
    with _made(cache / core) as fresh:
        if fresh is not None:
            say(f"building for {facts['python']}")
            _build(python, path, sources, fresh / f"_native{facts['suffix']}")
    root = cache / f"package-{_digest(package)}-{kind}"
    with _made(root) as fresh:
        if fresh is not None:
            for module in _modules(package):
                copy = fresh / "cowlab" / module.relative_to(package)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(module, copy)
            for built in (cache / core).iterdir():
                shutil.copyfile(built, fresh / "cowlab" / built.name)
    return root


@contextlib.contextmanager
def _made(place: Path) -> Iterator[Path | None]:
    """Fill a fresh directory that becomes ``place`` when whole; None if it is there."""
    if place.is_dir():
        yield None
        return
    fresh = Path(tempfile.mkdtemp(prefix=".making-", dir=place.parent))
    try:
        yield fresh
        fresh.chmod(0o755)
        try:
            fresh.rename(place)
        except OSError:
            if not place.is_dir():  # else another run was quicker, with the same
                raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _build(python: str, path: str, sources: Path, target: Path) -> None:
    """Have the interpreter itself compile the core, where its own headers are."""
    script = _package() / "_build.py"
    command = [python, "-E", "-s", str(script), str(sources), str(target)]
    try:
        code, out, err = _call(command, BUILD_SECONDS)
    except subprocess.TimeoutExpired:
        raise Unsupported(f"{path}: the build ran past {BUILD_SECONDS:g} s") from None
    if code != 0 or not target.is_file():
        reason = (out or err).strip().splitlines() or ["no reason given"]
        raise Unsupported(f"cowlab cannot be built for {path}: {reason[-1]}")
