"""Find what confirms printed times: figures of the same lines that do not depend on them.

These are rates and the batch, the time that is left, and the clock (``counters``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stallscope.arrays.types import Floats

from .counters import CONSTANT, PRECISE, Clock, CountedLines, agrees

#: Printed times and a clock agree up to this ratio.
AGREE = 1.1
# Steps behind means so far vary at most this many times as much as these.
_AS_STEADY = 2.0
_FEWEST_LINES_OF_MEANS = 3
# Times that are left are rounded, and those of means over other steps.
_LEFT_ALIKE = 1.1
# Products of times and rates are exact to this share, and to this share of how much times vary.
_EXACT, _STEADIER = 0.005, 0.25
_SHORTEST_SEQUENCE = 128


@dataclass(frozen=True)
class ComparedLines(CountedLines):
    """Lines whose figures are compared with each other."""

    #: The batch sizes that the log states.
    batches: frozenset[int]

    @property
    def stated_batches(self) -> frozenset[int]:
        """Return the batch sizes that the log states, in these lines or elsewhere."""
        sizes = (float(np.median(self.sole.values[at])) for at in self.having("batch"))
        return self.batches | {round(size) for size in sizes if size >= 1}

    def data_in(self, time: int) -> int | None:
        """Return the figure of the wait for data in a figure's time; None if there is none."""
        seconds = self.sole.values[time]
        for at in self.having("data"):
            figure = self.figures[at]
            same = figure.word.unit_s == self.figures[time].word.unit_s
            plain = not figure.in_parentheses and (same or figure.word.order < 2)
            waits = self.sole.values[at] * self.data_factor(at, time)
            if plain and (waits <= 1.01 * seconds).mean() > 0.9:
                return at
        return None

    def mean_data_in(self, time: int) -> int | None:
        """Return the mean wait for data beside a mean in parentheses; None if there is none."""
        if not self.figures[time].in_parentheses:
            return None
        return next((at for at in self.having("data") if self.figures[at].in_parentheses), None)

    def data_factor(self, data: int, time: int) -> float:
        """Return the factor from the unit of waits to that of times."""
        units = self.figures[data].word.unit_s, self.figures[time].word.unit_s
        return 1.0 if None in units else float(units[0] or 1) / float(units[1] or 1)

    def rates_agree(self, clock: Clock) -> list[str]:
        """Return a check if rates and the clock agree on a batch that the log states."""
        _, end, seconds = self.spans(clock)
        for at in self.having("rate") if len(seconds) else ():
            word = self.figures[at].word
            product = float(np.median(self.sole.values[at][end] * seconds))
            if word.thing == "step" and agrees(product, AGREE):
                return [f"rates and {clock.name} agree"]
            if word.thing == "sample" and not word.of_a_device:
                batch = next(
                    (size for size in self.stated_batches if agrees(product / size, AGREE)), None
                )
                if batch is not None:
                    return [f"rates and {clock.name} agree on the batch of {batch:,}"]
        return []

    def coarseness_so_far(self, time: int, seconds: Floats, half_s: float) -> float | None:
        """Return how coarse the times of steps are behind means over all steps so far, as a share.

        Args:
            time: a figure with times.
            seconds: its values, in seconds.
            half_s: half of the unit that these are rounded to.

        Returns:
            None if these are no such means: then steps behind them would vary wildly.
        """
        lines = self.lines
        inside = np.flatnonzero(~lines.begins)
        if len(lines) != len(seconds) or len(inside) < _FEWEST_LINES_OF_MEANS:
            return np.inf if self.figures[time].word.is_mean else None
        each = (np.diff(seconds * lines.so_far) / lines.since[1:])[inside - 1]
        off = 2 * half_s * (lines.so_far / lines.since)[inside]
        usual, usual_off = float(np.median(each)), float(np.median(off))
        spread = float(np.median(np.abs(each - usual)))
        drift = float(np.median(np.abs(seconds - np.median(seconds))))
        if (each < -off).any() or spread > _AS_STEADY * max(drift, usual_off):
            return None
        return usual_off / max(usual, 1e-12)

    def _left_over(self, step_s: Floats) -> float | None:
        """Return how far the printed time that is left is from that of the steps that are left.

        Args:
            step_s: the seconds of a step, as each line would print them.

        Returns:
            The ratio of both; None if no line tells, or too coarsely.
        """
        sole, total = self.sole, self.figures[self.counter].total
        steps = sole.values[self.counter] / (self.samples_per_step or 1.0)
        for at in self.having("left"):
            left_s = sole.values[at] * (self.figures[at].word.unit_s or 1.0)
            if np.median(left_s) < 1 / PRECISE:
                continue
            ends = steps + left_s / np.maximum(step_s, 1e-12)
            if total is not None:
                rest = total / (self.samples_per_step or 1.0) - steps
                ratio = float(np.median((ends - steps) / np.maximum(rest, 1e-12)))
                if agrees(ratio, _LEFT_ALIKE):
                    return ratio
            # All lines tell the same end of the job.
            spread = float(np.ptp(steps)) if self.lines.begins.sum() == 1 else 0.0
            if spread * float(np.median(step_s)) > 1 / PRECISE and np.ptp(ends) < 0.1 * spread:
                return 1 + float(np.ptp(ends)) / spread
        return None

    def left_agrees(self, seconds: Floats) -> list[str]:
        """Return a check if the printed time that is left is that of the steps that are left."""
        ratio = self._left_over(seconds)
        return (
            [] if ratio is None else [f"agree with the time that is left within {percent(ratio)}"]
        )

    def totals_agree(self, seconds: Floats) -> list[str]:
        """Return a check if rates say that times are those of all steps since the line before."""
        if len(self.lines) != len(seconds) or np.median(self.lines.since) < 2:
            return []
        inside = ~self.lines.begins
        for at in self.having("rate"):
            thing = self.figures[at].word.thing
            steps = (self.sole.values[at] * seconds / self.lines.since)[inside]
            sizes = {1} if thing == "step" else self.stated_batches if thing == "sample" else ()
            if any((np.abs(steps / size - 1) < CONSTANT).mean() > 0.9 for size in sizes):
                return ["agree with rates on the steps since the line before"]
        return []

    def product_agrees(self, seconds: Floats) -> list[str]:
        """Return a check if the product of rates and times is constant, and a batch.

        That is stated, or the lines of each step have times that vary more than their products, or
        tokens that are a power of two.
        """
        for at in self.having("rate"):
            products = seconds * self.sole.values[at]
            batch = float(np.median(products))
            spread = float(np.median(np.abs(products / max(batch, 1e-12) - 1)))
            thing = self.figures[at].word.thing
            size = next(
                (size for size in self.stated_batches if _is_batch(batch / size, thing)), None
            )
            if spread < CONSTANT and size is not None:
                return [f"rates and times agree on the batch of {size:,}"]
            varies = float(np.median(np.abs(seconds / np.median(seconds) - 1)))
            power = 2.0 ** round(np.log2(max(batch, 1e-9)))
            exact = thing == "token" and power >= _SHORTEST_SEQUENCE
            is_whole = exact and spread < _EXACT and abs(batch / power - 1) < _EXACT
            steady = is_whole or spread < min(_EXACT, _STEADIER * varies)
            if steady and thing != "step" and (self.lines.since == 1).all():
                return [f"rates and times agree on {batch:,.0f} {thing or 'sample'}s of a step"]
        return []


def percent(ratio: float) -> str:
    """Return how far a ratio is from 1."""
    return f"{max(100 * abs(ratio - 1), 0.1):.1f}%"


def _is_batch(ratio: float, thing: str) -> bool:
    """Whether a ratio to a batch is 1, or for tokens the length of its sequences, a power of two."""
    if thing == "step":
        return False
    power = 2.0 ** round(np.log2(max(ratio, 1e-9))) if thing == "token" else 1.0
    return (power == 1 or power >= _SHORTEST_SEQUENCE) and agrees(ratio / power, 1 + CONSTANT)
