"""What only a local variable of a running function refers to is found as well."""

from __future__ import annotations

import sys

from conftest import requires

import cowlab

pytestmark = requires("gil")


def test_the_census_sees_local_variables() -> None:
    table = tuple(bytes([i % 250, i // 250]) for i in range(5_000))
    import gc

    gc.collect()  # from here on the collector knows nothing of a tuple of bytes
    before = {row.type_name: row.objects for row in cowlab.census()}
    del table
    after = {row.type_name: row.objects for row in cowlab.census()}
    assert before["bytes"] - after["bytes"] >= 4_900


@requires("immortality", "release_build")
def test_preparing_reaches_local_variables() -> None:
    import subprocess
    import textwrap

    program = """
    import cowlab, sys
    def main():
        table = tuple(str(i).encode() for i in range(20_000))
        numbers = {str(i): i * 1.5 for i in range(20_000)}
        def read():
            return hash(table), sum(numbers.values())
        plain = cowlab.measure(read).copied
        cowlab.prepare_fork()
        return plain, cowlab.measure(read).copied
    print(*main())
    """
    done = subprocess.run(
        [sys.executable, "-P", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    plain, prepared = map(int, done.stdout.split())
    assert plain > 300
    assert prepared <= 40
