"""Find the steps that ran with each setting of Horovod's autotuner.

The log has no times, but the tuner counts: it scores a setting after the gradients of
5 × HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE steps were reduced, and discards the first
HOROVOD_AUTOTUNE_WARMUP_SAMPLES rounds. Its counters restart in the middle of a step, so a round is T or
T + 1 steps: after n rounds the setting has changed between step T·n and step (T + 1)·n + n − 1. Steps in
that range may have either setting, and are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from stallscope.arrays.pivot import of_generation
from stallscope.arrays.stats import Mean, mean_with_interval
from stallscope.arrays.types import Ints
from stallscope.parsers.formats.autotune import AutotuneLog, Sample

from ..result import Analysis

# Horovod's constants: samples of a score, and the defaults.
_SAMPLES = 5
_STEPS_PER_SAMPLE, _WARM_UPS = 10, 3


@dataclass(frozen=True)
class Tried:
    """A setting that was tried, and the steps that certainly ran with it."""

    #: Its line in the log, from 1.
    number: int
    sample: Sample
    steps: int
    #: Milliseconds per step; None without steps.
    step_ms: Mean | None


@dataclass(frozen=True)
class TuningRounds:
    """The length of the tuner's rounds, in steps."""

    #: Steps of a round; a round may have one more.
    steps: int
    warm_ups: int

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> TuningRounds:
        per_sample = _whole(settings.get("HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE"), _STEPS_PER_SAMPLE)
        warm_ups = _whole(settings.get("HOROVOD_AUTOTUNE_WARMUP_SAMPLES"), _WARM_UPS)
        return cls(_SAMPLES * max(1, per_sample), warm_ups)

    def surely(self, number: int) -> tuple[int, int]:
        """Return the steps that certainly ran with the setting of this line, which counts from 1."""
        before = self.warm_ups + number - 1
        return (self.steps + 1) * before, self.steps * (before + 1)

    def settled_from(self, lines: int) -> int:
        """Return the first step at which all of these lines had certainly been tried."""
        return (self.steps + 1) * (self.warm_ups + lines)


def steps_of(
    log: AutotuneLog, rounds: TuningRounds, analysis: Analysis
) -> tuple[tuple[Tried, ...], Mean | None]:
    """Return every line of the log with its steps, and milliseconds per step with the final setting.

    The analysis is that of the run that wrote the log. The second result is None without such steps.
    """
    number, total = _steady(analysis)
    tried = []
    for line, sample in enumerate(log.samples, start=1):
        begin, end = rounds.surely(line)
        step_times = total[(number >= begin) & (number < end)]
        tried.append(Tried(line, sample, len(step_times), _mean(step_times)))
    if log.settled is None:
        return tuple(tried), None
    return tuple(tried), _mean(total[number >= rounds.settled_from(len(log.samples))])


def _steady(analysis: Analysis) -> tuple[Ints, Ints]:
    """Return the steady steps, counted from the first of the last generation, and their times."""
    ledger = analysis.steady
    if ledger is None:
        none = np.zeros(0, np.int64)
        return none, none
    steps = analysis.run.steps
    last = of_generation(steps, pc.max(steps["generation"]).as_py())
    return ledger.steps - pc.min(last["step"]).as_py(), ledger.total


def _mean(total: Ints) -> Mean | None:
    return mean_with_interval(total).scaled(1e-6) if len(total) else None


def _whole(text: str | None, otherwise: int) -> int:
    return int(text) if isinstance(text, str) and text.strip().isdigit() else otherwise
