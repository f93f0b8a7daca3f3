"""Lines of a program's own, as a user describes them:

    --read-as 'pattern:{time} epoch {epoch} step {step}'

A pattern is how such a line begins. Letters stand for themselves, blanks for any blanks, and

    {time}       when: a stamp of any form that is known, or seconds since 1970
    {rank}       whose it is, where no launcher has labelled the line
    {epoch}      the epoch that the line is of
    {step}       the step, counted over the job or over the epoch
    {seconds}    how long the epoch took, or the step where there is no {epoch}
    {}           anything

Without ``{seconds}`` an epoch lasts from its first line to the first line of the next one, and no stamp
knows more than it says: whole seconds tell a step's time only over many steps.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

from stallscope.errors import UnreadableError, UsageError
from stallscope.run import Problem

from .base import Parsed, Parser
from .epochs_only import Epoch, clock_facts, epochs_log, rank_in, rounded_to
from .launcher_output import shown_lines
from .stamps import MOMENT, Stamp, read_moment

#: What a pattern's name begins with.
PREFIX = "pattern:"
KNOWN_FROM = "lines as the pattern says"

_FIELDS = {
    "time": MOMENT,
    "rank": r"\d{1,6}",
    "epoch": r"\d{1,9}",
    "step": r"\d{1,12}",
    "seconds": r"\d{1,9}(?:\.\d{1,12})?",
}
# Numbers are printed as wide as the largest one: ``[  0/500]``.
_PADDING = {name: "" if name == "time" else " {0,12}" for name in _FIELDS}
_FIELD = re.compile(r"\{(\w*)\}")
# What is later than that after the first epoch is damage.
_LATEST_NS = 2**62


class _Mark(NamedTuple):
    """What one line says."""

    stamp: Stamp | None
    epoch: int | None
    step: int | None
    seconds: float | None


@dataclass
class _Told:
    """What a rank's lines say of times."""

    epochs: list[Epoch] = field(default_factory=list)
    #: Half of what they are rounded to, in milliseconds.
    half_ms: float = 0.0
    step_ms: float | None = None
    step_half_ms: float = 0.0


class LinePatternParser(Parser):
    """Reads lines of one pattern.

    Raises:
        UsageError: if it is none.
    """

    name: ClassVar[str] = "pattern"
    title: ClassVar[str] = "lines of a pattern"
    suffix: ClassVar[str] = ".log"
    has_steps: ClassVar[bool] = False
    certain: ClassVar[bool] = False

    def __init__(self, pattern: str) -> None:
        self._line = _compiled(pattern)
        self._pattern = pattern

    def recognises(self, file_name: str, head: bytes) -> bool:
        return any(self._mark(line.text, None) for line in shown_lines(head))

    def parse(self, path: str, data: bytes) -> Parsed:
        marks: dict[int, list[_Mark]] = {}
        ranks: set[int] = set()
        of_the_file = rank_in(path)[0] or 0
        for line in shown_lines(data):
            found = self._mark(line.text, line.stamp)
            if found is None:
                continue
            mark, rank = found
            rank = rank if rank is not None else line.rank if line.rank is not None else of_the_file
            ranks.add(rank)
            marks.setdefault(rank, []).append(mark)
        if not marks:
            raise UnreadableError(f"{path}: no line is as the pattern says: {self._pattern!r}")
        logs = _logs(path, dict(sorted(marks.items())), len(data))
        return replace(logs[0], more=tuple(logs[1:]))

    def _mark(self, text: bytes, stamp: Stamp | None) -> tuple[_Mark, int | None] | None:
        found = self._line.match(text)
        if found is None:
            return None
        parts = found.groupdict()
        if "time" in parts:
            stamp = read_moment(parts["time"])
            if stamp is None:
                return None
        number = {name: int(parts[name]) for name in ("rank", "epoch", "step") if name in parts}
        seconds = float(parts["seconds"]) if "seconds" in parts else None
        mark = _Mark(stamp, number.get("epoch"), number.get("step"), seconds)
        return mark, number.get("rank")


def _compiled(pattern: str) -> re.Pattern[bytes]:
    *parts, last = _FIELD.split(pattern)
    names = [name for name in parts[1::2] if name]
    unknown = [name for name in names if name not in _FIELDS]
    if unknown or len(set(names)) < len(names):
        what = f"{{{unknown[0]}}} is no field" if unknown else "a field stands there twice"
        known = ", ".join(f"{{{name}}}" for name in _FIELDS)
        raise UsageError(f"{PREFIX}{pattern}: {what}; there are {known} and {{}} for anything")
    if not {"epoch", "step"} & set(names):
        raise UsageError(f"{PREFIX}{pattern}: a pattern needs {{epoch}} or {{step}}")
    texts = [*parts[0::2], last]
    made = _literal(texts[0])
    for name, text in zip(parts[1::2], texts[1:], strict=True):
        if name:
            made += _PADDING[name] + f"(?P<{name}>{_FIELDS[name]})" + _literal(text)
        elif text:
            # What was skipped is not tried again: any line takes one pass.
            made += f"(?>.*?{_literal(text)})"
        elif parts[-1] or parts[1::2].count(name) > 1:
            raise UsageError(f"{PREFIX}{pattern}: text has to follow {{}}, to know where it ends")
    return re.compile(made.encode(), re.DOTALL)


def _literal(text: str) -> str:
    return re.sub(r"(?:\\\s|\s)+", r"\\s+", re.escape(text))


def _logs(path: str, marks: dict[int, list[_Mark]], size: int) -> list[Parsed]:
    zero = min(
        (mark.stamp.ns for own in marks.values() for mark in own if mark.stamp is not None),
        default=0,
    )
    numbers = [mark.epoch for own in marks.values() for mark in own if mark.epoch is not None]
    base = 1 if numbers and min(numbers) == 1 else 0
    logs: list[Parsed] = []
    for rank, own in marks.items():
        told = _told(own, zero, base)
        if told.epochs and max(epoch.end for epoch in told.epochs) > _LATEST_NS:
            raise UnreadableError(
                f"{path}: epochs that take a century: what the pattern calls {{seconds}} are none"
            )
        problems = [] if told.epochs or told.step_ms is not None else [Problem(path, _NO_TIMES)]
        logs.append(
            epochs_log(
                path,
                rank=rank,
                facts=_facts(own, told, zero, len(marks)),
                epochs=told.epochs,
                # Nothing says whether more was meant to come.
                ended=False,
                size=0 if logs else size,
                problems=problems,
            )
        )
    return logs


_NO_TIMES = "the pattern's lines tell no times: they carry no stamps, or there is one of them only"


def _told(marks: Sequence[_Mark], zero: int, base: int) -> _Told:
    told = _Told()
    if any(mark.epoch is not None and mark.seconds is not None for mark in marks):
        _epochs_as_printed(told, marks, zero, base)
    else:
        _epochs_between_lines(told, marks, zero, base)
    _steps(told, marks)
    return told


def _epochs_as_printed(told: _Told, marks: Sequence[_Mark], zero: int, base: int) -> None:
    end = 0
    for mark in marks:
        if mark.epoch is None or mark.seconds is None:
            continue
        took = round(mark.seconds * 1e9)
        end = end + took if mark.stamp is None else mark.stamp.ns - zero
        told.epochs.append(Epoch(mark.epoch - base, end - took, end))
    told.half_ms = 0.5 if any((mark.seconds or 0) % 1 for mark in marks) else 500.0


def _epochs_between_lines(told: _Told, marks: Sequence[_Mark], zero: int, base: int) -> None:
    """From an epoch's first line to the next one's; the last epoch's end is not known."""
    firsts: list[tuple[int, Stamp]] = []
    for mark in marks:
        if mark.epoch is not None and mark.stamp is not None:
            if firsts and firsts[-1][0] == mark.epoch:
                continue
            firsts.append((mark.epoch, mark.stamp))
    for (number, begin), (after, end) in pairwise(firsts):
        if after > number and end.ns >= begin.ns:
            told.epochs.append(Epoch(number - base, begin.ns - zero, end.ns - zero))
            # Both stamps are rounded down: the difference is wrong by less than one of them either way.
            told.half_ms = max(told.half_ms, max(begin.resolution_ns, end.resolution_ns) / 1e6)


def _steps(told: _Told, marks: Sequence[_Mark]) -> None:
    seconds = [m.seconds for m in marks if m.seconds is not None and m.epoch is None]
    if seconds:
        told.step_ms = 1e3 * sum(seconds) / len(seconds)
        told.step_half_ms = 0.5 if any(one % 1 for one in seconds) else 500.0
        return
    time = steps = 0
    stepped = [(m.step, m.stamp) for m in marks if m.step is not None and m.stamp is not None]
    for (before, begin), (after, end) in pairwise(stepped):
        if after > before and end.ns >= begin.ns:
            time += end.ns - begin.ns
            steps += after - before
    # Only where steps begin anew, or a clock was set, there are two stamps more to be wrong.
    pieces = 1 + sum(b <= a or t.ns < s.ns for (a, s), (b, t) in pairwise(stepped))
    wrong = max((stamp.resolution_ns for _, stamp in stepped), default=0) * pieces
    if steps:
        told.step_ms, told.step_half_ms = time / steps / 1e6, wrong / steps / 1e6


def _facts(marks: Sequence[_Mark], told: _Told, zero: int, ranks: int) -> dict[str, Any]:
    facts: dict[str, Any] = {"known_from": KNOWN_FROM, "precision": _precision(told)}
    if told.epochs:
        facts |= {
            "epoch_precision_ms": told.half_ms,
            "first_epoch": min(epoch.number for epoch in told.epochs),
        }
    if told.step_ms is not None:
        facts |= {"step_ms": told.step_ms, "step_precision_ms": told.step_half_ms}
    if ranks > 1:
        facts["size"] = ranks
    stamps = [mark.stamp for mark in marks if mark.stamp is not None]
    return facts | clock_facts(stamps[0] if stamps else None, zero)


def _precision(told: _Told) -> str:
    if told.epochs:
        return f"epochs, to {rounded_to(told.half_ms)}"
    if told.step_ms is not None:
        return f"a mean over steps, to {rounded_to(told.step_half_ms)}"
    return "nothing of times"
