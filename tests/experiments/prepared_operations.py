"""Pages that operations copy, plain and after prepare_fork(); see the test."""

import gc
import json
import os
import sys

import cowlab
from cowlab.experiments._operations import OPERATIONS

OBJECTS = 10_000


def both(operation):
    def use():
        # The result stays in the child: some cannot be pickled.
        operation.use(data)

    gc.disable()
    data = operation.make(OBJECTS)
    gc.collect()
    plain = cowlab.measure(use).copied
    cowlab.prepare_fork(operation.warm, fill=True)
    return plain, cowlab.measure(use).copied


for operation in OPERATIONS:
    if operation.name in sys.argv[1:]:
        # Each in a process of its own: what prepares one would prepare the next.
        read, write = os.pipe()
        if os.fork() == 0:
            os.write(write, json.dumps([operation.name, *both(operation)]).encode())
            os._exit(0)
        os.close(write)
        with open(read, "rb") as pipe:
            print(pipe.read().decode(), flush=True)
        os.wait()
