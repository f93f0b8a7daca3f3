"""Score how soon a lasting rise of the step time is found, and how often noise looks like one.

It looks after every tenth step, as a watch does, and writes docs/scorecard/rise.md in five minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from chapter import DOCS
from scipy.signal import lfilter

from stallscope.analysis.ledger.change_points import REFERENCE_STEPS, RISE, find_rise
from stallscope.arrays.types import Floats

PAGE = DOCS / "rise.md"
CHANGES = 1_000
RUNS, STEPS = 500, 2_000
_AFTER = 300
_EVERY = 10
_INTRODUCTION = f"""# A lasting rise of the step time

This page shows how soon `step_ms.rise` of [`watch`](../watch.md) sees a rise of {RISE:.0%}, and how
often noise looks like one: {CHANGES:,} simulated rises and {RUNS * STEPS:,} steps without one for
each kind of noise. The target with a noise of 5 % is 30 steps, and at most one false alarm.

| noise | found after, median | 95 % within | missed | false alarms |
| --- | ---: | ---: | ---: | ---: |
"""


@dataclass(frozen=True)
class Noise:
    cv: float
    tails: bool = False
    #: The correlation of a step with the next.
    phi: float = 0.0

    def __str__(self) -> str:
        words = [f"{self.cv:.0%}"]
        words += ["heavy tails"] if self.tails else []
        words += [f"correlated, φ = {self.phi:g}"] if self.phi else []
        return ", ".join(words)

    def times(self, random: np.random.Generator, steps: int) -> Floats:
        """Return step times with a median of 50 ms."""
        noise = (
            random.standard_t(4, steps) / np.sqrt(2) if self.tails else random.normal(size=steps)
        )
        if self.phi:
            noise = lfilter([np.sqrt(1 - self.phi**2)], [1, -self.phi], noise)
        return np.asarray(50 * np.exp(self.cv * noise), np.float64)


def delays(noise: Noise, random: np.random.Generator) -> list[int]:
    """Return the steps until each rise was found; rises that were missed are left out."""
    steps = []
    for _ in range(CHANGES):
        times = noise.times(random, 2 * REFERENCE_STEPS + _AFTER)
        times[2 * REFERENCE_STEPS :] *= 1 + RISE
        ends = range(1, _AFTER + 1)
        seen = (end for end in ends if find_rise(times[: 2 * REFERENCE_STEPS + end]))
        steps += [next(seen, 0)]
    return [step for step in steps if step]


def false_alarms(noise: Noise, random: np.random.Generator) -> int:
    """Return the number of runs in which noise looked like a rise."""
    alarms = 0
    for _ in range(RUNS):
        times = noise.times(random, REFERENCE_STEPS + STEPS)
        ends = range(REFERENCE_STEPS, len(times) + 1, _EVERY)
        alarms += any(find_rise(times[:end]) for end in ends)
    return alarms


def main(arguments: Sequence[str]) -> None:
    """Simulate, and write the page."""
    parser = argparse.ArgumentParser(prog="scorecard.py rise", description=__doc__.splitlines()[0])
    parser.add_argument("--page", type=Path, default=PAGE, help="the page to write")
    page = parser.parse_args(arguments).page
    random = np.random.default_rng(20261126)
    lines = []
    for noise in (Noise(0.05), Noise(0.05, tails=True), Noise(0.1), Noise(0.05, phi=0.5)):
        steps = delays(noise, random)
        median, most = np.percentile(steps, (50, 95))
        missed, alarms = CHANGES - len(steps), false_alarms(noise, random)
        lines.append(f"| {noise} | {median:.0f} steps | {most:.0f} steps | {missed} | {alarms} |")
        print(lines[-1], flush=True)
    page.write_text(_INTRODUCTION + "\n".join(lines) + "\n")
