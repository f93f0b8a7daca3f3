"""Describe figures: their basis, printed steps, scaling, and the health of logs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stallscope.analysis import ENTRIES, Analysis
from stallscope.analysis.ledger.ledger_figures import StepTime, holes_in_words
from stallscope.analysis.ledger.printed_steps import PrintedSteps
from stallscope.arrays.stats import Mean
from stallscope.formatting.lists import capitalised, counted, joined, listed
from stallscope.formatting.numbers import (
    Scale,
    amount,
    decimals_of,
    finite,
    percent,
    significant,
    typical,
)
from stallscope.formatting.sums import SumColumn
from stallscope.words import LOST_TIME

if TYPE_CHECKING:
    from stallscope.analysis.scaling import Scaled
    from stallscope.analysis.views.log_health import RankLogs

_METHODS = {
    "one clock": "one for all ranks",
    "completions": "aligned by the completions of allreduces",
    "wall clocks": "the hosts' wall clocks, as a slow link makes completions of allreduces late",
    "every step": (
        "they could not be followed; the end of every allreduce is taken for the same moment on all "
        "ranks"
    ),
}
_SIZES = (("kB", 1e3), ("MB", 1e6), ("GB", 1e9), ("TB", 1e12))
# What the time in a line measures, by how it was found.
_WINDOWS = {
    "running": "with the mean of {steps}, from running means",
    "last": "with the time of the last of {steps}",
    "mean": "with the mean of {of}{steps}",
    "median": "with the median of {steps}",
    "differences": "with the mean of {steps}, from means over all steps so far",
    "scaled": "with the time of a few of {steps}, scaled to means over all steps so far",
    "stamps": "with the mean of {steps}",
}
#: The nouns for one pause between steps of a kind and for several.
PAUSES = {
    "validation": ("evaluation", "evaluations"),
    "checkpoint": ("checkpoint", "checkpoints"),
    "validation and checkpoint": ("evaluation with a checkpoint", "evaluations with checkpoints"),
    "unnamed": ("pause", "pauses without a name"),
}
# A median that differs from the mean by this share of it says something of its own.
_DIFFERS = 0.1
# The step times of more trainings are not listed.
_MOST_PARTS = 8
# A few lines, as of a program that uses what was trained, are no training.
_FEWEST_OF_PART = 10
# An interval of this share of a mean answers nothing.
_WIDE = 0.5
# Smaller shares of a job are not shown.
_SHOWN = 5e-4
# A smaller share of a job that no line explains is rounding.
_KNOWN = 0.005
_NOTHING_CONFIRMS = "are as the program prints them: nothing else in the log confirms them"
# How steps are counted in reports.
_AS_HERE = "from 0"


def communication(analysis: Analysis) -> str:
    """Describe gradients, their exposed reduction and the bandwidth; empty if unknown."""
    reduction = analysis.communication
    if reduction is None:
        return ""
    parts = [
        f"{bytes_in_words(reduction.gradient_bytes)} of gradients, "
        f"{amount(reduction.exposed_ms.value, 'ms', reduction.exposed_ms.ci95)} exposed"
    ]
    if reduction.bus_bandwidth is not None:
        parts.append(
            f"effective bus bandwidth at most {significant(reduction.bus_bandwidth)} GB/s, less if "
            "backward hides a part of it"
        )
    if reduction.network_bandwidth is not None:
        parts.append(
            f"at {significant(reduction.network_bandwidth)} GB/s all of it takes "
            f"{amount(reduction.whole_ms, 'ms')}, {amount(reduction.hidden_ms, 'ms')} of it hidden"
        )
    return "; ".join(parts)


def clocks(analysis: Analysis) -> str:
    """Describe how the clocks were aligned, and how well; empty without steps."""
    alignment = analysis.clocks
    if alignment is None:
        return ""
    parts = [_METHODS.get(alignment.method, alignment.method)]
    uncertain = [finite(rank.clock_uncertainty_ms) for rank in analysis.ranks]
    if None in uncertain:
        parts.append("some could not be compared")
    elif alignment.method != "one clock":
        most = max((value or 0.0 for value in uncertain), default=0.0)
        parts.append(f"uncertain by {amount(most, 'ms')} at most")
    if alignment.skew_ms is not None:
        parts.append(f"ranks of a host complete {amount(alignment.skew_ms, 'ms')} apart")
    if finite(alignment.skew_bound_ms) is not None:
        parts.append(f"hosts no more than {amount(alignment.skew_bound_ms, 'ms')}, by causality")
    parts += [
        f"that of {_hosts_of(clock, analysis)} was set by {amount(ms, 'ms')} at step {step:,}"
        for clock, step, ms in alignment.jumps
    ]
    if alignment.late:
        parts.append(f"a timestamp came late in {percent(alignment.late)} of steps")
    if alignment.violations:
        parts.append(
            f"timestamps contradict each other in {percent(alignment.violations)} of steps"
        )
    return "; ".join(parts)


def coverage(analysis: Analysis) -> str:
    """Say how many steps are in the ledger; empty if all are, measured by every rank."""
    counts = analysis.coverage
    if not counts.partial and not counts.unused and not counts.sampled_out:
        return ""
    parts = [f"{counts.complete + counts.partial:,} of {counted(counts.steps, 'step')}"]
    if counts.sampled_out:
        parts.append(f"{counts.sampled_out:,} recorded as sums, or to tell when the next one began")
    if counts.partial:
        parts.append(f"{counts.partial:,} of them without some ranks")
    return ", ".join(parts)


def _hosts_of(clock: str, analysis: Analysis) -> str:
    """Return the hosts of a clock; its name if they are unknown."""
    logs = analysis.run.logs
    hosts = dict.fromkeys(log.host for log in logs if log.clock_domain == clock)
    return joined(list(hosts)) if hosts else clock


def bytes_in_words(number: int) -> str:
    """Write bytes in a readable unit."""
    name, length = next((size for size in reversed(_SIZES) if number >= size[1]), ("bytes", 1.0))
    return f"{significant(number / length)} {name}"


# -- Describe step times that are known from printed lines only -----------------------------------


def step_in_words(step: StepTime) -> str:
    """Write the mean step; where its interval is too wide to answer anything, how steps vary."""
    if not _is_wide(step):
        return amount(step.mean, "ms", step.ci95)
    usual, slow, mean = (amount(ms, "ms") for ms in (step.p50, step.p95, step.mean))
    return f"{usual} in the median, at least {slow} in the slowest 5%, {mean} on average"


def _is_wide(step: StepTime) -> bool:
    return step.ci95 is not None and step.ci95[1] - step.ci95[0] > _WIDE * step.mean


def printed_figures(printed: PrintedSteps | None) -> list[tuple[str, str]]:
    """Return the figures of printed step times with their names; empty without any."""
    if printed is None:
        return []
    precision = (
        "the microsecond" if printed.precision_ms < 1e-3 else amount(printed.precision_ms, "ms")
    )
    rounded = f"to {precision}" if printed.precision_ms else ""
    lines = printed_lines(printed)
    of_each = _of_each_part(printed)
    figures = [
        ("Mean of all steps" if of_each else "Steady step", step_in_words(printed.step)),
        ("Steady step of each training or start", of_each),
        ("Median step", median_step(printed)),
        ("Waiting for data", _input(printed)),
        ("Printed stages", _stages(printed)),
        ("Not measured apart", _rest(printed)),
        ("Warm-up", counted(printed.warm_up_steps, "step")),
        ("Between steps", pauses_in_words(printed)),
        ("Steps" if printed.recorded else "Lines", ", ".join(filter(None, [lines, rounded]))),
        ("Their times", printed.confirmed or ("" if printed.has_clock else _NOTHING_CONFIRMS)),
        ("Step numbers", _numbers(printed)),
    ]
    return [(title, text) for title, text in figures if text]


def printed_so_far(printed: PrintedSteps) -> str:
    """Write how far a printed log is, with the figures of its steps: ``1,200 steps, 1.77 s each``."""
    whole = printed.whole
    share = printed.input_share
    parts = [
        f"{counted(int(whole.step[-1] + whole.steps[-1]), 'step')}",
        f"{amount(printed.step.mean, 'ms')} each",
        "" if share is None else f"{percent(share.value)} of it waiting for data",
        pauses_in_words(printed),
        _repeated(printed),
    ]
    return ", ".join(filter(None, parts))


def printed_job_parts(printed: PrintedSteps, total_s: float) -> dict[str, float]:
    """Return the seconds of each part of a printed log's job by its title, as far as lines show it.

    Args:
        printed: its steps.
        total_s: the time from its first line to its last.
    """
    first = printed.whole.chosen(printed.is_warm_up)
    repeated_s = 0.0 if printed.repeated is None else printed.repeated.seconds
    parts = {
        "First steps": float(first.ms @ first.steps) / 1e3 if printed.warm_up_steps else 0.0,
        "Steps": printed.steady_s,
        **{capitalised(PAUSES[pauses.kind][1]): pauses.seconds for pauses in printed.pauses},
        capitalised(LOST_TIME["repeated"]): repeated_s,
    }
    rest = total_s - sum(parts.values())
    parts["Not known"] = rest if rest > _KNOWN * total_s else 0.0
    return {title: seconds for title, seconds in parts.items() if seconds > _SHOWN * total_s}


def _repeated(printed: PrintedSteps) -> str:
    repeated = printed.repeated
    return "" if repeated is None else f"{counted(repeated.steps, 'step')} trained twice"


def printed_lines(printed: PrintedSteps) -> str:
    """Describe the lines: 240 lines with the mean of 20 steps."""
    steps = typical(printed.whole.steps)
    if printed.found == "step":
        return counted(len(printed.whole), "single step")
    stamps = ", by their timestamps" if printed.found == "stamps" else ""
    of = f"the last {printed.of_last} of " if printed.of_last else ""
    what = _WINDOWS[printed.found].format(steps=f"{steps} steps", of=of)
    if steps == "1":
        what = "about one step each" + (
            ", from running means" if printed.found == "running" else ""
        )
    return f"{counted(len(printed.whole), 'line')} {what}{stamps}"


def _of_each_part(printed: PrintedSteps) -> str:
    """Write the median step of each training in a log, or start of it, where these differ."""
    steady = printed.whole.chosen(~printed.is_warm_up)
    parts = [
        steady.chosen(steady.training == part) for part in dict.fromkeys(steady.training.tolist())
    ]
    each = [part.percentiles(50)[0] for part in parts if len(part) >= _FEWEST_OF_PART]
    if len(each) < 2 or max(each) - min(each) <= _DIFFERS * max(each):
        return ""
    if len(each) > _MOST_PARTS:
        return f"{amount(min(each), 'ms')} to {amount(max(each), 'ms')}"
    return ", ".join(amount(ms, "ms") for ms in each)


def median_step(printed: PrintedSteps) -> str:
    """Write the median step where it differs from the mean: few steps take much longer or shorter."""
    mean, median = printed.step.mean, printed.step.p50
    is_said = abs(mean - median) <= _DIFFERS * mean or _is_wide(printed.step)
    return "" if is_said else amount(median, "ms")


def pauses_in_words(printed: PrintedSteps) -> str:
    """Write the time of each kind of pauses, with its share of the job; empty without any."""
    return ", ".join(
        f"{PAUSES[pauses.kind][1]} {'at least ' * pauses.lower_bound}{amount(pauses.seconds, 's')} "
        f"({percent(pauses.share)})"
        for pauses in printed.pauses
    )


def _numbers(printed: PrintedSteps) -> str:
    """Describe how steps are counted here and in the log; empty if both are the same or unknown."""
    if printed.numbers in (None, _AS_HERE):
        return ""
    return f"{_AS_HERE} over the job; the log counts {printed.numbers}"


def _input(printed: PrintedSteps) -> str:
    wait, share = printed.input_ms, printed.input_share
    if wait is None or share is None:
        return ""
    known = f"{amount(wait.value, 'ms', wait.ci95)}, {percent(share.value)} of the step"
    return f"{known}; mean over ranks" if len(printed.ranks) > 1 else known


def _stages(printed: PrintedSteps) -> str:
    """Write the stages that timers print, and whose they are; empty without timers."""
    stages, step = printed.stages, printed.step.mean
    if stages is None:
        return ""
    parts = [f"{name} {amount(ms, 'ms')} ({percent(ms / step)})" for name, ms in stages.ms.items()]
    rest = f"the rest of {amount(stages.rest_ms, 'ms')} has no timer"
    return f"{joined(parts)}; of {stages.by}, mean of {counted(stages.tables, 'line')}; {rest}"


def _rest(printed: PrintedSteps) -> str:
    """Write the rest of a recorded step; empty for lines, which may not cover whole steps."""
    wait, step = printed.input_ms, printed.step.mean
    if wait is None or not printed.recorded:
        return ""
    rest = max(step - wait.value, 0.0)
    together = "compute, waiting for other ranks and allreduce"
    return f"{amount(rest, 'ms')}, {percent(rest / step)} of the step: {together}"


# -- Round the losses of efficiency of a job's sizes, for tables and charts -----------------------


def lost_of(scaled: Scaled) -> Mean:
    """Return a size's loss of efficiency, in percent."""
    # A size that is compared with one rank has an efficiency.
    assert scaled.efficiency is not None
    return Mean(1.0, (1.0, 1.0)).minus(scaled.efficiency).scaled(100.0)


def lost_to(scaled: Scaled) -> list[Mean]:
    """Return a size's loss of efficiency to each of ENTRIES, in percent."""
    assert scaled.lost is not None
    return [scaled.lost[name].scaled(100.0) for name in ENTRIES]


def lost_column(scaled: Scaled) -> SumColumn:
    """Return a size's loss of efficiency to each entry and in total, in percent."""
    lost = lost_of(scaled)
    decimals = 1 if lost.ci95 is None else decimals_of(lost.value, lost.ci95)
    return SumColumn.like(Scale("%", 1.0), decimals, [part.value for part in lost_to(scaled)])


# -- Describe whether a run's logs are complete ---------------------------------------------------


def health(analysis: Analysis, ranks: Sequence[RankLogs]) -> tuple[str, str]:
    """Describe what is missing, and what was read."""
    run = analysis.run
    with_logs = sum(rank.files > 0 for rank in ranks)
    if analysis.epoch_times is not None:
        return _health_of_lines(analysis)
    read = (
        f"{with_logs:,} of {counted(len(ranks), 'rank')} on {counted(len(run.hosts), 'host')} left "
        f"{counted(len(run.logs), 'log')} with {counted(analysis.steps, 'step')}."
        f"{_cost(analysis, ranks)}"
    )
    if not analysis.steps:
        return "There is no step in these logs", read
    if analysis.coverage.holes or not all(rank.whole for rank in ranks):
        return "These logs are not whole", read
    if analysis.ledger is None:
        return "These logs are whole, but hold no stages", read
    return "These logs are whole", f"{read} Every rank has every step, and closed its last log."


def _health_of_lines(analysis: Analysis) -> tuple[str, str]:
    """Describe what another program's logs have, and what its lines cannot have."""
    printed, known_from = analysis.printed, analysis.run.fact("known_from")
    if printed is None:
        return (
            "Epochs are known, but not their steps",
            f"{counted(analysis.epochs, 'epoch')}: {known_from}.",
        )
    who = f", of each of {len(printed.ranks):,} ranks" if len(printed.ranks) > 1 else ""
    return "Steps are known from lines only", f"{printed_lines(printed)}{who}: {known_from}."


def _cost(analysis: Analysis, ranks: Sequence[RankLogs]) -> str:
    """Write the highest recording cost of a rank; empty if no log has it."""
    known = [rank.cost_us for rank in ranks if rank.cost_us is not None]
    if not known:
        return ""
    step = analysis.step
    share = (
        "" if step is None or not step.mean else f", {percent(max(known) / step.mean / 1e3)} of it"
    )
    return f" Recording took at most {max(known):,.1f} µs of a step on the host{share}."


def lacks(analysis: Analysis, ranks: Sequence[RankLogs]) -> list[str]:
    """List what is missing, the most serious first."""
    absent = [rank.rank for rank in ranks if not rank.files]
    short = [rank for rank in ranks if rank.files and rank.missing_steps]
    open_ones = [rank.rank for rank in ranks if rank.files and not rank.ended]
    if analysis.epoch_times is not None:
        # Often only one rank of another program prints, and nothing when it ends.
        absent, open_ones = [], []
    torn = [rank for rank in ranks if rank.torn]
    messages = []
    if absent:
        part = percent(len(absent) / len(ranks))
        messages.append(f"No log of {listed('rank', absent)}: {part} of the ranks.")
    if short:
        most = max(short, key=lambda rank: rank.missing_steps)
        messages.append(
            f"Steps that other ranks have are missing on {listed('rank', _ranks(short))}; most of "
            f"them on rank {most.rank}, {counted(most.missing_steps, 'step')}."
        )
    if analysis.coverage.holes:
        messages.append(f"No rank has {holes_in_words(analysis.coverage.holes)}.")
    if open_ones:
        messages.append(
            f"The last log of {listed('rank', open_ones)} has no end: running, or killed."
        )
    if torn:
        lines = sum(rank.torn for rank in torn)
        messages.append(
            f"{counted(lines, 'line')} of {listed('rank', _ranks(torn))} could not be read."
        )
    return messages + _unused(analysis)


def late_timestamps(analysis: Analysis) -> str:
    """Say how often a timestamp came late, and on which rank most often; empty without steps."""
    clocks = analysis.clocks
    if clocks is None:
        return ""
    if not clocks.late:
        return "No timestamp is known to be late."
    most = max(zip(clocks.late_by_rank, analysis.ranks, strict=True), key=lambda pair: pair[0])
    return (
        f"A timestamp came late in {percent(clocks.late)} of steps, most often on rank "
        f"{most[1].rank} ({percent(most[0])}): it is moved to the latest moment that causality "
        f"allows, {amount(clocks.late_ms, 'ms')} per step on average."
    )


def _unused(analysis: Analysis) -> list[str]:
    """Say how many steps are not in the ledger; nothing without steps."""
    if not analysis.coverage.steps:
        return []
    if analysis.ledger is None:
        return ["No step has all timestamps that its stages need: only step times are known."]
    covered = coverage(analysis)
    return [f"In the ledger are {covered}."] if covered else []


def _ranks(ranks: Sequence[RankLogs]) -> list[int]:
    return [rank.rank for rank in ranks]
