"""A program over a random graph of objects, run with and without preparation.

Reads {"prepare": times, "fill": bool, "nodes": [...], "steps": [...]} as JSON from its
first argument. Builds the graph, prepares if asked, forks; parent and child take the
same steps, tear down all they can and end in the ordinary way. Prints one line each:
what they read.
"""

from __future__ import annotations

import array
import collections
import datetime
import functools
import gc
import json
import os
import sys
import threading
import types
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any


class Thing:
    def __init__(self, *held: Any) -> None:
        self.held = list(held)

    def __del__(self) -> None:
        self.held = []


class Slotted:
    __slots__ = ("__weakref__", "held")

    def __init__(self, *held: Any) -> None:
        self.held = list(held)


class Named(str):
    held: list[Any]


def counting(*held: Any):
    total = 0
    try:
        while True:
            total += len(held)
            yield total
    finally:
        total = -1


def closing_over(*held: Any):
    def inner() -> int:
        return len(held)

    return inner


def make_class(*held: Any) -> type:
    return type("Made", (Thing,), {"held": list(held), "size": len(held)})


def weak(what: Any, callback: bool) -> Any:
    target = what if isinstance(what, (Thing, Slotted, type)) else Thing(what)
    return [weakref.ref(target, noted.append if callback else None), target]


noted: list[Any] = []


def hashable(thing: Any) -> Any:
    return thing if isinstance(thing, (str, bytes, int, float)) else repr(type(thing))


MAKERS: dict[str, Any] = {
    "list": lambda n, held: list(held),
    "tuple": lambda n, held: tuple(held),
    "dict": lambda n, held: {f"key {n} {i}": one for i, one in enumerate(held)},
    "mixed dict": lambda n, held: {(n, i): one for i, one in enumerate(held)},
    "frozenset": lambda n, held: frozenset(hashable(one) for one in held),
    "set": lambda n, held: {hashable(one) for one in held},
    "deque": lambda n, held: collections.deque(held),
    "ordered": lambda n, held: collections.OrderedDict(enumerate(held)),
    "str": lambda n, held: f"text {n} " + "é" * (n % 3),
    "interned": lambda n, held: sys.intern(f"interned_{n}"),
    "bytes": lambda n, held: b"bytes %d" % n,
    "int": lambda n, held: 10**20 + n,
    "float": lambda n, held: n + 0.5,
    "datetime": lambda n, held: datetime.datetime(2000 + n % 99, 1, 1),
    "array": lambda n, held: array.array("d", range(n % 50)),
    "view": lambda n, held: memoryview(bytearray(n)),
    "thing": lambda n, held: Thing(*held),
    "slotted": lambda n, held: Slotted(*held),
    "class": lambda n, held: make_class(*held),
    "instance": lambda n, held: make_class(*held)(),
    "generator": lambda n, held: counting(*held),
    "closure": lambda n, held: closing_over(*held),
    "partial": lambda n, held: functools.partial(max, n),
    "bound": lambda n, held: Thing(*held).__init__,
    "error": lambda n, held: ValueError(n, *held),
    "iterator": lambda n, held: iter(list(held)),
    "weak": lambda n, held: weak(held[0] if held else n, False),
    "called back": lambda n, held: weak(held[0] if held else n, True),
    "weak values": lambda n, held: weak_values(n),
    "namespace": lambda n, held: types.SimpleNamespace(held=list(held)),
    "lock": lambda n, held: threading.Lock(),
    "named": lambda n, held: Named(f"named {n}"),
    "local": lambda n, held: threading.local(),
}


def weak_values(n: int) -> Any:
    kept = [Thing(i) for i in range(n % 5)]
    table = weakref.WeakValueDictionary(enumerate(kept))
    return [table, kept]


def show(thing: Any, depth: int = 4) -> Any:
    """What a thing holds, as data: equal in every run that did the same."""
    if thing is None or isinstance(thing, (str, bytes, int, float)):
        return repr(thing)
    name = type(thing).__name__
    if depth == 0:
        return name
    if isinstance(thing, (list, tuple, collections.deque)):
        return [name, *(show(one, depth - 1) for one in thing)]
    if isinstance(thing, (set, frozenset)):
        hash(frozenset(thing))
        return [name, *sorted(repr(one) for one in thing)]
    if isinstance(thing, dict):
        return [name, *([repr(k), show(v, depth - 1)] for k, v in thing.items())]
    if isinstance(thing, (Thing, Slotted, types.SimpleNamespace)):
        return [name, *(show(one, depth - 1) for one in thing.held)]
    if isinstance(thing, types.GeneratorType):
        return [name, next(thing)]
    if isinstance(thing, types.FunctionType):
        return [name, thing()]
    if isinstance(thing, weakref.ref):
        return [name, show(thing(), depth - 1)]
    if isinstance(thing, type):
        return [name, thing.__name__, show(thing.__dict__.get("held"), depth - 1)]
    if isinstance(thing, (datetime.datetime, functools.partial)):
        return [name, str(hash(thing) is not None)]
    if isinstance(thing, (array.array, memoryview)):
        return [name, thing.tolist()]
    if isinstance(thing, BaseException):
        return [name, len(thing.args)]
    return name


def step(graph: list[Any], op: str, at: int, other: int) -> Any:
    if not graph:
        return None
    at %= len(graph)
    thing, new = graph[at], graph[other % len(graph)]
    if op == "read":
        return show(thing)
    if op == "collect":
        gc.collect()
    elif op == "drop":
        graph[at] = None
    elif op == "replace":
        graph[at] = [new, Thing(new)]
    elif op == "mutate" and isinstance(thing, (list, collections.deque)):
        thing.append(new)
    elif op == "mutate" and isinstance(thing, dict):
        thing["new"] = new
    elif op == "mutate" and isinstance(thing, (Thing, Slotted)):
        thing.held.append(new)
    elif op == "mutate" and isinstance(thing, type):
        thing.held = [new]
    elif op == "clear" and isinstance(thing, (list, dict, collections.deque)):
        thing.clear()
    elif op == "make":
        graph.append(Thing(*(Thing(i, new) for i in range(20))))
    elif op == "cycle":
        loop = Thing(new)
        loop.held.append(loop)
    elif op == "thread":
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(show, thing).result()
    return None


def main() -> None:
    plan = json.loads(sys.argv[1])
    graph: list[Any] = []
    for n, (kind, edges) in enumerate(plan["nodes"]):
        graph.append(MAKERS[kind](n, [graph[edge % n] for edge in edges if n]))
    for n, (_, edges) in enumerate(plan["nodes"]):
        # Edges forward, so that there are cycles.
        if isinstance(graph[n], (list, Thing)) and edges:
            held = graph[n] if isinstance(graph[n], list) else graph[n].held
            held.append(graph[edges[-1] % len(graph)])
    if plan["prepare"]:
        import cowlab

        for _ in range(plan["prepare"]):
            cowlab.prepare_fork(fill=plan["fill"])
    child = os.fork()
    seen = [step(graph, *one) for one in plan["steps"]]
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if child else 0
    # Bytes at once, so that lines of two processes do not mix.
    line = json.dumps([bool(child), status, seen]) + "\n"
    os.write(1, line.encode())
    graph.clear()
    gc.collect()
    sys.exit(0)


main()
