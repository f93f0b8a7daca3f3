"""Find changes of step time and slow windows in printed lines about steps."""

from __future__ import annotations

from collections.abc import Iterator

from ..advice.input import slow_first_steps
from ..advice.piece import in_words
from ..ledger.printed_steps import PrintedSteps, SlowWindows
from ..settings.setup import Setup
from .finding import Finding
from .slow_steps import WORTH, changed


def printed_step_findings(printed: PrintedSteps, setup: Setup) -> Iterator[Finding]:
    """Find changes, slow starts of epochs, and slow windows in the series of step times."""
    yield from map(changed, printed.changes)
    starts, bursts = printed.epoch_starts, printed.bursts
    if starts is not None and starts.cost >= WORTH:
        yield Finding(
            "slow_first_steps",
            "warning",
            "Epochs start slowly",
            f"The first lines of epochs are about steps that take {_longer(starts)}.",
            in_words(slow_first_steps(setup)),
        )
    if bursts is not None and bursts.cost >= WORTH:
        yield Finding(
            "slow_windows",
            "warning",
            "Some steps take much longer",
            f"In {bursts.windows:,} of {bursts.of:,} lines, steps take {_longer(bursts)}.",
            "Compare their times with what else ran on the hosts and the storage. A run recorded with "
            "StepLogger shows the rank and the stage.",
        )


def _longer(slow: SlowWindows) -> str:
    return (
        f"{slow.longer_ms:.1f} ms longer than those around them: {slow.cost:.1%} of all steps' time"
    )
