"""Estimate how far a running job is, and how long the rest will take."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stallscope.arrays import arrow
from stallscope.run import Run

from ..result import Analysis
from ..settings.setup import number

# A rank has stopped if it is this many steps, and this many writes of its log, behind the others.
_BEHIND_STEPS = 3
_BEHIND_WRITES = 2


@dataclass(frozen=True)
class Progress:
    """The progress of a job; None where the logs do not show it."""

    #: The last step that was reduced on any rank, and its epoch.
    last_step: int
    epoch: int | None
    #: Finished steps and all steps of the training, without those before the checkpoint from which the
    #: job resumed.
    done: int | None
    total: int | None
    #: Seconds left at the pace so far, including time between steps.
    left_s: float | None
    #: Ranks with logs that end some steps before the others', each with its last step.
    behind: tuple[tuple[int, int], ...]


def progress(analysis: Analysis) -> Progress | None:
    """Return the progress of a run; None before its first step."""
    run = analysis.run
    if not run.steps.num_rows:
        return None
    step = arrow.numbers(run.steps["step"])
    last = int(step.max())
    epoch = arrow.numbers(arrow.filled(run.steps["epoch"], -1))[step == last].max()
    per_epoch, epochs = _per_epoch(run), number(run.fact("epochs"))
    pace = _pace_s(analysis)
    done = total = left = None
    if per_epoch is not None and epochs is not None and epoch >= 0:
        first = number(run.fact("first_step")) or 0
        in_epoch = (last - first) % per_epoch + 1
        steps_left = per_epoch - in_epoch + max(epochs - 1 - int(epoch), 0) * per_epoch
        done = last + 1 - first
        total = done + steps_left
        left = None if pace is None else steps_left * pace
    behind = _behind(run, last, pace)
    return Progress(last, int(epoch) if epoch >= 0 else None, done, total, left, behind)


def _per_epoch(run: Run) -> int | None:
    """Return the steps of an epoch: several batches may be one step."""
    batches = number(run.fact("batches_per_epoch"))
    passes = number(run.fact("backward_passes_per_step")) or 1
    return None if batches is None or batches < passes else batches // passes


def _pace_s(analysis: Analysis) -> float | None:
    """Return seconds from one step to the next, including validation and checkpoints."""
    ledger = analysis.steady
    if ledger is None or len(ledger) < 2:
        return None if analysis.step is None else analysis.step.mean / 1e3
    whole = ledger.total.sum() + ledger.gaps[~ledger.session_start].sum()
    return float(whole) / len(ledger) / 1e9


def _behind(run: Run, last: int, pace: float | None) -> tuple[tuple[int, int], ...]:
    # Logs are written about once a second, not with every step.
    every = run.fact("flush_seconds")
    writes = _BEHIND_WRITES * every / pace if pace and isinstance(every, int | float) else 0
    allowed = _BEHIND_STEPS + writes
    ranks = arrow.numbers(run.steps["rank"])
    furthest = np.full(max(run.ranks) + 1, -1, np.int64)
    np.maximum.at(furthest, ranks, arrow.numbers(run.steps["step"]))
    late = [rank for rank in run.ranks if furthest[rank] < last - allowed]
    return tuple((rank, int(furthest[rank])) for rank in late)
