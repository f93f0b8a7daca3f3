"""Read the bar that a training draws: ``12%|█▏  | 48/400 [01:51<13:36, 2.32s/it, loss=2.1]``.

The output has all states of several bars and ranks (``bar_states``). The bar of the training is chosen
by its label, the text around it, and its time. Its states are put in order: epochs, restarts, and other
bars in between. Its elapsed times are the clock, and its printed pace has to agree with them. Batches of
evaluations are no steps, where a bar counts them, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from stallscope.arrays.types import Floats, Ints

from ...lines.line_blocks import Column
from ...window_lines import MEASURED_HALF, step_lines
from ...window_meaning import spans
from .bar_evaluations import (
    TRAINS,
    are_epochs,
    evaluations_in,
    finished_passes,
    is_of_training,
    seconds_of_evaluations,
    with_named_passes,
    without_evaluations,
    works_before,
)
from .bar_states import BarLabel, BarOutput, BarStates, are_many, bar_states, postfixes, waits_in
from .counters import Repeated, agrees
from .evidence import Evidence
from .rates import percent
from .rows import without_stamps
from .vocabulary import OF_TRAINING, OTHER_WORK

_FEWEST_STATES, _MOST_BARS, _MOST_RANKS, _MOST_ACCUMULATED = 4, 20, 4096, 32
_UNIT_NS, _SHORTEST_S = 10**9, 20  # of elapsed times: those of shorter trainings are too coarse
_AGREE = 1.15  # A bar's smoothed pace and rounded elapsed times agree up to this ratio.
_SHARE_ALIKE = 0.9  # of numbers, which bars of several ranks show equally often
_MOST_NEW = 0.55  # of states differ from those before if a bar is drawn twice for each step
_COMPLETE = 0.98  # of the total: a fit that ends before was cut off, if others do not
# Epochs differ in length by at most the first share; a bar with the second share of time may be chosen,
# and one with less than the third is none of a training.
_LENGTHS_ALIKE, _AS_LONG, _SHORT = 0.1, 0.5, 0.1


@dataclass(frozen=True)
class _Chain:
    """The states of one rank's bar in the order of its time."""

    states: BarStates
    #: The epoch of each state, counted from 0 or as its label has it.
    epoch: Ints
    rank: int = -1
    #: The number of ranks that draw it, if they are more.
    ranks: int = 1
    repeated: int = 0
    restarts: int = 0


@dataclass(frozen=True)
class _Bar:
    """A bar that may be a training's, with the states of each rank."""

    label: BarLabel
    total: float
    chains: Sequence[_Chain]
    #: Whether its label or the figures behind it have a word of a training.
    is_training: bool

    @property
    def seconds(self) -> float:
        """Return the time of its steps."""
        return max(chain.states.seconds for chain in self.chains)

    @property
    def passes(self) -> int:
        """Return how many times it counts."""
        return int((np.diff(self.main.states.done) < 0).sum()) + 1

    @property
    def main(self) -> _Chain:
        """Return the states of the rank with the most of them."""
        return max(self.chains, key=lambda chain: len(chain.epoch))

    @property
    def name(self) -> str:
        """Return a name for readers of the report."""
        label = f'labelled "{self.label.words}"' if self.label.words else "without a label"
        return f"the bar {label}" + (f" that counts to {self.total:,.0f}" if self.total else "")


def bars_in(data: bytes, size: int | None) -> Evidence | None:
    """Return the times of steps that the bar of a training shows; None if there is none.

    Args:
        data: the output.
        size: the number of ranks that it states; None if unknown.
    """
    output = without_evaluations(with_named_passes(bar_states(data)))
    bars = list(_bars(output, size)) if output.labels else []
    if not bars:
        return None
    bar, note, is_clear = _chosen(bars)
    if not bar.label.words and are_epochs(bar.main.states, output.text):
        bar = replace(bar, label=bar.label._replace(counts="epoch"))
    evidence = _of_epochs(bar) if bar.label.counts == "epoch" else _of_steps(bar, output)
    checks = evidence.checks if evidence and is_clear else ()
    return evidence and replace(evidence, checks=checks, notes=(*evidence.notes, *note))


# -- the bars --------------------------------------------------------------------------------------


def _bars(output: BarOutput, size: int | None) -> Iterator[_Bar]:
    """Yield the bars with the most states, without those of other work.

    Args:
        output: the states of all bars.
        size: the number of ranks that the log states; None if unknown.
    """
    # A single state of an evaluation is a pause, others may be those of another thread.
    passed = np.cumsum(np.where(evaluations_in(output), _FEWEST_STATES, 1))
    for label, total, rows in _groups(output)[:_MOST_BARS]:
        bar = output.states.chosen(rows)
        if not label.words and not output.is_labelled and not is_of_training(output.text, bar):
            continue
        between = np.diff(passed[rows], prepend=passed[rows[:1]] - 1) - 1
        by_rank = np.argsort(bar.rank, kind="stable")
        counts = np.unique(bar.rank, return_counts=True)[1]
        chains = [
            chain
            for of_rank in np.split(by_rank, np.cumsum(counts)[:-1])[:_MOST_RANKS]
            if len(of_rank) >= _FEWEST_STATES
            and (chain := _chain(output.text, bar.chosen(of_rank), between[of_rank], size))
        ]
        if chains and max(chain.states.seconds for chain in chains) >= _SHORTEST_S:
            trains = OF_TRAINING.search(label.words) or TRAINS.search(postfixes(output.text, bar))
            yield _Bar(label, total, chains, bool(trains))


def _groups(output: BarOutput) -> list[tuple[BarLabel, float, Ints]]:
    """Return the labels, totals and states of bars of steps or epochs, that with most states first."""
    groups, states = [], output.states
    by_label = np.argsort(states.label, kind="stable")
    ends = np.cumsum(np.bincount(states.label, minlength=len(output.labels)))
    for label, rows in zip(output.labels, np.split(by_label, ends[:-1]), strict=True):
        if len(rows) < _FEWEST_STATES or OTHER_WORK.search(label.words):
            continue
        totals, counts = np.unique(states.total[rows], return_counts=True)
        order = np.argsort(-counts, kind="stable")[:_MOST_BARS]
        while len(order):
            total = totals[order[0]]
            # Epochs may differ in length.
            near = np.abs(totals[order] - total) <= (_LENGTHS_ALIKE * total if label.words else 0)
            of_bar = rows[np.isin(states.total[rows], totals[order[near]])]
            if len(of_bar) >= _FEWEST_STATES:
                groups.append((label, float(total), of_bar))
            order = order[~near]
    return sorted(groups, key=lambda group: -len(group[2]))


def _chosen(bars: Sequence[_Bar]) -> tuple[_Bar, Sequence[str], bool]:
    """Return the bar of the training: by its words, then by its time, and a note on others.

    Also return whether that is clear: without labels, an evaluation that takes longer comes later.
    """
    bar = max(bars, key=lambda each: (each.label.counts != "epoch", each.is_training, each.seconds))
    first = min(bars, key=lambda each: int(each.main.states.begin[0]))
    is_clear = first is bar or bool(first.label.words or bar.label.words) or first.passes == 1
    is_clear |= first.seconds < _SHORT * bar.seconds or bar.is_training != first.is_training
    bar = bar if is_clear else first
    rest = [each for each in bars if each is not bar and each.label.counts != "epoch"]
    rest = [each for each in rest if each.seconds >= _AS_LONG * bar.seconds]
    for inner in rest:
        outer_steps = len(np.unique(bar.main.states.done))
        if abs(inner.passes - outer_steps) <= 1 and inner.total > min(bar.total, _MOST_ACCUMULATED):
            # Each step of the outer bar is an epoch of the inner one.
            return inner, (), is_clear
    rest = [each for each in rest if each.is_training == bar.is_training]
    # Nothing tells bars without words from each other.
    is_clear &= not rest or any(each.label.words for each in (bar, *rest))
    notes = [f"{bar.name} is read, and {each.name} is not" for each in rest[:1]]
    return bar, notes, is_clear


# -- the states of a rank --------------------------------------------------------------------------


def _chain(text: bytes, states: BarStates, between: Ints, size: int | None) -> _Chain | None:
    """Put the states of a bar in order; None if those of several ranks cannot be told apart.

    Args:
        text: the output.
        states: the bar's states.
        between: for each the number of other bars' states since the one before.
        size: the number of ranks that the log states; None if unknown.
    """
    finished = finished_passes(text, states)
    if finished is not None:
        return _Chain(finished, finished.epoch, int(states.rank[0]))
    falls, paused = states.falls, np.cumsum(between >= _FEWEST_STATES)
    if are_many(falls) and (states.epoch >= 0).all():
        # Bars of earlier epochs are drawn again.
        drawn = np.stack([states.epoch, states.done, states.elapsed_s])
        first = np.sort(np.unique(drawn, axis=1, return_index=True)[1])
        once = states.chosen(first)
        if not are_many(once.falls):
            states, paused, falls = once, paused[first], once.falls
    # One rank's time goes on, or starts again.
    back = (np.diff(states.done) >= 0) & (states.elapsed_s[1:] > states.elapsed_s[:-1] / 2)
    if are_many(falls) or (falls & back).sum() > 1:
        return _of_several_ranks(states, size)
    keep = np.flatnonzero(np.append(True, (np.diff(states.done) != 0) | falls))
    # Repeated states are drawn after other work, too, and the last one has the pace of all steps.
    last = np.append(keep[1:], len(states.done)) - 1
    closing_s = states.elapsed_s[last]
    is_end = (states.done == states.total)[keep] & (closing_s <= states.elapsed_s[keep] + 1)
    is_end &= ~np.isnan(states.pace_s[last])
    pace_s = np.where(is_end, states.pace_s[last], states.pace_s[keep])
    states, paused = states.chosen(keep)._replace(pace_s=pace_s), paused[keep]
    passes = _Passes(states)
    rows, breaks = passes.rows, passes.breaks
    pauses = breaks | np.append(True, np.diff(paused[rows]) > 0)
    measured = np.diff(states.elapsed_s[rows])[~pauses[1:]].sum()
    # A bar that another thread draws is no pause.
    if measured >= _AS_LONG * np.diff(states.elapsed_s[rows])[~breaks[1:]].sum():
        breaks = pauses
    ordered = states.chosen(rows)
    pieces = np.split(ordered.elapsed_s, np.flatnonzero(ordered.falls) + 1)
    elapsed_s = np.concatenate([np.maximum.accumulate(piece) for piece in pieces])
    again = np.diff(ordered.elapsed_s) < -1
    began_s = np.cumsum(np.append(0.0, np.where(again, closing_s[rows[:-1]], 0.0)))
    return _Chain(
        ordered._replace(breaks=breaks, elapsed_s=elapsed_s, began_s=began_s),
        passes.epochs,
        int(states.rank[0]),
        repeated=passes.repeated,
        restarts=passes.restarts,
    )


class _Passes:
    """The fits of a bar from its start to its end: epochs, without parts that were trained again."""

    def __init__(self, states: BarStates) -> None:
        self._states = states
        self.repeated = self.restarts = 0
        #: The states that are kept: the pass, and the rows of each piece of it.
        self._pieces: list[tuple[int, Ints]] = []
        rises = np.diff(states.done)[np.diff(states.done) > 0]
        self._every = float(np.median(rises)) if len(rises) else 1.0
        self._start = float(states.done.min())
        for rows in np.split(np.arange(len(states.done)), np.flatnonzero(states.falls) + 1):
            self._add(rows)
        self._drop_cut_off()
        self.rows = np.concatenate([rows for _, rows in self._pieces])
        self.breaks = np.isin(self.rows, [rows[0] for _, rows in self._pieces])

    def _add(self, rows: Ints) -> None:
        """Add states whose numbers and times rise."""
        done, elapsed = self._states.done, self._states.elapsed_s
        first = rows[0]
        for at in range(len(self._pieces) - 2, max(len(self._pieces) - 4, -1), -1):
            last = self._pieces[at][1][-1]
            if done[first] >= done[last] and elapsed[first] >= elapsed[last] > 0:
                # Another bar was drawn in between, or a number was damaged.
                del self._pieces[at + 1 :]
                self._pieces.append((self._pieces[at][0], rows))
                return
        number, before = self._pieces[-1] if self._pieces else (-1, rows[:0])
        if not len(before) or self._is_start(rows):
            self._pieces.append((number + 1, rows))
            return
        if elapsed[first] < elapsed[before[-1]] and done[first] <= done[before[-1]]:
            self.restarts += 1
            self.repeated += round(done[before[-1]] - done[first] + self._every)
        self._cut(number, done[first])
        self._pieces.append((number, rows))

    def _is_start(self, rows: Ints) -> bool:
        """Whether a bar has made all steps up to its first state in the time until then."""
        first = rows[0]
        paces = self._states.pace_s[rows]
        pace_s = float(np.median(paces[~np.isnan(paces)])) if not np.isnan(paces).all() else np.inf
        until = (self._states.elapsed_s[first] + 1) / max(pace_s, 1e-9)
        return bool(self._states.done[first] <= self._start + 2 * (until + self._every))

    def _cut(self, number: int, done: float) -> None:
        """Drop the states of a pass from a number on."""
        pieces = [
            (each, rows[self._states.done[rows] < done] if each == number else rows)
            for each, rows in self._pieces
        ]
        self._pieces = [(each, rows) for each, rows in pieces if len(rows)]

    def _drop_cut_off(self) -> None:
        """Drop passes that a restarted job has made again, if the others reach their end."""
        states = self._states
        last = {number: rows[-1] for number, rows in self._pieces}
        ends = {
            number: bool(states.done[at] >= _COMPLETE * states.total[at])
            for number, at in last.items()
        }
        if all(ends.values()) or not any(ends.values()) or not states.total.any():
            return
        for number, at in [*last.items()][:-1]:
            following = last[number + 1]
            if not ends[number] and states.epoch[at] == states.epoch[following]:
                self.restarts += 1
                self.repeated += round(states.done[at])
                self._pieces = [piece for piece in self._pieces if piece[0] != number]

    @property
    def epochs(self) -> Ints:
        """Return the epoch of each kept state: by its label, else by counting passes."""
        epochs: Ints = self._states.epoch[self.rows]
        if (epochs >= 0).all():
            return epochs
        lengths = [len(rows) for _, rows in self._pieces]
        numbers = np.unique([number for number, _ in self._pieces], return_inverse=True)[1]
        return np.asarray(np.repeat(numbers, lengths), np.int64)


def _of_several_ranks(states: BarStates, size: int | None) -> _Chain | None:
    """Return the states of the median rank: bars that began earlier are ahead by the same time."""
    # Postfixes are drawn again and again.
    drawn = np.stack([states.done, states.elapsed_s, np.nan_to_num(states.pace_s)])
    is_new = np.append(True, (np.diff(drawn) != 0).any(axis=0))
    if is_new.mean() < _MOST_NEW:
        return _of_ranks(states.chosen(is_new), size) or (_of_ranks(states, size) if size else None)
    return _of_ranks(states, size)


def _of_ranks(states: BarStates, size: int | None) -> _Chain | None:
    numbers, counts = np.unique(states.done, return_counts=True)
    last = int(np.flatnonzero(states.done == numbers[-1])[0])
    ranks = int((states.done[:last] == numbers[0]).sum())
    usual = int(np.median(counts))
    # The last state is drawn again when a bar is closed.
    alike = (counts == usual) | ((counts == 2 * usual) & (numbers == numbers[-1]))
    if ranks < 2 or alike.mean() < _SHARE_ALIKE or usual % ranks or (size or ranks) % ranks:
        return None
    # For each number the states of the first epoch come first, those of all ranks together.
    of_numbers = np.split(np.argsort(states.done, kind="stable"), np.cumsum(counts)[:-1])
    epochs = usual // ranks
    order = np.stack(
        [
            rows.reshape(epochs, -1)[:, :ranks]
            for rows, is_alike in zip(of_numbers, alike, strict=True)
            if is_alike
        ]
    )
    numbers = numbers[alike]
    by_time = np.argsort(states.elapsed_s[order], axis=2, kind="stable")
    rows = np.take_along_axis(order, by_time, axis=2)[:, :, ranks // 2].T
    begins = np.tile(np.arange(len(numbers)) == 0, epochs)
    chosen = states.chosen(rows.ravel())._replace(breaks=begins)
    return _Chain(chosen, np.repeat(np.arange(epochs), len(numbers)), ranks=ranks)


# -- evidence --------------------------------------------------------------------------------------


def _of_steps(bar: _Bar, output: BarOutput) -> Evidence | None:
    """Return the evidence of a bar whose numbers are steps."""
    parts = [part for chain in bar.chains if (part := _spans(chain, output)) is not None]
    if not parts:
        return None
    names = set.intersection(*(set(part) for part in parts))
    columns = {name: np.concatenate([part[name] for part in parts]) for name in names}
    main = bar.main
    is_unclear = bar.label.counts == "either" and not main.epoch.any()
    checks = () if is_unclear else _pace_checks(main.states, columns["seconds"])
    notes = (Repeated(main.repeated, main.restarts, None).note,) if main.repeated else ()
    return Evidence(columns, "mean", checks, notes, main.ranks if main.ranks > 1 else None)


def _pace_checks(states: BarStates, seconds: Floats) -> tuple[str, ...]:
    """Return a check if a bar's pace agrees with its elapsed times."""
    ratio = states.pace_ratio(seconds)
    if not ratio or not agrees(ratio, _AGREE):
        return ()
    return (f"the bar's pace agrees with its elapsed times within {percent(ratio)}",)


def _spans(chain: _Chain, output: BarOutput) -> dict[str, Column] | None:
    """Return the times of steps of one rank as columns; None if the clock is too coarse for them."""
    states, count, text = chain.states, len(chain.epoch), output.text
    columns: dict[str, Column] = {
        **without_stamps(count),
        "rank": np.full(count, chain.rank),
        "step": np.rint(states.done).astype(np.int64),
    }
    if np.any(chain.epoch != chain.epoch[:1]):
        columns["epoch"] = chain.epoch
    if states.total.all():
        columns["steps"] = np.rint(states.total).astype(np.int64)
    lines = step_lines(columns)
    if len(lines) != count:
        return None
    moments_s = states.began_s + states.likeliest_s
    ns = np.rint(moments_s * 1e9).astype(np.int64)
    breaks = lines.begins | states.breaks | np.append(False, np.diff(ns) < 0)
    begin, end, seconds = spans(lines, ns, _UNIT_NS, breaks)
    if not len(seconds):
        return None
    columns |= works_before(text, states, breaks)
    columns = {name: column[end] for name, column in columns.items()}
    # The time between spans is that of other work, and of first steps, which belong to the spans.
    steps, before = lines.counted[end] - lines.counted[begin], np.append(begin[:1], end[:-1])
    spanned = step_lines(columns)
    firsts = spanned.since - steps if len(spanned) == len(end) else 0
    pause_s = moments_s[begin] - moments_s[before] - firsts * seconds
    if chain.ranks == 1:
        shown = np.cumsum(seconds_of_evaluations(output, states, breaks, chain.rank))
        # A bar that begins again tells nothing of the time before, but of steps before its first state.
        first_s = np.minimum(states.likeliest_s[begin], states.done[begin] * seconds)
        first_s = np.maximum(first_s - firsts * seconds, 0.0)
        first_s *= states.began_s[begin] > states.began_s[before]
        pause_s = np.maximum(pause_s, shown[begin] - shown[before] + first_s)
    columns["pause_s"] = np.maximum(pause_s, 0.0)
    waits = waits_in(text, states)
    if waits is not None:
        sums = np.append(0.0, np.cumsum(waits))
        means = (sums[end + 1] - sums[begin + 1]) / (end - begin)
        columns["data"] = np.minimum(means, seconds)
    return {**columns, "seconds": seconds, MEASURED_HALF: _UNIT_NS / 1e9 / steps}


def _of_epochs(bar: _Bar) -> Evidence | None:
    """Return the evidence of a bar whose numbers are epochs."""
    states = bar.main.states
    apart = np.flatnonzero(~states.breaks[1:])
    if len(apart) < _FEWEST_STATES - 1:
        return None
    epochs = np.diff(states.done)[apart]
    seconds = np.diff(states.elapsed_s)[apart] / epochs
    columns = {
        **without_stamps(len(apart)),
        "epoch": np.rint(states.done[apart + 1]).astype(np.int64),
        "seconds": seconds,
    }
    return Evidence(columns, "mean", _pace_checks(states, seconds), of_epochs=True)
