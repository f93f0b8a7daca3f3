"""Write a run in six lines: verdict, step time, stragglers, gain, logs, and the command for more."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from stallscope.analysis import Analysis
from stallscope.analysis.stragglers.lateness import Straggler
from stallscope.collector.run_names import RunAddress
from stallscope.formatting.lists import listed
from stallscope.formatting.numbers import amount, percent

from .figure_words import step_in_words
from .gain_words import Gain, as_fast, how_sure, loss_gain, main_gain, other_gains
from .job_words import epoch_figures
from .step_figures import StepFigures
from .straggler_words import cost, excess, waiting, who
from .verdicts import basis, headline
from .vocabulary import NAMES_IN_LISTS

# Without the other ranks' logs, these two cannot be distinguished.
_ONE_RANK = {**NAMES_IN_LISTS, "allreduce": "waiting and allreduce"}
# A line names this many stragglers.
_MOST_STRAGGLERS = 2


def six_lines(analysis: Analysis, source: str) -> list[str]:
    """Return the lines.

    Args:
        analysis: of the run.
        source: the place of its logs, as commands take it.
    """
    return [
        f"stallscope: {_verdict(analysis)}",
        f"  step time: {_step_time(analysis)}",
        f"  stragglers: {_stragglers(analysis)}",
        f"  potential gain: {_gain(analysis)}",
        f"  logs: {RunAddress.parse(source).place} ({_logs(analysis)})",
        f"  more: stallscope report {shlex.quote(source)}",
    ]


def _verdict(analysis: Analysis) -> str:
    verdict = analysis.bottleneck
    if verdict.kind == "insufficient_data":
        return verdict.evidence
    return headline(verdict, analysis.stragglers)


def _step_time(analysis: Analysis) -> str:
    step, figures = analysis.step, StepFigures.of(analysis)
    if step is None:
        mean = dict(epoch_figures(analysis)).get("Mean step")
        return f"{mean}, by whole epochs; its stages were not measured" if mean else "not measured"
    whole = step_in_words(step)
    printed = analysis.printed
    if figures is None and printed is not None and printed.recorded and printed.input_ms:
        wait = amount(printed.input_ms.value, "ms")
        return f"{whole}: input {wait} on average over ranks; the rest was not measured apart"
    if figures is None and printed is not None and printed.stages is not None:
        return f"{whole}; its stages are those of printed timers"
    if figures is None:
        return f"{whole}; its stages were not measured"
    names = _ONE_RANK if analysis.run.one_log_of_many else NAMES_IN_LISTS
    parts = [
        f"{names[entry.name]} {figures.causes.amount(part)}"
        for entry, part in zip(analysis.by_cause, figures.causes.parts, strict=True)
    ]
    waits = figures.waits.total
    known = analysis.entry("imbalance") is not None and analysis.run.size > 1
    waited = f"; {figures.causes.amount(waits)} of it waiting for slow ranks" if known else ""
    return f"{whole}: {', '.join(parts)}{waited}"


def _stragglers(analysis: Analysis) -> str:
    named = [straggler for straggler in analysis.stragglers if straggler.ranks]
    if not named:
        return waiting(analysis)[0]
    more = len(named) - _MOST_STRAGGLERS
    rest = [f"{more} more"] if more > 0 else []
    return "; ".join([*map(straggler_sentence, named[:_MOST_STRAGGLERS]), *rest])


def straggler_sentence(straggler: Straggler) -> str:
    """Write the slow ranks, their stage, the excess and its cost; without a full stop."""
    stage = NAMES_IN_LISTS[straggler.stage]
    return (
        f"{who(straggler)}, {stage} {excess(straggler)} longer than its peers', "
        f"late in {percent(straggler.late_share)} of steps, costs {cost(straggler)} per step"
    )


def _gain(analysis: Analysis) -> str:
    if analysis.bottleneck.kind == "insufficient_data":
        return "these logs cannot show it"
    lost = loss_gain(analysis)
    if lost:
        return lost[0].lower() + lost[1:].rstrip(".")
    gain = next(_gains(analysis), None)
    if gain is None:
        return "none that is worth mentioning"
    what_if = gain.what_if
    return f"{gain.title}: steps {' '.join(as_fast(what_if))} ({how_sure(what_if)})"


def _gains(analysis: Analysis) -> Iterator[Gain]:
    main = main_gain(analysis)
    if main is not None:
        yield main
    yield from other_gains(analysis)


def _logs(analysis: Analysis) -> str:
    run = analysis.run
    is_open = [rank for rank, log in run.last_logs.items() if not log.ended]
    parts = [listed("run", [run.id]), basis(analysis)]
    if is_open:
        parts.append(f"{listed('rank', is_open)} still open")
    return ", ".join(parts)
