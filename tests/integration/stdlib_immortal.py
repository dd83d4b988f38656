"""Run modules of CPython's own test suite with everything immortal; see the test."""

import sys
import unittest
from importlib import import_module


def main() -> int:
    modules = [import_module(f"test.{name}") for name in sys.argv[1:]]
    suite = unittest.TestSuite(
        unittest.defaultTestLoader.loadTestsFromModule(module) for module in modules
    )

    import cowlab

    report = cowlab.prepare_fork(pause_gc=False, fill=True)
    result = unittest.TextTestRunner(verbosity=0, buffer=True).run(suite)
    made = 0 if report.immortal is None else report.immortal.made
    print(f"{made} immortal, {result.testsRun} tests")
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":  # a test starts a server that imports this
    sys.exit(main())
