"""Describe the whole job: its time, its ranks, its steps, and the figures of logs of epochs."""

from __future__ import annotations

from collections.abc import Sequence

from stallscope.analysis import ENTRIES, Analysis
from stallscope.analysis.ledger.epochs import EpochTime
from stallscope.analysis.ledger.goodput import LOST, Goodput
from stallscope.analysis.ledger.job_time import PARTS
from stallscope.formatting.lists import counted, listed
from stallscope.formatting.numbers import NOT_MEASURED, Interval, amount, percent, rate
from stallscope.formatting.sums import SumColumn

#: Parts of the job's time.
JOB_PARTS = PARTS
#: Parts that most jobs do not have.
RARE_PARTS = ("restart", "repeated", "stopped", "unrecorded")
# Steps that count come first, then the rest of the job.
_GOODPUT = (*ENTRIES, *(name for name in PARTS if name in (*LOST, "unrecorded")))


def parts_of_jobs(analyses: Sequence[Analysis]) -> list[str]:
    """List the parts of these jobs' time by name, without rare ones that none of them has."""
    return [
        name
        for name in JOB_PARTS
        if name not in RARE_PARTS or any(getattr(analysis.job, name) for analysis in analyses)
    ]


def job_column(analysis: Analysis) -> SumColumn:
    """Round the parts of the job so that they add up to it: a part per name of JOB_PARTS.

    Where parts are known, they have one digit more than the total alone: the small ones matter.
    """
    job, finer = analysis.job, int(analysis.ledger is not None)
    parts = [getattr(job, name) for name in JOB_PARTS]
    return SumColumn.of(parts, job.total, unit="s", finer=finer)


def job_texts(analysis: Analysis) -> dict[str, str]:
    """Write the parts of the job's time by name; not measured if steps have no stages."""
    if analysis.ledger is None:
        return dict.fromkeys(JOB_PARTS, NOT_MEASURED)
    printed = job_column(analysis)
    return dict(zip(JOB_PARTS, map(printed.amount, printed.parts), strict=True))


def goodput_parts(analysis: Analysis) -> list[tuple[str, float]]:
    """Return the seconds of compute, of each cause of a loss, and of the time that no log recorded.

    Causes of no loss are left out, and all where stages are unknown.
    """
    goodput = analysis.goodput
    if goodput is None:
        return []
    unrecorded = analysis.job.unrecorded
    spent = {**goodput.lost_s, "compute": goodput.compute_s, "unrecorded": unrecorded}
    return [(name, spent[name]) for name in _GOODPUT if spent[name] or name == "compute"]


def goodput_column(analysis: Analysis) -> SumColumn:
    """Round the parts of ``goodput_parts`` so that they add up; empty where stages are unknown."""
    parts = [value for _, value in goodput_parts(analysis)]
    return SumColumn.of(parts, sum(parts), unit="s", finer=1)


def goodput_sentence(goodput: Goodput) -> str:
    """Write the shares of steps that count, and of their compute."""
    return (
        f"Goodput {percent(goodput.fraction)}: this share of ranks × time went into steps that count, "
        f"and {percent(goodput.compute_fraction)} into their compute."
    )


def checkpoint_sentence(analysis: Analysis) -> str:
    """Say which ranks checkpoints blocked, and who waited for them; empty without checkpoints."""
    most = max((rank.checkpoint_s for rank in analysis.ranks), default=0.0)
    if not most:
        return ""
    writers = [rank.rank for rank in analysis.ranks if rank.checkpoint_s > most / 2]
    blocked = f"Checkpoints blocked {listed('rank', writers)} for {amount(most, 's')}"
    waiting = len(analysis.ranks) - len(writers)
    return f"{blocked}; {counted(waiting, 'other rank')} waited." if waiting else f"{blocked}."


def epoch_figures(analysis: Analysis) -> list[tuple[str, str]]:
    """Return means and throughput with their names; empty for a run with steps."""
    known = analysis.epoch_times
    if known is None:
        return []
    step = _mean(known.step_ms, known.step_precision_ms, "ms")
    written = [
        ("Mean epoch", _mean(known.mean_s, known.precision_s, "s")),
        # The series of step times has both, without warm-up.
        ("Mean step", step if analysis.printed is None else ""),
        ("Between steps of the metric", _mean(known.metric_step_ms, None, "ms")),
        (
            "Throughput per rank",
            ""
            if known.samples_per_second_per_rank is None
            else rate(known.samples_per_second_per_rank),
        ),
        ("Precision", known.precision if analysis.printed is None else ""),
    ]
    return [(title, text) for title, text in written if text]


def duration(epoch: EpochTime) -> str:
    """Write a duration: 17.0 ± 0.5 s."""
    return amount(epoch.s, "s", _around(epoch.s, epoch.precision_s))


def job_total(analysis: Analysis) -> str:
    """Write the whole job's time; logs of epochs alone do not cover all of it."""
    job = job_column(analysis)
    total = job.amount(job.total)
    known = analysis.epoch_times
    if known is None or "end" in analysis.run.intervals["kind"].to_pylist():
        return total
    return f"at least {total}" if known.epochs or analysis.printed else "not known"


def ranks_and_hosts(analysis: Analysis) -> str:
    """Write ``4 ranks on 2 hosts``, or ``2 to 3 ranks on 3 hosts`` where their number changed.

    Logs of epochs name no hosts, and seldom the number of ranks.
    """
    run = analysis.run
    if analysis.epoch_times is None:
        sizes = [generation.size for generation in analysis.generations] or [run.size]
        fewest = "" if min(sizes) == max(sizes) else f"{min(sizes):,} to "
        return f"{fewest}{counted(max(sizes), 'rank')} on {counted(len(run.hosts), 'host')}"
    return "ranks not known" if run.fact("size") is None else counted(run.size, "rank")


def steps_and_epochs(analysis: Analysis) -> str:
    """Write ``200 steps in 2 epochs``; ``2 epochs`` if their steps are unknown."""
    epochs = counted(analysis.epochs, "epoch")
    if analysis.printed is not None:
        steps = counted(analysis.printed.steps, "step")
        return f"{steps} in {epochs}" if analysis.epochs else steps
    if analysis.epoch_times is not None:
        return epochs if analysis.epochs else "no separate epochs"
    return f"{counted(analysis.steps, 'step')} in {epochs}"


def _mean(value: float | None, half: float | None, unit: str) -> str:
    if value is None:
        return ""
    return amount(value, unit, None if half is None else _around(value, half))


def _around(value: float, half: float) -> Interval:
    return value - half, value + half
