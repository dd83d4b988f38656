"""cowlab: which pages a forked child copied, why, and how to keep them shared.

This module is a table of names. Each is loaded when it is first used, so that
importing cowlab costs a server nothing.
"""

__version__ = "0.1.0"

_HOME = {
    # errors
    "CowlabError": "_errors",
    "ReadingError": "_errors",
    "Gone": "_errors",
    "Zombie": "_errors",
    "Unreadable": "_errors",
    "KernelThread": "_errors",
    "Truncated": "_errors",
    "Unsupported": "_errors",
    "UsageError": "_errors",
    "ChildError": "_errors",
    "TaskError": "_errors",
    "ChildKilled": "_errors",
    "ChildExited": "_errors",
    "ChildTimeout": "_errors",
    "ResultError": "_errors",
    # what this machine allows
    "host": "_host",
    "Host": "_host",
    "Capability": "_host",
    # readings of one process
    "smaps_rollup": "_smaps",
    "smaps": "_smaps",
    "maps": "_smaps",
    "SmapsRollup": "_smaps",
    "SmapsEntry": "_smaps",
    "Smaps": "_smaps",
    "MapsEntry": "_smaps",
    "stat": "_status",
    "status": "_status",
    "Stat": "_status",
    "Status": "_status",
    "pagemap": "_pagemap",
    "page_runs": "_pagemap",
    "kpagecount": "_pagemap",
    "kpageflags": "_pagemap",
    "PageMap": "_pagemap",
    "PageRun": "_pagemap",
    "PageFlag": "_pagemap",
    "Words": "_pagemap",
    # the heap: arenas, pools, objects
    "arenas": "_pools",
    "pools": "_pools",
    "trim": "_trim",
    "TrimReport": "_trim",
    "census": "_census",
    "Census": "_census",
    "CensusRow": "_census",
    "pins": "_pins",
    "Pin": "_pins",
    "whatis": "_address",
    "whatis_many": "_address",
    "Address": "_address",
    # where memory is
    "memory": "_memory",
    "MemoryReport": "_memory",
    "MemoryGroup": "_memory",
    "shared_memory": "_memory",
    "SharedReport": "_memory",
    "SharedGroup": "_memory",
    # measuring a fork
    "measure": "_forking",
    "ForkReport": "_forking",
    "ChildReport": "_forking",
    "Account": "_forking",
    "Pages": "_forking",
    # experiments
    "run": "_runner",
    "load_result": "_result",
    "Result": "_result",
    "Comparison": "_result",
    # who wrote to the pages that were copied
    "record": "_recorder",
    "read_record": "_recorder",
    "Recorder": "_recorder",
    "Record": "_recorder",
    "Fault": "_recorder",
    "Blame": "_blame",
    "BlamedPage": "_blame",
    # keeping it shared
    "prepare_fork": "_prepare",
    "PrepareReport": "_prepare",
    "Step": "_prepare",
    "conditions": "_conditions",
    "Condition": "_conditions",
    "Finding": "_conditions",
    "immortalize": "_immortal",
    "ImmortalReport": "_immortal",
    "prehash": "_immortal",
    "freeze": "_immortal",
    "FreezeReport": "_immortal",
    "seal": "_seal",
    "SealReport": "_seal",
    # a master and its workers
    "group": "_group",
    "inheritance": "_group",
    "Inheritance": "_group",
    "Group": "_group",
    "Member": "_group",
    # each remedy on one's own program
    "trial": "_trial",
    "TrialReport": "_trial_report",
    "TrialSample": "_trial_report",
}

__all__ = sorted(_HOME)  # noqa: PLE0605


def __getattr__(name: str) -> object:
    try:
        home = _HOME[name]
    except KeyError:
        raise AttributeError(f"module 'cowlab' has no attribute {name!r}") from None
    from importlib import import_module

    value = getattr(import_module(f"cowlab.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
