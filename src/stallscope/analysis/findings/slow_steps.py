"""Find steps that are slow because of their position: at the start of epochs, or periodically.

Printed lines about steps tell more: pauses between steps, growth within epochs, and bursts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from stallscope.arrays.stats import above_usual
from stallscope.arrays.types import Bools, Floats, Ints
from stallscope.formatting.lists import counted, listed
from stallscope.formatting.numbers import amount, percent
from stallscope.words import ENTRIES, OUTSIDE_STEPS, SlowSteps, known

from ..advice.input_advice import slow_first_steps
from ..gains.what_if import Advice, Loss
from ..ledger.change_points import ChangePoint, Growth
from ..ledger.ledger import Ledger
from ..ledger.printed_steps import PrintedSteps, RepeatedSteps
from ..ledger.slow_windows import SlowWindows, period_of
from ..ledger.windows import Pauses
from ..setup import Setup
from .finding import Finding
from .uneven_work import pipeline_stages

_WINDOW = 51
_FEWEST_EPOCHS = 3
# The pattern must hold in most epochs; exceptions are allowed.
_MOST = 2 / 3
_POSITIONS = 5
#: A smaller share of the steps' time is not worth a finding.
WORTH = 0.01


def step_findings(
    ledger: Ledger, changes: tuple[ChangePoint, ...], setup: Setup
) -> Iterator[Finding]:
    """Find changes of the step time, and slow steps with a pattern, in steady steps."""
    yield from map(changed, changes)
    yield from pipeline_stages(ledger, setup.pipeline_parts)
    if len(ledger) < _WINDOW:
        return
    over, slow = above_usual(ledger.total.astype(np.float64), _WINDOW)
    _, first, epoch = np.unique(ledger.epochs, return_index=True, return_inverse=True)
    # Where the steps before an epoch's first known one are lost, its position is unknown.
    begins = np.append(True, np.diff(ledger.steps) == 1)[first]
    position = np.where(begins[epoch], ledger.steps - ledger.steps[first][epoch], _POSITIONS)
    positions, place, counts = np.unique(position, return_inverse=True, return_counts=True)
    # The first positions of an epoch that are slow in most epochs.
    regular = (counts >= _FEWEST_EPOCHS) & (np.bincount(place, slow) >= _MOST * counts)
    regular[positions >= _POSITIONS] = False
    at_start = slow & regular[place]
    yield from _at_positions(ledger, positions[regular], over, at_start, setup)
    yield from _periodic(ledger, at_start, setup)


def _at_positions(
    ledger: Ledger, positions: Ints, over: Floats, slow: Bools, setup: Setup
) -> Iterator[Finding]:
    cost = float(over[slow].sum() / ledger.total.sum())
    if cost >= WORTH:
        words = ", ".join(str(position + 1) for position in positions)
        yield Finding(
            "slow_first_steps",
            "warning",
            "Epochs start slowly",
            f"Step {words} of an epoch takes {over[slow].mean() / 1e6:.1f} ms longer than the steps "
            f"around it in most epochs: {cost:.1%} of all steps' time.",
            tuple(slow_first_steps(setup)),
        )


def _periodic(ledger: Ledger, slow_first: Bools, setup: Setup) -> Iterator[Finding]:
    total = ledger.total.astype(np.float64)
    total[slow_first] = np.median(total)
    _, lengths = np.unique(ledger.epochs, return_counts=True)
    period = period_of(
        total, ledger.steps, np.zeros(len(ledger), np.int64), without=set(lengths.tolist())
    )
    if period is None:
        return
    cost = float(period.over.sum() / ledger.total.sum())
    if cost < WORTH:
        return
    entry = max(
        ENTRIES,
        key=lambda name: float(
            ledger.entry(name)[period.regular].mean() - np.median(ledger.entry(name))
        ),
    )
    longer = f"takes {period.over.mean() / 1e6:.1f} ms longer than the steps around it"
    yield _every_nth(
        f"One step in every {period.every} {longer}, most of it in {entry}: {cost:.1%} of all "
        "steps' time.",
        period.every,
        setup,
        is_input=entry == "input",
    )


def _every_nth(evidence: str, every: int, setup: Setup, is_input: bool) -> Finding:
    """Report steps that are slow at the same place of each cycle.

    Args:
        evidence: what was measured.
        every: the number of steps in a cycle.
        setup: the run's setup.
        is_input: whether they wait for data.
    """
    advice = Advice(
        "Look for periodic work",
        detail=": logging, metrics, checkpoints, summaries, or opening the next file of the dataset",
    )
    if is_input:
        workers = setup.loader_workers
        advice = Advice(
            "Give the loader more workers, or make a batch cheaper",
            reason=f"If {every} workers load batches, one step in {every} waits for all of them:"
            if workers != every
            else f"The loader has {every} workers, and one step in {every} waits for them:",
            unless="Otherwise look for what the loader does in each cycle, as opening the next file.",
        )
    return Finding(
        "slow_every_nth_step",
        "warning",
        "Periodic slow steps",
        evidence,
        (advice,),
    )


def changed(change: ChangePoint, *, usual: bool = False) -> Finding:
    """Report a change of step time.

    Args:
        change: the change.
        usual: whether steps have become as slow as they usually were before.
    """
    slower = change.after_ms > change.before_ms
    again = ", as usual before," if usual and slower else ""
    who = f", with rank {change.rank} last in most steps" if change.rank is not None else ""
    most = ""
    if change.entry is not None:
        sign = "+" if change.by_ms > 0 else "-"
        most = f"; {change.entry} changed most, by {sign}{amount(abs(change.by_ms), 'ms')}{who}"
    first, last = change.between
    about = "" if first == last else f" (between steps {first} and {last})"
    return Finding(
        "step_time_changed",
        "warning" if slower and not usual else "info",
        "Steps became slower" if slower else "Steps became faster",
        f"From step {change.step} on{about}, a step takes {amount(change.after_ms, 'ms')}{again} "
        f"instead of {amount(change.before_ms, 'ms')}{most}.",
        (
            Advice(
                "Check what happened at that time",
                detail=": other jobs on the host, throttling, another part of the data, growing state",
            ),
        ),
    )


# -- Printed lines about steps ----------------------------------------------------------------------

# A larger share of the job in pauses, or of steps' time, is a warning.
_LARGE = 0.05
# Timers of ranks differ if the difference is this share of a step.
_UNEVEN = 0.1
# The title of each kind of pauses, and the noun for one and for several of them.
_PAUSES = {
    "validation": ("Evaluations take time", "evaluation", ""),
    "checkpoint": ("Checkpoints take time", "checkpoint", ""),
    "validation and checkpoint": (
        "Evaluations and checkpoints take time",
        "evaluation with a checkpoint",
        "evaluations with checkpoints",
    ),
    "unnamed": ("Time passes between lines", "pause", ""),
}
_SHORTER_PAUSES = {
    "validation": (Advice("Evaluate less often, or on fewer batches"),),
    "checkpoint": (Advice("Write checkpoints less often or in the background"),),
    "validation and checkpoint": (
        Advice("Evaluate less often, or on fewer batches"),
        Advice("Write checkpoints less often or in the background"),
    ),
    "unnamed": (
        Advice(
            "Check what runs between these lines",
            detail=": an evaluation, a checkpoint, a restart, or a loader that starts again",
        ),
    ),
}


@dataclass(frozen=True)
class PrintedLoss:
    """Time that a printed log loses, and the finding that reports it."""

    loss: Loss
    #: The shares of the job's time that it takes without waiting for data and without the start of the
    #: job, and that it waits for data.
    share: float
    waiting: float
    finding: Finding


def printed_step_findings(printed: PrintedSteps, setup: Setup) -> Iterator[Finding]:
    """Find what a series of printed step times tells, besides the wait for data.

    The first ones are the findings of ``printed_losses``. The others show no loss: sorted samples grow
    within epochs, and timers do not tell how long ranks wait for each other.
    """
    costliest = _costliest_change(printed)
    yield from (loss.finding for loss in printed_losses(printed, setup))
    for change, _, longer_ms in printed.levels:
        if longer_ms is not None and change is not costliest:
            yield changed(change, usual=longer_ms < _LARGE * change.after_ms)
    yield from _uneven_ranks(printed)
    if printed.growth is not None:
        yield _growth(printed.growth)


def printed_losses(printed: PrintedSteps, setup: Setup) -> Iterator[PrintedLoss]:
    """Find the time that a printed log loses outside of steps, and in slow steps.

    Args:
        printed: the series.
        setup: the run's setup.
    """
    for pauses in printed.pauses:
        if pauses.share >= WORTH:
            share = pauses.share * (1 - pauses.start_s / pauses.seconds)
            cause = known(pauses.kind.replace(" ", "_"), OUTSIDE_STEPS)
            assert cause is not None
            saved = share if cause == "unnamed" else share / 2
            loss = Loss(cause, pauses.seconds, "job", pauses.share, pauses.with_start, saved)
            yield PrintedLoss(loss, share, 0.0, _pauses(pauses))
    repeated = printed.repeated
    if repeated is not None:
        share = repeated.seconds / printed.job_s
        loss = Loss("repeated", repeated.seconds, "job", share, False, share)
        yield PrintedLoss(loss, share, 0.0, _trained_again(repeated))
    yield from _slow_steps(printed, setup)


def _slow_steps(printed: PrintedSteps, setup: Setup) -> Iterator[PrintedLoss]:
    def loss(
        cause: SlowSteps, cost: float, finding: Finding, waiting: float | None = None
    ) -> PrintedLoss:
        seconds = cost * printed.steady_s
        share = seconds / printed.job_s
        waiting = (waiting or 0.0) * share
        loss = Loss(cause, seconds, "steps", cost, False, cost)
        return PrintedLoss(loss, share - waiting, waiting, finding)

    starts, bursts, period = printed.epoch_starts, printed.bursts, printed.period
    change = _costliest_change(printed)
    if change is not None:
        yield loss("changes", printed.slowdown, changed(change))
    if starts is not None and starts.cost >= WORTH:
        finding = Finding(
            "slow_first_steps",
            "warning",
            "Epochs start slowly",
            f"The first lines of epochs are about steps that take {_longer(starts)}.",
            tuple(slow_first_steps(setup)),
        )
        yield loss("epoch_starts", starts.cost, finding, starts.waiting_share)
    if period is not None and period.cost >= WORTH:
        each = "One step" if period.every == period.every_windows else "One line"
        steps = "" if each == "One step" else f" ({period.every:,} steps)"
        finding = _every_nth(
            f"{each} in every {period.every_windows:,}{steps} takes {_longer(period)}.",
            period.every,
            setup,
            is_input=(period.waiting_share or 0.0) > 1 / 2,
        )
        yield loss("period", period.cost, finding, period.waiting_share)
    if bursts is not None and bursts.cost >= WORTH:
        finding = Finding(
            "slow_windows",
            "warning",
            "Some steps take much longer",
            f"In {bursts.windows:,} of {bursts.of:,} lines, steps take {_longer(bursts)}.",
            (
                Advice(
                    "Compare their times with what else ran on the hosts and the storage",
                    note="A run recorded with StepLogger shows the rank and the stage.",
                ),
            ),
        )
        yield loss("bursts", bursts.cost, finding, bursts.waiting_share)


def _costliest_change(printed: PrintedSteps) -> ChangePoint | None:
    """Return the change after which steps took most time beyond the usual one; None if none did."""
    slower = [
        ((longer_ms or 0.0) * steps, change.step, change)
        for change, steps, longer_ms in printed.levels
        if change.after_ms > change.before_ms and (longer_ms or 0.0) >= _LARGE * change.after_ms
    ]
    return max(slower)[2] if slower else None


def _uneven_ranks(printed: PrintedSteps) -> Iterator[Finding]:
    """Find a timer whose longest time of any rank is far above the shortest."""
    spread = None if printed.stages is None else printed.stages.spread
    if spread is None or spread[2] - spread[1] < _UNEVEN * printed.step.mean:
        return
    timer, least, most = spread
    waits = percent((most - least) / printed.step.mean)
    yield Finding(
        "uneven_timers",
        "warning",
        "Ranks take unequally long",
        f"The timer {timer} shows {amount(least, 'ms')} on the fastest rank and {amount(most, 'ms')} on "
        f"the slowest one: a difference of {waits} of a step, for which other ranks may wait.",
        (
            Advice(
                "Compare the ranks' hosts, and the layers and the data that each rank has",
                note="Stages of a pipeline differ by their layers. The timers do not name the rank.",
            ),
        ),
    )


def _longer(slow: SlowWindows) -> str:
    waiting = ""
    if slow.waiting_share is not None:
        waiting = f", {percent(slow.waiting_share)} of it waiting for data"
    known = (
        f"{amount(slow.longer_ms, 'ms')} longer than those around them{waiting}: "
        f"{slow.cost:.1%} of all steps' time"
    )
    if slow.alone:
        first, *rest = slow.alone
        ranks = f" (and {listed('rank', [rank.rank for rank in rest])} in others)" if rest else ""
        known += (
            f". In {first.windows:,} of these lines, only rank {first.rank} waits for data{ranks}"
        )
    return known


def _pauses(pauses: Pauses) -> Finding:
    """Report the time of evaluations, checkpoints or other pauses."""
    title, noun, nouns = _PAUSES[pauses.kind]
    apart = {last - step for step, last in pairwise(pauses.steps)}
    is_even = pauses.kind == "unnamed" and len(apart) == 1 < len(pauses.steps) - 1
    every = f", every {apart.pop():,} steps" if is_even else ""
    start = ", of which the first contains the start of the job" if pauses.with_start else ""
    if pauses.with_first_steps:
        start += ", with what the first steps of an epoch take longer than others"
    return Finding(
        "pauses_between_steps",
        "warning" if pauses.share >= _LARGE else "info",
        title,
        f"Before the last line, {counted(pauses.number, noun, nouns)} took "
        f"{'at least ' * pauses.lower_bound}{amount(pauses.seconds, 's')}{every}{start}: "
        f"{pauses.share:.1%} of the time from the first line to it. Step times are without them.",
        _SHORTER_PAUSES[pauses.kind],
    )


def _trained_again(repeated: RepeatedSteps) -> Finding:
    """Report steps that were trained again after a restart."""
    seconds = amount(repeated.seconds, "s")
    lost = f"They take about {seconds} at the mean step."
    if repeated.with_restarts:
        lost = f"With the restarts, this took {seconds}."
    return Finding(
        "steps_repeated",
        "warning",
        "Steps were trained twice",
        f"After {counted(repeated.restarts, 'restart')}, {counted(repeated.steps, 'step')} were trained "
        f"again. {lost}",
        (Advice("Find out why the job restarted, or write checkpoints more often"),),
    )


def _growth(growth: Growth) -> Finding:
    """Report times that grow or shrink within each epoch."""
    grow = "longer" if growth.longer_share > 0 else "shorter"
    share = f"{abs(growth.longer_share):.0%}"
    return Finding(
        "steps_change_within_epochs",
        "info",
        f"Steps become {grow} within each epoch",
        f"In {growth.epochs} epochs, steps at the end of an epoch take {share} {grow} than "
        "at its start, and the next epoch starts as the one before.",
        (
            Advice(
                "Check what differs along an epoch",
                detail=": samples sorted by length are no fault; lists, graphs or caches that grow are",
            ),
        ),
    )
