"""How far a run is that is being recorded, and how long it will take at the pace that it has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stallscope.run import Run

from ..result import Analysis

# A rank so many steps, and so many writes of its log, behind the furthest one has stopped.
_BEHIND_STEPS = 3
_BEHIND_WRITES = 2


@dataclass(frozen=True)
class Progress:
    """None is what the logs do not say."""

    #: The step that was reduced last, on any rank, and the epoch that it belongs to.
    last_step: int
    epoch: int | None
    #: Steps of the whole training, and how many of them are done: both without what was trained before
    #: a checkpoint from which it went on.
    done: int | None
    total: int | None
    #: Seconds at the pace of the steps that are known, with what lay between them.
    left_s: float | None
    #: Ranks whose logs end some steps before the furthest one, each with its last step.
    behind: tuple[tuple[int, int], ...]


def progress(analysis: Analysis) -> Progress | None:
    """How far a run is; None before its first step."""
    run = analysis.run
    if not run.steps.num_rows:
        return None
    step = run.steps["step"].to_numpy()
    last = int(step.max())
    epoch = run.steps["epoch"].fill_null(-1).to_numpy()[step == last].max()
    per_epoch, epochs = _per_epoch(run), _number(run, "epochs")
    pace = _pace_s(analysis)
    done = total = left = None
    if per_epoch is not None and epochs is not None and epoch >= 0:
        first = _number(run, "first_step") or 0
        in_epoch = (last - first) % per_epoch + 1
        steps_left = per_epoch - in_epoch + max(epochs - 1 - int(epoch), 0) * per_epoch
        done = last + 1 - first
        total = done + steps_left
        left = None if pace is None else steps_left * pace
    behind = _behind(run, last, pace)
    return Progress(last, int(epoch) if epoch >= 0 else None, done, total, left, behind)


def _per_epoch(run: Run) -> int | None:
    """Steps of an epoch: several batches may be one of them."""
    batches = _number(run, "batches_per_epoch")
    passes = _number(run, "backward_passes_per_step") or 1
    return None if batches is None or batches < passes else batches // passes


def _number(run: Run, name: str) -> int | None:
    value = run.fact(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _pace_s(analysis: Analysis) -> float | None:
    """Seconds from one step to the next, validation and checkpoints included where there were any."""
    ledger = analysis.steady
    if ledger is None or len(ledger) < 2:
        return None if analysis.step is None else analysis.step.mean / 1e3
    whole = ledger.total.sum() + ledger.gaps[~ledger.session_start].sum()
    return float(whole) / len(ledger) / 1e9


def _behind(run: Run, last: int, pace: float | None) -> tuple[tuple[int, int], ...]:
    # Logs are written at times, not with every step.
    every = run.fact("flush_seconds")
    writes = _BEHIND_WRITES * every / pace if pace and isinstance(every, int | float) else 0
    allowed = _BEHIND_STEPS + writes
    ranks = run.steps["rank"].to_numpy()
    furthest = np.full(max(run.ranks) + 1, -1, np.int64)
    np.maximum.at(furthest, ranks, run.steps["step"].to_numpy())
    late = [rank for rank in run.ranks if furthest[rank] < last - allowed]
    return tuple((rank, int(furthest[rank])) for rank in late)
