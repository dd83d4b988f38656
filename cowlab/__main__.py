"""``python -m cowlab`` is the command ``cowlab``."""

from cowlab.cli import main

main(prog_name="cowlab")
