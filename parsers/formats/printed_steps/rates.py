"""Decide by rates: whose they are, and whether times agree with them.

Rates are those of one rank or of all, which printed settings may tell. Rates and the batch, the time
that is left, and the clock (``counters``) confirm printed times, as they do not depend on them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Literal

import numpy as np

from stallscope.arrays.types import Floats
from stallscope.formatting.lists import counted

from ...rank_names import HEAD_BYTES
from ...window_durations import PRECISE
from ...window_lines import StepLines
from .counters import CONSTANT, Clock, CountedLines, agrees

RateOf = Literal["one rank", "all ranks"]
# Timestamps and rates give the samples of a step to this factor.
_ABOUT = 1.25
# Samples per step are a multiple of a rank's batch if their ratio is this close to a whole number.
_WHOLE_RANKS = 0.02
_FEWEST_LINES = 8  # With so many lines, the last one is near the end of its epoch.
# An epoch with one line takes at most twice the time of the line's steps, and other work.
_MOST_OF_ONE_LINE = 3
# Samples of a step vary if their median deviation is more than this share.
_VARIES = 0.05

# In lower case. tf_cnn_benchmarks prints "Batch size:  256 global", MLPerf's loggers
# "global_batch_size: {"value": 256", DeepSpeed dots up to a column, or two blanks.
_SIZE = re.compile(
    rb"batch[_ -]?size(?P<per>[_ -]per[_ -](?:gpu|device|rank|replica|worker))?"
    rb"(?:[\"']?\]?\s{0,40}(?:[:=]|is|\||\.{2,40})\s{0,40}[\"']?|  |(?:\", |: \{)\"value\": )"
    rb"(?P<size>\d{1,8})\b(?!\.\d)(?P<all> global\b)?"
)
# As an option of a command.
_OPTION = re.compile(
    rb"-batch[_-]size(?P<per>[_-]per[_-](?:gpu|device|rank|replica|worker))?[ \t]{1,4}"
    rb"(?P<size>\d{1,8})\b(?!\.\d)(?P<all>(?!))?"
)
PER_DEVICE = re.compile(rb"(?<![\d.])(\d{1,8}) per device\b")
# The words before a batch size tell whose it is.
_BEFORE_BYTES = 24
_WHOLE = re.compile(rb"(?:global|total|effective)[_ -]?(?:train[_ -]?)?$")
_OF_A_RANK = re.compile(rb"(?:per[_ -](?:gpu|device|rank|replica|worker)|local)[_ -]?(?:train_?)?$")
_OTHER = re.compile(rb"(?:eval|val(?:id(?:ation)?)?|test|min|max)[_ -]?(?:(?:train|micro)[_ -]?)*$")
# A call with a variable, which no settings print.
_IN_CODE = re.compile(rb"\w\([a-z_][\w.]{0,40}, ")


@dataclass(frozen=True)
class RateSamples:
    """The number of samples per step in printed rates."""

    #: None if unknown: then rates give no step times.
    per_step: float | None
    #: None if unknown.
    of: RateOf | None
    #: How ``of`` is known, or why not; a sentence.
    why: str
    #: Whether ``of`` is assumed without a batch size that confirms it.
    assumed: bool = False


def rate_samples(
    lines: StepLines,
    settings: PrintedSettings,
    known: RateOf | None = None,
    epoch_s: Mapping[int, float] | None = None,
) -> RateSamples:
    """Find the number of samples per step in the lines' rates.

    It is the rate times the step time, by timestamps or by durations of epochs, and equals the batch of
    one rank or of all ranks. Without either it is only known if there is one rank.

    Args:
        lines: the lines of one rank.
        settings: the batch sizes in the log.
        known: whose rates the program always prints; None if that varies.
        epoch_s: printed durations of epochs, by their printed numbers.
    """
    rank_batch, whole_batch = settings.rank_batch, settings.whole_batch
    batch = rank_batch if known == "one rank" else whole_batch
    if known is not None and batch is not None:
        return RateSamples(
            batch, known, f"a step has {counted(batch, 'sample')}, the batch of {known}"
        )
    by_seconds = _by_seconds(lines)
    if known == "all ranks" and by_seconds is not None:
        why = (
            f"rates and durations agree on {by_seconds:,.0f} samples per step, taken for all ranks'"
        )
        return RateSamples(by_seconds, known, why, assumed=True)
    per_step, clock = _by_timestamps(lines), "timestamps"
    if per_step is None:
        per_step, clock = _by_times_of_epochs(lines, epoch_s or {}), "times of epochs"
    if per_step is None:
        return _by_epochs(lines, settings) or _by_settings(settings)
    agreement = f"rates and {clock} agree on {per_step:,.0f} samples per step"
    if (
        rank_batch is not None
        and rank_batch == whole_batch
        and agrees(per_step / rank_batch, _ABOUT)
    ):
        return RateSamples(rank_batch, "all ranks", f"{agreement}: the batch of its only rank")
    for whose, batch in _batches(settings):
        if agrees(per_step / batch, _ABOUT):
            return RateSamples(batch, whose, f"{agreement}: the batch of {whose}")
    ranks = 0 if rank_batch is None or whole_batch is not None else round(per_step / rank_batch)
    if rank_batch is not None and ranks > 1 and abs(per_step / rank_batch - ranks) < _WHOLE_RANKS:
        why = f"{agreement}: {ranks:,} times the batch of one rank, {rank_batch:,}"
        return RateSamples(ranks * rank_batch, "all ranks", why)
    printed = ", ".join(f"{batch:,} of {whose}" for whose, batch in _batches(settings))
    unlike = f"unlike the batch sizes ({printed})" if printed else "no batch size is known"
    return RateSamples(per_step, None, f"{agreement}, {unlike}")


def _batches(settings: PrintedSettings) -> list[tuple[RateOf, int]]:
    """Return the known batch sizes."""
    known: list[tuple[RateOf, int | None]] = [
        ("one rank", settings.rank_batch),
        ("all ranks", settings.whole_batch),
    ]
    return [(whose, batch) for whose, batch in known if batch is not None]


def _by_settings(settings: PrintedSettings) -> RateSamples:
    """Find the samples per step without the times of lines."""
    rank_batch, whole_batch = settings.rank_batch, settings.whole_batch
    if rank_batch is not None and rank_batch == whole_batch:
        return RateSamples(
            rank_batch, "all ranks", f"a step has {counted(rank_batch, 'sample')} on its only rank"
        )
    why = "without timestamps, rates of one rank and of all ranks look alike"
    if rank_batch is None and whole_batch is None:
        why = "the log has no batch size, and no timestamps that tell one"
    return RateSamples(None, None, why)


def _by_epochs(lines: StepLines, settings: PrintedSettings) -> RateSamples | None:
    """Find the samples per step if each epoch has a single line; None if that is ambiguous.

    An epoch with twice the steps of its line would have a second line.
    """
    rate, ns = lines.of("rate"), lines.stamps_ns
    if rate is None or ns is None or len(lines) < 4 or not lines.begins.all():
        return None
    samples = float(np.median(rate[1:] * np.diff(ns) / 1e9))
    line = float(np.median(lines.since))
    fits = [
        (whose, batch)
        for whose, batch in _batches(settings)
        if line <= samples / batch < _MOST_OF_ONE_LINE * line
    ]
    if len(fits) != 1:
        return None
    ((whose, batch),) = fits
    why = (
        f"each epoch has a line about {line:.0f} steps and no other one, which only the batch of "
        f"{whose} fits, {counted(batch, 'sample')}"
    )
    return RateSamples(batch, whose, why)


def _by_timestamps(lines: StepLines) -> float | None:
    """Return samples per step by rates and timestamps; None without them."""
    rate, ns = lines.of("rate"), lines.stamps_ns
    if rate is None:
        rate = lines.of("mean_rate")
    inside = np.flatnonzero(~lines.breaks)
    if rate is None or ns is None or len(inside) < 3:
        return None
    took = (ns[inside] - ns[inside - 1]) / 1e9
    samples = float(np.median(rate[inside])) * float(took.sum()) / int(lines.since[inside].sum())
    # Pauses between lines make the mean too large; the median does not have them.
    if np.median(took) > 20 * lines.stamp_unit_ns / 1e9:
        each = rate[inside] * took / lines.since[inside]
        samples = float(np.median(each))
        if np.median(np.abs(each - samples)) > _VARIES * samples:
            # Batches have a number of words, and rates count sentences.
            return None
    return samples if samples > 0 else None


def _by_times_of_epochs(lines: StepLines, epoch_s: Mapping[int, float]) -> float | None:
    """Return samples per step by rates and durations of epochs; None without them."""
    rate, epoch = lines.of("rate"), lines.of("epoch")
    if rate is None or epoch is None or not epoch_s:
        return None
    last = lines.lasts
    took = np.array([epoch_s.get(number, 0.0) for number in epoch[last].tolist()])
    # An epoch with few lines has many steps after its last line.
    enough = (took > 0) & (np.bincount(lines.piece) >= _FEWEST_LINES)
    if not enough.any():
        return None
    mean_rate = np.bincount(lines.piece, lines.since) / np.bincount(lines.piece, lines.since / rate)
    samples = float(np.median((mean_rate * took / lines.counted[last])[enough]))
    return samples if samples > 0 else None


def _by_seconds(lines: StepLines) -> float | None:
    """Return samples per step by rates and seconds of the same steps; None without them."""
    rate, seconds = lines.of("rate"), lines.of("seconds")
    if rate is None or seconds is None:
        return None
    return float(np.median(rate * seconds / lines.since)) or None


# -- what confirms printed times -------------------------------------------------------------------

#: Printed times and a clock agree up to this ratio; what checks of a batch size say.
AGREE, ON_BATCH = 1.1, "agree on the batch of"
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
                    return [f"rates and {clock.name} {ON_BATCH} {batch:,}"]
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
                are_tokens = thing == "token" and agrees(batch / size, 1 + CONSTANT)
                on_batch = "agree on the tokens of a step," if are_tokens else ON_BATCH
                return [f"rates and times {on_batch} {size:,}"]
            varies = float(np.median(np.abs(seconds / np.median(seconds) - 1)))
            power = 2.0 ** round(np.log2(max(batch, 1e-9)))
            exact = thing == "token" and power >= _SHORTEST_SEQUENCE
            is_whole = exact and spread < _EXACT and abs(batch / power - 1) < _EXACT
            steady = is_whole or spread < min(_EXACT, _STEADIER * varies)
            if steady and thing != "step" and (self.lines.own_steps == 1).all():
                return [f"rates and times agree on {batch:,.0f} {thing or 'sample'}s of a step"]
        return []


def percent(ratio: float) -> str:
    """Return how far a ratio is from 1."""
    return f"{max(100 * abs(ratio - 1), 0.1):.1f}%"


def _is_batch(ratio: float, thing: str) -> bool:
    """Whether a ratio to a batch is 1, or for tokens the length of its sequences, a power of two."""
    power = 2.0 ** round(np.log2(max(ratio, 1e-9))) if thing == "token" else 1.0
    is_length = power == 1 or power >= _SHORTEST_SEQUENCE
    return thing != "step" and is_length and agrees(ratio / power, 1 + CONSTANT)


# -- Batch sizes and numbers of ranks that programs print before they train -----------------------


@dataclass(frozen=True)
class PrintedSettings:
    """The batch sizes and the number of ranks in a log; None if unknown."""

    #: Samples of a step on one rank, and on all ranks.
    rank_batch: int | None = None
    whole_batch: int | None = None
    ranks: int | None = None


def printed_settings(data: bytes, ranks: int | None) -> PrintedSettings:
    """Read the settings of a log.

    A plain ``batch_size`` is that of one rank, as in Horovod's examples, unless another line has the
    same number for all ranks, or that of micro-batches, of which a step may have several.

    Args:
        data: the log.
        ranks: the number of ranks; None if unknown.
    """
    sizes = _batch_sizes(data[:HEAD_BYTES].lower())
    per_rank, whole, either = (sizes.get(whose) for whose in ("rank", "whole", "either"))
    whole = either if whole is None and "micro" in sizes else whole
    if per_rank is None and either != whole:
        per_rank = either
    if ranks is not None:
        if per_rank is None and whole is not None and whole % ranks == 0:
            per_rank = whole // ranks
        if whole is None and per_rank is not None:
            whole = per_rank * ranks
    return PrintedSettings(per_rank or sizes.get("micro"), whole, ranks)


def _batch_sizes(head: bytes) -> dict[str, int]:
    """Return the first batch size of a rank, of all ranks, of micro-batches, and of unknown meaning."""
    sizes: dict[str, int] = {}
    for match in chain(_SIZE.finditer(head), _OPTION.finditer(head)):
        line = head[head.rfind(b"\n", 0, match.start()) + 1 : match.start()]
        before, size = line[-_BEFORE_BYTES:], int(match["size"])
        if size and not (_OTHER.search(before) or _IN_CODE.search(line)):
            whose = _whose(match, before)
            # nanoGPT prints its configuration first, and then what the command line overrides.
            if whose not in sizes or before.endswith(b"overriding: "):
                sizes[whose] = size
    if b" per device" in head and (of_a_device := PER_DEVICE.search(head)):
        sizes.setdefault("rank", int(of_a_device[1]))
    return sizes


def _whose(match: re.Match[bytes], before: bytes) -> str:
    if match["all"] or _WHOLE.search(before):
        return "whole"
    if before.rstrip(b"_- ").endswith(b"micro"):
        return "micro"
    return "rank" if match["per"] or _OF_A_RANK.search(before) else "either"
