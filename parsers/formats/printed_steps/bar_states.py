"""Find the states of all bars in a text, as columns: ``12%|█▏  | 48/400 [01:51<13:36, 2.32s/it]``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays import arrow
from stallscope.arrays.stats import evenly
from stallscope.arrays.types import Bools, Floats, Ints

from ...launcher_output import labels_of, output_by_rank
from ...lines.line_blocks import groups_of, lengths_of, pieces_of
from .rows import numbers_of
from .vocabulary import word_of

# Before and after the bracket of ``48/400 [01:51<13:36, 2.32s/it``.
_HEAD = (
    r"(?:^|[^\d.])(?P<done>\d{1,12}(?:\.\d{1,2})?[kMGT]?)"
    r"(?:/(?P<total>\d{1,12}(?:\.\d{1,2})?[kMGT]?)|(?P<name> ?[A-Za-z]{2,12}))$"
)
_TAIL = (
    r"^\[(?P<clock>(?:\d{1,4}:)?\d\d:\d\d)(?:<[\d:?]{1,12})?"
    r"(?:, {1,6}(?P<pace>\d{1,9}(?:\.\d{0,6})?[kM]?) ?(?P<per>s/|)"
    r"(?P<thing>[A-Za-z]{1,12})(?P<rate>/s|))?[,\]]"
)
# A bar of Rich as Lightning draws it, ``Epoch 0/9 ━━━━ 120/1000 0:00:45 • 0:05:33 2.64it/s``, and one of
# Ultralytics: ``640: 30% ━━━╸──── 54/180 2.4it/s 22.7s<52.9s``.
_RICH = re.compile(
    rb"(?<!\d)(?P<done>\d{1,9})/(?P<total>\d{1,9}) (?:(?:(?P<days>\d{1,4}) days?, )?"
    rb"(?P<clock>\d{1,2}:\d\d:\d\d) \xe2\x80\xa2 [\d:days, -]{1,30}(?P<pace>\d{1,9}\.\d\d)it/s"
    rb"|(?P<rate>\d{1,6}\.\d)(?P<per>it/s|s/it) "
    rb"(?P<took>(?:\d{1,3}:){0,2}\d{1,2}(?:\.\d)?)s?(?=[<\s]|$))"
)
_OF_RICH = re.compile("•|━".encode())
_COLOURS = re.compile(rb"\x1b\[[\d;]{0,20}m")
_MOVEMENTS = re.compile(rb"\x1b\[[\d;?]{0,9}[A-Za-z]")
_HEAD_BYTES, _TAIL_BYTES, _LABEL_BYTES, _POSTFIX_BYTES = 40, 64, 80, 400
_BLOCK_BYTES, _BLOCK_STATES = 1 << 23, 1 << 16
_WORD = re.compile(r"(?<![\w.])[a-z]+(?![\d.])")
_EPOCH_OF = re.compile(r"\bepoch\W{0,3}(\d{1,9})")
_RANK_OF = re.compile(r"\b(?:rank|gpu|cuda|device|worker|process)[ :=_#]{0,2}(\d{1,5})\b")
_NO_LABELS = {"rank", "gpu", "cuda", "device", "worker", "process", "nan", "inf"}
_MOST_WORDS = 5
# The bytes between a bracket and the percentage of the next state, at least.
_FEWEST_BEFORE = 8
# ``6.0`` in a percentage of ``6%`` is damage; ``6.6`` is not.
_PERCENT_OFF = 1.0
_POSTFIX = re.compile(r"([A-Za-z][\w/. -]{0,40}?)[=:] ?[-+\d.eE]{1,20}( ?[a-z/]{0,12})(?=,|\]|$)")
_POSTFIXES = 40
_NUMBER = r"\d{1,9}(?:\.\d{0,9})?(?:e-?\d{1,2})?"
# A step time in a postfix and the pace agree up to this ratio.
_ALIKE = 1.1
# A pace is of all steps so far if it gives the elapsed time up to this share, from so many seconds on.
_SO_FAR, _LONG_S = 0.05, 20
# No bar takes longer.
_LONGEST_S = 1e9
# The wait for data is at most this share of a step's time, in this share of states.
_MOST_OF_STEP, _MOST = 1.01, 0.9
# The numbers of one rank's bar fall in at most this share of states, or this often.
_SHARE_FALLS, _FEW_FALLS = 0.05, 3


class BarStates(NamedTuple):
    """The states of bars as columns, in the order of the output."""

    #: Where its number begins in the text, and its bracket.
    begin: Ints
    bracket: Ints
    #: The number of its label, and the epoch and the rank in it; -1 without one.
    label: Ints
    epoch: Ints
    rank: Ints
    done: Floats
    #: The number that it goes to; 0 without one.
    total: Floats
    elapsed_s: Floats
    #: Seconds of a step by the printed pace; NaN without one.
    pace_s: Floats
    #: Whether other work than steps may be in the time before it.
    breaks: Bools
    #: When its bar began, without the time between bars; 0 if unknown.
    began_s: Floats

    def chosen(self, rows: Ints | Bools) -> BarStates:
        """Return some of the states."""
        columns: Any = (column[rows] for column in self)
        return BarStates(*columns)

    @property
    def falls(self) -> Bools:
        """Mark states before a number or a time that is lower.

        Elapsed times of ranks that began together differ by their rounding.
        """
        return np.asarray((np.diff(self.done) < 0) | (np.diff(self.elapsed_s) < -1))

    @property
    def seconds(self) -> float:
        """Return the time of all steps."""
        return float(np.diff(self.elapsed_s)[~self.breaks[1:]].sum())

    @property
    def likeliest_s(self) -> Floats:
        """Return the likeliest times of states, whose elapsed times are rounded down.

        The first steps of a bar are made within its first second; a resumed one begins with others.
        """
        firsts, every = np.flatnonzero(self.breaks), np.arange(len(self.done))
        first = firsts[np.maximum(np.searchsorted(firsts, every, "right") - 1, 0)]
        resumed = (self.done * self.pace_s > 1)[first]
        steps = self.done - np.where(resumed, self.done[first] - 1, 0)
        taken = np.minimum(np.nan_to_num(steps * self.pace_s, nan=0.5), 1.0)
        likeliest_s = np.where(self.elapsed_s == 0, taken, self.elapsed_s + 0.5)
        # A bar that is closed has the pace of all its steps.
        exact_s = self.done * self.pace_s
        is_exact = (self.done == self.total) & (np.floor(exact_s) == self.elapsed_s)
        pass_s = _LONGEST_S * np.cumsum(np.append(False, np.diff(self.elapsed_s) < 0))
        moments_s = pass_s + np.where(is_exact, exact_s, likeliest_s)
        return np.asarray(np.minimum.accumulate(moments_s[::-1])[::-1] - pass_s)

    def pace_ratio(self, seconds: Floats) -> float | None:
        """Return the ratio of printed paces to measured times of a step; None without paces.

        A pace is that of the last steps, or of all steps since the bar began, which may have changed.
        """
        known = ~np.isnan(self.pace_s)
        if not known.any():
            return None
        pace_s, elapsed_s, done = self.pace_s[known], self.elapsed_s[known], self.done[known]
        totals = pace_s * done
        long = elapsed_s >= _LONG_S
        so_far = np.abs(totals[long] / elapsed_s[long] - 1) < _SO_FAR
        if long.any() and so_far.mean() > _MOST:
            inside = np.diff(done) > 0
            return float(np.diff(totals)[inside].sum() / np.diff(elapsed_s)[inside].sum())
        return float(np.median(pace_s) / np.median(seconds))


def are_many(falls: Bools) -> bool:
    """Whether numbers and times fall more often than those of one rank's bar."""
    return bool(falls.sum() > max(_SHARE_FALLS * len(falls), _FEW_FALLS))


class BarLabel(NamedTuple):
    """The label of a bar by its words, and what it counts; either if only the label names epochs."""

    words: str
    counts: Literal["step", "epoch", "either"]


class _Labels:
    def __init__(self) -> None:
        self.numbers: dict[BarLabel, int] = {}

    def of(self, raw: bytes, thing: bytes) -> tuple[int, int, int]:
        """Return the number of a label, the epoch and the rank in it; -1 for other things than steps.

        Args:
            raw: the text before the bar.
            thing: what it counts; empty if unknown.
        """
        text = raw.decode("utf-8", "replace").lower()
        words = [word for word in _WORD.findall(text) if word not in _NO_LABELS][:_MOST_WORDS]
        epoch, rank = _EPOCH_OF.search(text), _RANK_OF.search(text)
        counts = _counted_by(thing.decode("latin-1").strip().lower(), words)
        if counts is None:
            return -1, -1, -1
        if "epochs" in words and not epoch:
            counts = "epoch"
        if words == ["epoch"] and not epoch and thing in (b"", b"it"):
            counts = "either"
        number = self.numbers.setdefault(BarLabel(" ".join(words), counts), len(self.numbers))
        return number, int(epoch[1]) if epoch else -1, int(rank[1]) if rank else -1


def _counted_by(thing: str, words: Sequence[str]) -> Literal["step", "epoch", "either"] | None:
    if thing in ("epoch", "epochs", "ep"):
        return "epoch"
    # Loaders of data sets count batches (``ba``), too.
    is_batch = thing == "ba" and "train" in words
    return "step" if not thing or is_batch or word_of("", f"{thing}/s").thing == "step" else None


class BarOutput(NamedTuple):
    """The states of all bars in an output."""

    #: The output without colours, that of each rank in one piece if a launcher has labelled it.
    text: bytes
    states: BarStates
    labels: Sequence[BarLabel]
    is_labelled: bool


def bar_states(data: bytes) -> BarOutput:
    """Return the states of all bars in an output."""
    text, starts, ranks = _by_rank(data)
    labels = _Labels()
    blocks = [_block(text, at, before, labels) for before, at in _brackets(text)]
    if _OF_RICH.search(text) or not blocks:
        blocks.append(_rich(text, labels))
    states = BarStates(*(np.concatenate(columns) for columns in zip(*blocks, strict=True)))
    states = states.chosen(np.argsort(states.begin, kind="stable"))
    if len(ranks) > 1:
        rank = np.array(ranks)[np.searchsorted(starts, states.begin, "right") - 1]
        states = states._replace(rank=rank)
    return BarOutput(text, _with_totals(states), [*labels.numbers], len(ranks) > 1)


def _with_totals(states: BarStates) -> BarStates:
    """Give the states that a bar draws beyond its total (``15it`` after ``14/14``) this total.

    A single number beyond it is that of a loop that looks for its end after other work.
    """
    count = len(states.done)
    order = np.lexsort((np.arange(count), states.rank, states.label))
    ordered = states.chosen(order)
    known = np.where(ordered.total > 0, np.arange(count), 0)
    before = np.maximum.accumulate(known) if count else known
    others = (np.diff(ordered.label) != 0) | (np.diff(ordered.rank) != 0) | ordered.falls
    number = np.cumsum(np.append(0, others))[:count]
    goes_on = (number == number[before]) & (ordered.done >= ordered.total[before])
    last = np.searchsorted(number, number, "right") - 1
    goes_on &= ordered.done[last] != ordered.total[before] + 1
    total = states.total.copy()
    total[order] = np.where(goes_on, ordered.total[before], ordered.total)
    return states._replace(total=total)


def _by_rank(data: bytes) -> tuple[bytes, Ints, Sequence[int]]:
    """Return the output of all ranks one after another, where each begins, and the ranks."""
    if labels_of(data) is None:
        return _without_colours(data), np.zeros(1, np.int64), [-1]
    outputs = output_by_rank(data)
    pieces = [_without_colours(text) + b"\n" for text in outputs.values()]
    starts = np.cumsum([0, *map(len, pieces)])[:-1]
    return b"".join(pieces), starts, [-1 if rank is None else rank for rank, _ in outputs]


def _without_colours(text: bytes) -> bytes:
    """Return a text without colours; movements of the cursor become carriage returns."""
    return _MOVEMENTS.sub(b"\r", _COLOURS.sub(b"", text)) if b"\x1b[" in text else text


def _brackets(text: bytes) -> Iterator[tuple[int, Ints]]:
    """Yield the places of brackets before times, and the place of the one before."""
    buffer, before = np.frombuffer(text, np.uint8), -1
    for start in range(0, len(buffer), _BLOCK_BYTES):
        part = buffer[start : start + _BLOCK_BYTES + 2]
        at = np.flatnonzero((part[1:-1] == ord("[")) & (part[:-2] == ord(" "))) + start + 1
        at = at[_is_digit(buffer[at + 1])]
        for begin in range(0, len(at), _BLOCK_STATES):
            yield before, at[begin : begin + _BLOCK_STATES]
            before = int(at[begin : begin + _BLOCK_STATES][-1])


def _block(text: bytes, at: Ints, before: int, labels: _Labels) -> BarStates:
    """Read the states around brackets."""
    previous = np.append(before, at[:-1])
    heads = pieces_of(text, np.maximum(previous + 1, at - 1 - _HEAD_BYTES), at - 1)
    tails = pieces_of(text, at, np.minimum(at + _TAIL_BYTES, np.append(at[1:], len(text))))
    has_head, fields = groups_of(heads, _HEAD)
    has_tail, of_tails = groups_of(tails.filter(arrow.array(has_head)), _TAIL)
    chosen = arrow.array(has_tail)
    fields = {**{name: texts.filter(chosen) for name, texts in fields.items()}, **of_tails}
    at, previous = at[has_head][has_tail], previous[has_head][has_tail]
    length = sum(lengths_of(fields[name]) for name in ("done", "total", "name"))
    has_total = lengths_of(fields["total"]) > 0
    begin = at - 1 - length - has_total
    done, total, pace = (
        numbers_of(fields[name], is_clock=False) for name in ("done", "total", "pace")
    )
    total = np.where(has_total, total, 0.0)
    is_rate, is_duration = (lengths_of(fields[name]) > 0 for name in ("rate", "per"))
    pace_s = np.where(is_rate, 1 / np.maximum(pace, 1e-9), pace)
    label_end, percent = _percentages(text, previous, begin)
    share = 100 * done / np.where(total > 0, total, np.nan)
    label, epoch, rank = _labelled(text, previous, label_end, fields, labels)
    states = BarStates(
        begin,
        at,
        label,
        epoch,
        rank,
        done,
        total,
        numbers_of(fields["clock"], is_clock=True),
        pace_s,
        np.zeros(len(at), bool),
        np.zeros(len(at)),
    )
    off = np.abs(percent - share)
    # A bar that was just made has no pace, and maybe the steps of a checkpoint.
    known = np.where(np.isnan(pace), states.elapsed_s > 0, is_rate != is_duration)
    return states.chosen(known & (label >= 0) & (done > 0) & ~(off > _PERCENT_OFF))


def _percentages(text: bytes, previous: Ints, begin: Ints) -> tuple[Ints, Floats]:
    """Return where labels end, and the printed percentages; NaN without one."""
    if not len(begin):
        return begin, np.zeros(0)
    start = max(int(previous[0]), 0)
    buffer = np.frombuffer(text, np.uint8, int(begin[-1]) - start, start)
    signs = np.flatnonzero((buffer[:-1] == ord("%")) & (buffer[1:] == ord("|"))) + start
    at = _last_before(signs, begin, previous + _FEWEST_BEFORE)
    every, percent = np.frombuffer(text, np.uint8), np.zeros(len(at))
    is_number = at >= 0
    for place in range(3):
        digit = every[at - 1 - place]
        is_number = is_number & _is_digit(digit)
        percent += np.where(is_number, 10.0**place * (digit.astype(np.float64) - ord("0")), 0.0)
    has_one = (at >= 0) & _is_digit(every[at - 1])
    return np.where(has_one, at - 3, begin), np.where(has_one, percent, np.nan)


def _labelled(
    text: bytes, previous: Ints, end: Ints, fields: Mapping[str, pa.Array], labels: _Labels
) -> Sequence[Ints]:
    """Return the numbers of labels, and the epochs and ranks in them."""
    if not len(end):
        return [np.zeros(0, np.int64)] * 3
    start = max(int(previous[0]), 0)
    buffer = np.frombuffer(text, np.uint8, int(end[-1]) - start, start)
    lines = np.flatnonzero((buffer == ord("\r")) | (buffer == ord("\n"))) + start
    closed = np.append(np.flatnonzero(buffer == ord("]")) + start, len(text))
    # The state before ends with the first bracket after its own.
    closing = closed[np.searchsorted(closed, previous)]
    begin = np.maximum(_last_before(lines, end, previous), previous) + 1
    is_closed = (closing < end) & (previous >= 0)
    begin = np.where(is_closed, np.maximum(begin, closing + 1), begin)
    begin = np.minimum(np.maximum(begin, end - _LABEL_BYTES), end)
    raw = pc.dictionary_encode(pieces_of(text, begin, end))
    # A bar without a total has the name of what it counts before its bracket.
    things = pc.dictionary_encode(
        pc.binary_join_element_wise(fields["thing"], fields["name"], b" ")
    )
    names, texts = things.dictionary.to_pylist(), raw.dictionary.to_pylist()
    codes = arrow.numbers(raw.indices).astype(np.int64) * len(names) + arrow.numbers(things.indices)
    alike, inverse = np.unique(codes, return_inverse=True)
    known = [
        labels.of(texts[code // len(names)], next(iter(names[code % len(names)].split()), b""))
        for code in alike.tolist()
    ]
    return [np.array(column, np.int64)[inverse] for column in zip(*known, strict=True)]


def _last_before(places: Ints, end: Ints, least: Ints) -> Ints:
    """Return the last of the places before each end, -1 if it is before the least."""
    at = np.searchsorted(places, end) - 1
    last = np.append(places, -1)[at]
    return np.where((at >= 0) & (last >= least), last, -1)


def _is_digit(signs: npt.NDArray[np.uint8]) -> Bools:
    return np.asarray((signs >= ord("0")) & (signs <= ord("9")))


def _rich(text: bytes, labels: _Labels) -> BarStates:
    """Read the states of Rich's bars."""
    rows, end = [], 0
    for match in _RICH.finditer(text):
        before = text[max(end, match.start() - _POSTFIX_BYTES) : match.start()]
        label, epoch, rank = labels.of(re.split(rb"[\r\n]", before)[-1], b"it")
        clock = map(float, reversed((match["clock"] or match["took"]).split(b":")))
        elapsed_s = sum(part * 60**at for at, part in enumerate(clock))
        elapsed_s += 86400 * int(match["days"] or 0)
        end, pace = match.end(), float(match["pace"] or match["rate"])
        pace_s = pace if match["per"] == b"s/it" else 1 / pace if pace else np.nan
        place = match.start(), end
        numbers = float(match["done"]), float(match["total"]), float(elapsed_s)
        if numbers[0] and label >= 0:
            rows.append((*place, label, epoch, rank, *numbers, pace_s, False, 0.0))
    kinds = (*[np.int64] * 5, *[np.float64] * 4, bool, np.float64)
    columns = zip(*rows, strict=True) if rows else [()] * len(kinds)
    return BarStates(*(np.array(column, kind) for column, kind in zip(columns, kinds, strict=True)))


def waits_in(text: bytes, states: BarStates) -> Floats | None:
    """Return the wait for data that states print after their pace, in seconds; None without one.

    Its unit is printed, or that of a step time beside it that agrees with the pace.
    """
    paces, brackets = states.pace_s[states.pace_s > 0], states.bracket[_spread(states)]
    if not len(paces):
        return None
    usual_s = float(np.median(paces))
    words = {
        (name, unit): word_of(name, unit.strip())
        for at in brackets.tolist()
        for name, unit in _POSTFIX.findall(_postfix(text, at))
    }
    usual = {
        figure: np.median(np.nan_to_num(_values_of(text, brackets, *figure)))
        for figure, word in words.items()
        if word.quantity == "time"
    }
    unit_s = next(
        (
            unit
            for time in usual.values()
            for unit in (1.0, 1e-3)
            if 1 / _ALIKE < time * unit / usual_s < _ALIKE
        ),
        None,
    )
    for (name, unit), word in words.items():
        factor = word.unit_s or unit_s
        if word.quantity == "data" and factor is not None:
            values = _values_of(text, states.bracket, name, unit) * factor
            if (values <= _MOST_OF_STEP * usual_s).mean() > _MOST:
                return np.nan_to_num(values)
    return None


def postfixes(text: bytes, states: BarStates) -> bytes:
    """Return the texts behind some of the states, to the ends of their lines."""
    behind = (_postfix(text, at) for at in states.bracket[_spread(states)].tolist())
    return "\n".join(behind).encode("latin-1")


def _spread(states: BarStates) -> Ints:
    """Return the places of a few states from the first to the last."""
    return evenly(len(states.begin), _POSTFIXES)


def _postfix(text: bytes, at: int) -> str:
    """Return the text of a state from its bracket to the next line."""
    return re.split(rb"[\r\n]", text[at : at + _POSTFIX_BYTES])[0].decode("latin-1")


def _values_of(text: bytes, at: Ints, name: str, unit: str) -> Floats:
    """Return a figure of each state's postfix; NaN without it."""
    expression = rf", ?{re.escape(name)}[=:] ?(?P<value>{_NUMBER}){re.escape(unit)}(?:,|\]|$)"
    values = []
    for start in range(0, len(at), _BLOCK_STATES):
        begin = at[start : start + _BLOCK_STATES]
        order = np.argsort(begin, kind="stable")
        starts = begin[order]
        ends = np.minimum(starts + _POSTFIX_BYTES, np.append(starts[1:], len(text)))
        known, groups = groups_of(pieces_of(text, starts, ends), expression)
        numbers = np.full(len(begin), np.nan)
        numbers[order[known]] = numbers_of(groups["value"], is_clock=False)
        values.append(numbers)
    return np.concatenate(values)
