"""Build a source release and a wheel from it, and check that nothing is missing.

The source release has every file under version control (or, without git, every
file of the tree's folders); the wheel has the C core and every module, and no test.
"""

import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
NOT_RELEASED = {".gitignore"}


def run(*command: object, cwd: Path) -> None:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"check_release: {command[0]} failed:\n{done.stdout}")


def tracked() -> list[str]:
    """The files under version control, with those about to be."""
    done = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"check_release: this is no git checkout: {done.stderr.strip()}")
    names = [name for name in done.stdout.split("\0") if name]
    return [name for name in names if (ROOT / name).is_file()]


def main() -> int:
    names = tracked()
    with tempfile.TemporaryDirectory() as scratch:
        copy, out = Path(scratch, "copy"), Path(scratch, "out")
        for name in names:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
        run(sys.executable, "setup.py", "-q", "sdist", "-d", out, cwd=copy)
        (archive,) = out.glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extractall(scratch, filter="data")
        source = Path(scratch, archive.name.removesuffix(".tar.gz"))
        missing = [
            f"{archive.name} lacks {name}"
            for name in names
            if name not in NOT_RELEASED and not (source / name).is_file()
        ]
        pip = "-m pip wheel -q --no-deps --no-build-isolation -w".split()
        run(sys.executable, *pip, out, source, cwd=source)
        (wheel,) = out.glob("*.whl")
        with zipfile.ZipFile(wheel) as packed:
            inside = set(packed.namelist())
    for name in names:
        if name.endswith((".py", ".pyi", "py.typed")):
            if name.startswith("experiments/"):
                wanted = f"cowlab/{name}"
            elif name.startswith("cowlab/"):
                wanted = name
            else:
                continue
            if wanted not in inside:
                missing.append(f"{wheel.name} lacks {wanted}")
    if not any(name.startswith("cowlab/_native.cpython") for name in inside):
        missing.append(f"{wheel.name} lacks the C core")
    if any("tests/" in name for name in inside):
        missing.append(f"{wheel.name} has tests, which belong to the source only")
    for line in missing:
        print(f"check_release: {line}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
