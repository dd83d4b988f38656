"""A dataset of dicts with texts and numpy arrays, read by workers of multiprocessing.

As a DataLoader does it: workers are forked once and stay, each epoch has its own order,
batches go to the workers in turns, and two are under way for each. The group is read
when the workers are forked, and between epochs, while all of them wait.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from cowlab._errors import Unsupported
from cowlab._experiment import (
    MIB,
    Arm,
    Claim,
    Column,
    Experiment,
    Metrics,
    Parameter,
    Verdict,
    different,
    refuted,
    reproduced,
    unanswered,
)
from cowlab._group import group
from cowlab._result import Missing, Result
from cowlab._smaps import smaps_rollup

Dataset = list[dict[str, Any]]

AHEAD = 2
"""Batches under way for each worker."""

SMALL = 16 * MIB
"""Growth of the plain group; below, the workers' own memory is no small part of it."""


def make(rows: int) -> Dataset:
    """What a program would have loaded."""
    try:
        import numpy
    except ImportError:
        raise Unsupported("numpy is not installed here: pip install numpy") from None
    return [
        {
            "name": f"sample {i}",
            "text": f"the text of sample {i}",
            "pixels": numpy.full(16, i % 251, dtype=numpy.uint8),
            "label": numpy.array([i, i % 10]),
        }
        for i in range(rows)
    ]


def collate(samples: Dataset) -> tuple[int, int, int]:
    """A batch as one array each; of that, sums, to see that every sample was read."""
    import numpy

    pixels = numpy.stack([sample["pixels"] for sample in samples])
    labels = numpy.stack([sample["label"] for sample in samples])
    texts = sum(len(sample["name"]) + len(sample["text"]) for sample in samples)
    return int(pixels.sum()), int(labels.sum()), texts


def serve(pipe: Any, dataset: Dataset) -> None:
    """A worker's life: a batch for each list of numbers, until there are no more."""
    pipe.send(None)
    while (batch := pipe.recv()) is not None:
        pipe.send(collate([dataset[i] for i in batch]))


def run_epoch(
    pipes: Sequence[Any], order: Sequence[int], batch: int
) -> tuple[int, int, int]:
    """Have every sample read once; the sums over all."""
    starts = range(0, len(order), batch)
    turns = [pipes[n % len(pipes)] for n in range(len(starts))]
    ahead = AHEAD * len(pipes)
    sums = []
    for n, start in enumerate(starts):
        if n >= ahead:
            sums.append(turns[n - ahead].recv())
        turns[n].send(order[start : start + batch])
    sums += [pipe.recv() for pipe in turns[-ahead:]]
    pixels, labels, texts = map(sum, zip(*sums, strict=True))
    return pixels, labels, texts


def run_arm(arm: str, *, rows: int, workers: int, epochs: int, batch: int) -> Metrics:
    """Make the dataset, start the workers, and have it read so many times."""
    import multiprocessing
    import random

    from cowlab.contrib.multiprocessing import context

    dataset = make(rows)
    expected = collate(dataset)
    fork: Any = multiprocessing.get_context("fork")
    if arm == "freeze":
        gc.collect()
        gc.freeze()
    elif arm == "prepared":
        fork = context(warm=partial(collate, dataset[:batch]))
    parent = smaps_rollup().rss or 0
    pipes, processes = [], []
    for _ in range(workers):
        here, there = fork.Pipe()
        process = fork.Process(target=serve, args=(there, dataset), daemon=True)
        process.start()
        there.close()  # so that a worker that dies is an end of file here
        pipes.append(here)
        processes.append(process)
    for pipe in pipes:
        pipe.recv()
    sizes = [group().pss]
    seconds = 0.0
    for epoch in range(epochs):
        order = random.Random(epoch).sample(range(rows), rows)
        start = time.perf_counter()
        if run_epoch(pipes, order, batch) != expected:
            raise ValueError(f"the workers read something else in epoch {epoch}")
        seconds += time.perf_counter() - start
        del order
        sizes.append(group().pss)
    found = group()
    for pipe in pipes:
        pipe.send(None)
    for process in processes:
        process.join()
    report = getattr(fork, "report", None)
    return {
        "parent": parent,
        "forked": sizes[0],
        "first": sizes[1] - sizes[0],
        "growth": sizes[-1] - sizes[0],
        "pss": sizes[-1],
        "uss": sum(member.uss for member in found.workers) / workers,
        "rate": rows * epochs / seconds,
        "warnings": report.warnings if report else (),
    }


def each_worker_pays(result: Result) -> Verdict:
    """A12, for workers of multiprocessing and rows that hold arrays."""
    grown, parent = result.median("plain", "growth"), result.median("plain", "parent")
    workers = result.parameters["workers"]
    if grown < SMALL:
        return unanswered(f"too few rows: the group grew by {grown / MIB:.1f} MiB")
    pss = result.median("plain", "pss")
    figures = (
        f"{workers} workers turn a parent of {parent / MIB:.0f} MiB into"
        f" {pss / MIB:,.0f} MiB ({pss / parent:.1f}x)"
    )
    try:
        growth = result.median("prepared", "growth")
        size = result.median("prepared", "pss")
        figures += (
            f", prepared {size / MIB:,.0f} MiB ({size / parent:.1f}x): it grows by"
            f" {growth / grown:.1%} of what plain grows by"
        )
    except Missing:
        figures += "; preparing was not measured here"
    each = grown / workers / parent
    if each < 0.1:
        return refuted(f"{figures}: sharing holds")
    if each < 0.6:
        return different(
            f"{figures}: a worker adds {each:.0%} of the parent, the pages with"
            " reference counts; the tables of dicts and what arrays hold are only read"
        )
    return reproduced(figures)


def notes(result: Result) -> Iterable[str]:
    """When it happens."""
    epochs, workers = (result.parameters[name] for name in ("epochs", "workers"))
    if epochs == 1 or workers == 1:
        return
    first, growth = (result.median("plain", name) for name in ("first", "growth"))
    yield (
        f"plain: {first / growth:.0%} of the growth comes in the first of {epochs}"
        f" epochs, though a worker reads 1 of {workers} samples in it: a page has"
        " the objects of dozens of them."
    )


EXPERIMENT = Experiment(
    name="dataset-workers",
    title="A dataset of texts and arrays, read by multiprocessing workers",
    claims=(
        Claim(
            "A12", "A §7", "eight workers turn 173 MB into ~1.4 GB", each_worker_pays
        ),
    ),
    parameters={
        "rows": Parameter(200_000, "samples, a dict each", minimum=100),
        "workers": Parameter(4, "of multiprocessing", minimum=1, maximum=128),
        "epochs": Parameter(3, "in which each sample is read once", minimum=1),
        "batch": Parameter(256, "samples that a worker is sent at a time", minimum=1),
    },
    arms=(
        Arm("plain", "is a worker of the usual fork context"),
        Arm("freeze", "is one, of a parent that called gc.freeze()"),
        Arm("prepared", "is one of cowlab.contrib.multiprocessing.context()"),
    ),
    columns=(
        Column("parent", "parent MiB", "MiB", about="its RSS when all is loaded"),
        Column("forked", "group PSS forked", "MiB"),
        Column("first", "grew in an epoch", "MiB", about="in the first one"),
        Column("growth", "grew in all", "MiB"),
        Column("pss", "group PSS after", "MiB"),
        Column("uss", "a worker's USS after", "MiB"),
        Column("rate", "samples a second", ""),
    ),
    run_arm=run_arm,
    repeat=1,
    notes=notes,
)
