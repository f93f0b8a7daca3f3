"""Find steps that are slow because of their position: at the start of epochs, or periodically."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stallscope.arrays.stats import above_usual
from stallscope.arrays.types import Bools, Floats, Ints
from stallscope.words import ENTRIES

from ..advice.input_advice import slow_first_steps
from ..gains.what_if import Advice
from ..ledger.change_points import ChangePoint
from ..ledger.ledger import Ledger
from ..setup import Setup
from .finding import Finding

_WINDOW = 51
_FEWEST_EPOCHS = 3
_FEWEST_PERIODS = 5
# The pattern must hold in most epochs and for most slow steps; exceptions are allowed.
_MOST = 2 / 3
_NEARLY_ALL = 0.8
_POSITIONS = 5
#: A smaller share of the steps' time is not worth a finding.
WORTH = 0.01


def step_findings(
    ledger: Ledger, changes: tuple[ChangePoint, ...], setup: Setup
) -> Iterator[Finding]:
    """Find changes of the step time, and slow steps with a pattern, in steady steps."""
    yield from map(changed, changes)
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
    yield from _periodic(ledger, over, slow & ~at_start)


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


def _periodic(ledger: Ledger, over: Floats, slow: Bools) -> Iterator[Finding]:
    at = ledger.steps[slow]
    if len(at) < _FEWEST_PERIODS:
        return
    period = int(np.median(np.diff(at)))
    cost = float(over[slow].sum() / ledger.total.sum())
    if period < 2 or cost < WORTH:
        return
    phase = np.bincount(at % period).argmax()
    regular = slow & (ledger.steps % period == phase)
    due = int((ledger.steps % period == phase).sum())
    if regular.sum() < max(_FEWEST_PERIODS, _NEARLY_ALL * len(at), _MOST * due):
        return
    entry = max(
        ENTRIES,
        key=lambda name: float(ledger.entry(name)[regular].mean() - np.median(ledger.entry(name))),
    )
    yield Finding(
        "slow_every_nth_step",
        "warning",
        "Periodic slow steps",
        f"One step in every {period} takes {over[regular].mean() / 1e6:.1f} ms longer than the steps "
        f"around it, most of it in {entry}: {cost:.1%} of all steps' time.",
        (
            Advice(
                "Look for periodic work",
                detail=": logging, metrics, checkpoints, summaries, or opening the next file of the "
                "dataset",
            ),
        ),
    )


def changed(change: ChangePoint) -> Finding:
    """Report a change of step time."""
    slower = change.after_ms > change.before_ms
    who = f", with rank {change.rank} last in most steps" if change.rank is not None else ""
    most = ""
    if change.entry is not None:
        most = f"; {change.entry} changed most, by {change.by_ms:+.1f} ms{who}"
    first, last = change.between
    about = "" if first == last else f" (between steps {first} and {last})"
    return Finding(
        "step_time_changed",
        "warning" if slower else "info",
        "Steps became slower" if slower else "Steps became faster",
        f"From step {change.step} on{about}, a step takes {change.after_ms:.1f} ms instead of "
        f"{change.before_ms:.1f} ms{most}.",
        (
            Advice(
                "Check what happened at that time",
                detail=": other jobs on the host, throttling, another part of the data, growing state",
            ),
        ),
    )
