"""Measure this network's performance, under the launcher of the training."""

from __future__ import annotations

import argparse
import math
import os
import socket
import sys
import threading
import time

from stallscope.collector.netcheck.check import Check, RefusedError, check
from stallscope.collector.netcheck.horovod_ranks import FRAMEWORKS
from stallscope.collector.netcheck.joining import LIBRARIES, join
from stallscope.collector.netcheck.result_file import lines_of
from stallscope.collector.recorder.job.world import world_from_environment
from stallscope.errors import StallscopeError, UsageError
from stallscope.formatting.plain import plain

# Workers have any Python from 3.8 on, without the app: this file and all that it imports use the
# standard library only.
from .main import FAILED, SUCCESS

# When one rank ends, the launcher ends the others, before they print the same error.
_OTHERS_WAIT_SECONDS = 3.0
# The limit for starting and joining, and for measurements that exceed the prediction.
_PATIENCE_SECONDS = 120.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "logs",
        nargs="?",
        metavar="LOGS",
        help="a folder with step logs, or LOGS#RUN_ID: measure this run's gradients too, and store the "
        "result there; without it, the newest run in the current folder or two levels below, if any",
    )
    parser.add_argument(
        "--seconds",
        metavar="N",
        type=float,
        default=40.0,
        help="seconds for all measurements (default: %(default)g)",
    )
    parser.add_argument(
        "--with",
        dest="library",
        choices=LIBRARIES,
        help="the library that connects the ranks, if the launcher does not show it",
    )
    parser.add_argument(
        "--framework",
        choices=FRAMEWORKS,
        help="the framework that Horovod reduces with; by default the first that it was built for",
    )
    parser.add_argument(
        "--out",
        metavar="FOLDER",
        help="the folder for the result, instead of the logs' folder; without LOGS, it looks for no run",
    )


def run(options: argparse.Namespace) -> int:
    if not 0 < options.seconds < math.inf:
        raise UsageError(f"--seconds {options.seconds:g}: give a number of seconds above 0")
    rank = world_from_environment(os.environ).rank
    _end_without_answer(options.seconds, rank)
    try:
        ranks = join(os.environ, options.library, options.framework)
        rank = ranks.rank
        outcome = check(ranks, options.logs, options.out, options.seconds)
        ranks.close()
    except RefusedError:
        time.sleep(_OTHERS_WAIT_SECONDS)
        return FAILED
    except Exception as error:
        raise _failure(error, rank) from error
    if outcome is not None:
        _print(outcome)
    return SUCCESS


def _failure(error: Exception, rank: int) -> StallscopeError:
    """Return the error for the user, after waiting for the rank that failed first to print its own."""
    ours = isinstance(error, StallscopeError)
    if isinstance(error, StallscopeError) and not rank:
        return error
    time.sleep(_OTHERS_WAIT_SECONDS)
    first = (str(error).strip().splitlines() or [""])[0]
    reason = first if ours else f"{type(error).__name__}: {first}"
    return StallscopeError(
        f"netcheck ended on rank {rank} (host {socket.gethostname()}), and nothing was stored: {reason}"
    )


def _end_without_answer(seconds: float, rank: int) -> None:
    """End this process if the other ranks never answer: the libraries would wait for ever."""
    limit = 2 * seconds + _PATIENCE_SECONDS + (_OTHERS_WAIT_SECONDS if rank else 0.0)

    def end() -> None:
        print(
            f"stallscope: rank {rank} on {socket.gethostname()} got no answer from the other ranks for "
            f"{limit:.0f} s: check that all of them run, and that their hosts reach each other",
            file=sys.stderr,
            flush=True,
        )
        os._exit(FAILED)

    timer = threading.Timer(limit, end)
    timer.daemon = True
    timer.start()


def _print(outcome: Check) -> None:
    for warning in outcome.warnings:
        print(f"stallscope: {plain(warning)}", file=sys.stderr)
    if outcome.run is not None:
        print(plain(f"run {outcome.run}"))
    for line in lines_of(outcome.content):
        print(plain(line))
    print(f"stored in {plain(str(outcome.path))}")
