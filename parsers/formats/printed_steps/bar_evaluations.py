"""Tell bars of evaluations and of epochs from those of steps.

Bars without a label may be drawn for both, with one total: the text behind each pass names it. Other
bars count the batches of evaluations, too: ``Epoch 0: 128/140`` of 100 steps. Such a bar goes on while
another one shows the evaluation (``Validating: 28/40``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from stallscope.arrays.types import Bools, Floats, Ints

from ...work_lines import SETTING, WORK
from .bar_states import BarLabel, BarOutput, BarStates, are_many
from .figures import BAR
from .vocabulary import OF_TRAINING, OTHER_WORK

#: Texts about work between steps.
WORKS = {work: re.compile(expression.encode()) for work, expression in WORK.items()}
# A bar counts evaluations if it goes on in at least this share of them.
_SHARE_COUNTED = 0.5
# Passes of two kinds take times that differ by this ratio at least, and there are so many of them.
_OF_TWO_KINDS, _FEWEST_PASSES = 1.25, 4
_TRAINED = re.compile(rb"(?i)(?:^|[^a-z])train")
_NO_WORK = re.compile(rb"\[[^\[\]\r\n]*\]|" + SETTING.removeprefix("(?im)").encode(), re.I | re.M)
_BEHIND_BYTES, _LINE_BYTES = 1 << 20, 400
_OF_EPOCH, _RESULT = re.compile(rb"(?i)\bepoch|\bstep|\biter"), re.compile(rb"\d")
# Longer texts between the ends of two passes have a line of other text.
_LONGEST_BETWEEN, _LETTER = 1 << 12, re.compile(rb"[A-Za-z\d]")
#: Words of a training, around a bar or in it.
TRAINS = re.compile(rb"(?i)loss|\bepoch|\btrain|learning.?rate|\blr\b|grad.?norm")
_HEADER = re.compile(r"^\W{3,}(\w[\w -]{0,60}?)\W{3,}$|^(.{1,80}):$")
_BEFORE_BYTES, _AROUND_BYTES = 1000, 1 << 20
# Lines of epochs, of which there is one for this share of the turns of a bar of epochs.
_EPOCH_LINES, _SHARE_NAMED = re.compile(rb"(?im)^\W{0,3}epoch\W{0,3}(\d{1,9})"), 0.9


def works_named(text: bytes, begin: int, end: int) -> set[str]:
    """Return what work a text between two states names, without the brackets of bars."""
    between = _NO_WORK.sub(b"", text[begin : min(end, begin + _BEHIND_BYTES)])
    named = {work for work, expression in WORKS.items() if expression.search(between)}
    return named | ({"training"} if _TRAINED.search(between) else set())


def works_before(text: bytes, states: BarStates, breaks: Bools) -> dict[str, Ints]:
    """Return the number of other works that the text names in pauses up to each state."""
    named = {work: np.zeros(len(breaks), np.int64) for work in WORKS}
    for at in np.flatnonzero(breaks[1:]) + 1:
        works = works_named(text, int(states.bracket[at - 1]), int(states.begin[at]))
        for work, marks in named.items():
            marks[at] = work in works
    return {work: np.cumsum(marks) for work, marks in named.items()}


def with_named_passes(output: BarOutput) -> BarOutput:
    """Name evaluations among the passes of bars without a label, and leave out unclear ones."""
    states, labels = output.states, [*output.labels, BarLabel("evaluation", "step")]
    label, is_clear = states.label.copy(), np.ones(len(states.label), bool)
    unnamed = np.array([not each.words and each.counts == "step" for each in labels])
    rows = np.flatnonzero(unnamed[states.label])
    order = rows[np.lexsort((rows, states.rank[rows], states.total[rows], states.label[rows]))]
    alike = np.stack([states.label[order], states.total[order], states.rank[order]])
    for bar in np.split(order, np.flatnonzero((np.diff(alike) != 0).any(axis=0)) + 1):
        falls = states.chosen(bar).falls
        if are_many(falls) or falls.sum() < _FEWEST_PASSES - 1:
            continue
        passes = np.split(bar, np.flatnonzero(falls) + 1)
        kinds = [_kind_behind(output, int(each[-1])) for each in passes]
        if {*kinds[:-1]} == {"validation", "training"}:
            for each, kind in zip(passes, kinds, strict=True):
                label[each] = len(labels) - 1 if kind == "validation" else label[each]
                is_clear[each] = bool(kind)
        elif _alternate(states, passes):
            is_clear[bar] = False
    named = output._replace(states=states._replace(label=label), labels=labels)
    return named._replace(states=named.states.chosen(is_clear))


def _kind_behind(output: BarOutput, last: int) -> str:
    """Return the only kind of work that is named behind a pass; empty if there is not one."""
    begins = output.states.begin
    end = int(begins[last + 1]) if last + 1 < len(begins) else len(output.text)
    named = works_named(output.text, int(output.states.bracket[last]), end) - {"checkpoint"}
    return named.pop() if len(named) == 1 else ""


def _alternate(states: BarStates, passes: Sequence[Ints]) -> bool:
    """Whether every second pass takes much longer: they are no passes of one kind."""
    last = np.array([each[-1] for each in passes])
    least, most = (
        states.elapsed_s[last] / states.done[last],
        (1 + states.elapsed_s[last]) / states.done[last],
    )
    return any(bool(least[at::2].min() > _OF_TWO_KINDS * most[1 - at :: 2].max()) for at in (0, 1))


def are_epochs(states: BarStates, text: bytes) -> bool:
    """Whether the text has a line of each epoch, as many as the bar has turns."""
    numbers = {int(number) for number in _EPOCH_LINES.findall(text)}
    total = float(states.total[-1])
    if (np.diff(states.done) <= 0).any() or not len(numbers) >= _SHARE_NAMED * total > 0:
        return False
    return max(numbers) in (total - 1, total)


def is_of_training(text: bytes, bar: BarStates) -> bool:
    """Whether the text around a bar without a label is a training's."""
    begin, end = int(bar.begin[0]), int(bar.bracket[-1])
    before = text[max(begin - _BEFORE_BYTES, 0) : begin]
    lines = [line.strip() for line in before.decode("utf-8", "replace").splitlines()[-5:]]
    headers = [match[1] or match[2] for line in lines if (match := _HEADER.search(line))]
    if headers and OTHER_WORK.search(headers[-1].lower()):
        return False
    return bool(
        TRAINS.search(before) or TRAINS.search(text[begin : min(end, begin + _AROUND_BYTES)])
    )


def finished_passes(text: bytes, states: BarStates) -> BarStates | None:
    """Return the start and the end of each pass of a bar whose ends alone were printed; None for others.

    Text between two ends, or another epoch in their labels, tells that they are not of one pass.

    Args:
        text: the output.
        states: the bar's, of one rank.
    """
    ends = states.chosen((states.done == states.total) & (states.total > 0))
    # Each bar of Hugging Face's Trainer is one of a training.
    if len(ends.done) < _SHARE_NAMED * len(states.done) or b"train_runtime" in text:
        return None
    between = zip(ends.bracket[:-1].tolist(), ends.begin[1:].tolist(), strict=True)
    others = [_has_other_line(text, begin, end) for begin, end in between]
    ends = ends.chosen(np.append(np.array(others, bool) | (np.diff(ends.epoch) != 0), True))
    count = len(ends.done)
    if count < _FEWEST_PASSES or _show_evaluations(text, ends):
        return None
    edges, is_start = ends.chosen(np.repeat(np.arange(count), 2)), np.arange(2 * count) % 2 == 0
    began_s = np.cumsum(np.append(0.0, ends.elapsed_s[:-1]))
    epoch = ends.epoch if (ends.epoch >= 0).all() else np.arange(count)
    return edges._replace(
        done=np.where(is_start, 0.0, edges.done),
        elapsed_s=np.where(is_start, 0.0, edges.elapsed_s),
        epoch=np.repeat(epoch, 2),
        breaks=is_start,
        began_s=np.repeat(began_s, 2),
    )


def _has_other_line(text: bytes, begin: int, end: int) -> bool:
    """Whether a whole line of other text is between two ends of a bar."""
    lines = text[begin : min(end, begin + _LONGEST_BETWEEN)].replace(b"\r", b"\n").split(b"\n")
    return end - begin > _LONGEST_BETWEEN or any(map(_LETTER.search, lines[1:-1]))


def _show_evaluations(text: bytes, ends: BarStates) -> bool:
    """Whether most of these bars show evaluations.

    The line before a bar names its work. If it names neither work nor an epoch, a result behind does.
    """
    shown = 0
    for begin, end in zip(ends.begin.tolist(), ends.bracket.tolist(), strict=True):
        *_, before = (b"", *_lines(text[max(begin - _LINE_BYTES, 0) : begin].splitlines()[:-1]))
        behind, *_ = (*_lines(text[end : end + _LINE_BYTES].splitlines()[1:]), b"")
        named = works_named(before, 0, len(before))
        if not named and not _OF_EPOCH.search(before) and _RESULT.search(behind):
            named = works_named(behind, 0, len(behind))
        shown += named == {"validation"}
    return shown > len(ends.done) / 2


def _lines(lines: Sequence[bytes]) -> list[bytes]:
    """Return the lines with text, without states of bars."""
    return [line for line in lines if line.strip() and not BAR.search(line)]


def without_evaluations(output: BarOutput) -> BarOutput:
    """Take the batches of evaluations out of bars that go on while another bar shows these."""
    states, labels = output.states, output.labels
    shows, trains = evaluations_in(output), [bool(OF_TRAINING.search(bar.words)) for bar in labels]
    if not shows.any():
        return output
    copies = {name: getattr(states, name).copy() for name in ("done", "total", "pace_s")}
    states = states._replace(**copies)
    by_rank = np.argsort(states.rank, kind="stable")
    for rows in np.split(by_rank, np.flatnonzero(np.diff(states.rank[by_rank])) + 1):
        others = rows[~shows[rows]]
        label = (np.bincount(states.label[others], minlength=len(labels)) * trains).argmax()
        main, shown = others[states.label[others] == label], rows[shows[rows]]
        if len(main) and len(shown) and not are_many(states.chosen(main).falls):
            _take_out(states, main, shown)
    return output._replace(states=states)


def evaluations_in(output: BarOutput) -> Bools:
    """Mark the states of bars that show evaluations."""
    words = [label.words.encode() for label in output.labels]
    return np.array([bool(WORKS["validation"].search(each)) for each in words], bool)[
        output.states.label
    ]


def seconds_of_evaluations(
    output: BarOutput, states: BarStates, breaks: Bools, rank: int
) -> Floats:
    """Return the elapsed times that bars of evaluations show right before each state of another bar.

    Bars of one evaluation may contain each other, so that the label with the longest times counts.

    Args:
        output: the states of all bars.
        states: those of the bar of one rank.
        breaks: marks states with other work before them.
        rank: the rank in the labels; -1 without one.
    """
    seconds = np.zeros(len(states.begin))
    rows = np.flatnonzero(evaluations_in(output) & (output.states.rank == rank))
    shown = output.states.chosen(rows)
    for label in np.unique(shown.label).tolist():
        of_label = shown.chosen(shown.label == label)
        # The last state of each evaluation has the time of all its batches.
        ends = np.append((np.diff(of_label.done) < 0) | (np.diff(of_label.elapsed_s) < 0), True)
        last = of_label.chosen(ends) if len(of_label.begin) else of_label
        before = np.searchsorted(states.begin, last.begin)
        of_breaks = (before < len(breaks)) & breaks[np.minimum(before, len(breaks) - 1)]
        sums = np.bincount(before[of_breaks], last.elapsed_s[of_breaks], len(seconds))
        seconds = np.maximum(seconds, sums)
    return seconds


def _take_out(states: BarStates, main: Ints, shown: Ints) -> None:
    """Take evaluations out of the numbers of a bar, which stay the same within them.

    Args:
        states: all states; their numbers are changed, and a pace that has evaluations in it is unknown.
        main: the states of the bar.
        shown: the states of evaluations, of the same rank.
    """
    done, total, batches = states.done[main], states.total[main], states.total[shown]
    begins = np.append(True, (np.diff(states.done[shown]) < 0) | (np.diff(batches) != 0))
    firsts = np.flatnonzero(begins)
    lasts = np.append(firsts[1:], len(shown)) - 1
    ends = np.append(np.flatnonzero(np.diff(done) < 0), len(main) - 1)
    without, evaluated, slower = done.copy(), np.zeros(len(main)), np.zeros(len(main), bool)
    goes_on = ends_pass = 0
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        at, until = np.searchsorted(main, shown[[first, last]])
        end = int(ends[min(np.searchsorted(ends, at - 1), len(ends) - 1)]) + 1
        if not 0 < at < end:
            continue
        goes_on += bool((done[at:until] > done[at - 1]).any())
        # A bar that is drawn seldom may only show that it ends with them.
        rises = done[end - 1] - done[at - 1] >= batches[first]
        ends_pass += bool(at == until == end - 1 and rises and done[at] == total[at])
        within = done[at:end] <= done[at - 1] + batches[first]
        without[at:end] = np.where(within, without[at - 1], without[at:end] - batches[first])
        slower[at:end] = True
        start = int(np.append(-1, ends)[np.searchsorted(ends, at - 1)]) + 1
        evaluated[start:end] += batches[first]
    if goes_on + (ends_pass if ends_pass > 1 else 0) < max(_SHARE_COUNTED * len(firsts), 1):
        return
    totals = np.unique(total[total > 0])
    # An epoch that was cut off has not made its evaluation.
    taken = np.array([evaluated[total == each].max() for each in totals])
    if (taken >= totals).any():
        # Evaluations that are longer than the bar are no part of it.
        return
    for each, count in zip(totals, taken, strict=True):
        states.total[main[total == each]] -= count
    states.done[main] = without
    states.pace_s[main[slower]] = np.nan
