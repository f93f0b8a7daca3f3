"""Limit the time of each benchmark, and end one that exceeds it."""

from __future__ import annotations

import contextlib
import os
import signal

from processes import children

#: Seconds of a benchmark that is not in LIMITS_S: several times as long as the slowest of them takes.
USUAL_S = 150
#: Benchmarks with many trainings or large runs: about twice their time on two quiet cores.
LIMITS_S = {
    "dashboard_speed": 240,
    "host_part": 600,
    "keras_overhead": 480,
    "launcher_output": 400,
    "mxnet_overhead": 240,
    "spark_cost": 300,
    "step_lines": 400,
    "torch_overhead": 240,
}


def limit_s(name: str) -> float:
    """Return the seconds that a benchmark may take."""
    return LIMITS_S.get(name, USUAL_S)


def unfinished(limit: float, figures: list[str]) -> str:
    """Return a sentence: a benchmark was ended at its limit, after these figures."""
    sentence = f"did not finish within its limit of {limit:g} s"
    if not figures:
        return f"{sentence} and gave no figure"
    count = "1 figure" if len(figures) == 1 else f"{len(figures)} figures"
    return f"{sentence}: it gave {count}, the last of them {figures[-1]!r}"


def end_tree(process: int) -> None:
    """End a process and all its descendants, including those in other sessions.

    Launchers put ranks into sessions, so that signals to a group do not reach them.
    """
    # A stopped process starts no others while its children are listed.
    _send(process, signal.SIGSTOP)
    for child in children(process):
        end_tree(child)
    _send(process, signal.SIGKILL)


def _send(process: int, signal_: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal_)
