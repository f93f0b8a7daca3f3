"""The output of Keras while it fits: one line per epoch, with the epoch's time to the second.

    Epoch 3/5
    78/78 [==============================] - 17s 195ms/step - loss: 1.91 - val_loss: 2.01     verbose=1
    78/78 ━━━━━━━━━━━━━━━━━━━━ 17s 195ms/step - loss: 1.91 - val_loss: 2.01        verbose=1, Keras 3
    78/78 - 17s - loss: 1.91 - 17s/epoch - 218ms/step                                         verbose=2
    78/78 - 17s - 218ms/step - loss: 1.91                                          verbose=2, Keras 3
     - 17s - loss: 1.91                                              verbose=2 before TensorFlow 2.0

Updates of a bar in progress end in an ETA, and are overwritten. The first line is printed only for
several epochs (from TensorFlow 2.2 on), and ``evaluate`` prints the same bar: after an epoch it does
not count as one. If no epoch is announced, bars with as many batches as the first one count.

Times are rounded. The time includes validation. With verbose=1 ``ms/step`` excludes the first step,
which traces; with verbose=2 it is the epoch's time divided by its steps, and for few steps it is more
precise than the seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar, NamedTuple

from stallscope.errors import UnreadableError
from stallscope.run import Problem

from .base import Parsed, Parser
from .epochs_only import (
    Epoch,
    clock_facts,
    epochs_log,
    in_one_file,
    rounded_to,
    with_epochs,
)
from .keras_lines import EPOCH_LINES, is_in_progress, may_tell_epochs
from .launcher_output import Line, rank_lines
from .rank_names import rank_in
from .timestamps import Timestamp
from .world_size import FROM_LABELS

KNOWN_FROM = "what Keras printed"

_MS = {"s": 1000.0, "ms": 1.0, "us": 0.001}
_EPOCH = re.compile(r"(?<![\w./-])Epoch (\d{1,9})/(\d{1,9})\s*$")
_SAMPLES = re.compile(r"\bTrain on (\d{1,12}) samples\b")
_OF_ALL = r"(?<![\d/.])(?P<count>\d{1,12})/(?P=count) "
_SECONDS = r"(?P<seconds>\d{1,9})s(?![\w/])"
_EACH = r"(?P<each>\d{1,9})(?P<unit>s|ms|us)/(?P<of>step|sample)\b"
_BAR = re.compile(rf"{_OF_ALL}(?:\[=+\] -|[━=]+) {_SECONDS}(?: {_EACH})?")
_LINE = re.compile(rf"{_OF_ALL}- {_SECONDS}(?: - {_EACH})?(?= - |\s*$)")
_OLD_LINE = re.compile(rf"(?:^|\s)- {_SECONDS} - \w+: ")
_AT_THE_END = re.compile(rf" - (?P<epoch>\d{{1,9}})(?P<epoch_unit>s|ms|us)/epoch - {_EACH}\s*$")
_LOSS = " - loss: "
_VALIDATION = " - val_"
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# A bar in progress: its step, of how many, and the remaining time.
_PART = re.compile(
    r"(?<![\d/.])(?P<at>\d{1,12})/(?P<of>\d{1,12}|Unknown) "
    r"(?:\[[=>.]{10,}\] - |[━=]{10,} |-? ?)(?:ETA: )?(?P<eta>\d{1,4}(?::\d\d){0,2})(?P<s>s?)"
)
# A bar in progress, or a finished one.
_BAR_OR_LINE = re.compile(
    rf"\d/\d+ (?:\[[=>.]{{10,}}\] - (?:ETA: )?\d|[━=]{{10,}} \d)|\d/Unknown -? ?\d|{_LINE.pattern}"
)
# Later times after the first epoch are damage.
_LATEST_NS = 2**62
# The clocks of timestamped lines have whole seconds.
_STAMP_NS = 1_500_000_000
_STREAMS = ("", "stdout", "stderr", "stddiag")
# Stands for the rank where no launcher has labelled the lines.
_UNLABELLED = -1


class KerasOutputParser(Parser):
    name: ClassVar[str] = "keras-output"
    title: ClassVar[str] = "what Keras prints while it fits"
    suffix: ClassVar[str] = ".txt"
    has_steps: ClassVar[bool] = False
    certain: ClassVar[bool] = False

    def recognises(self, file_name: str, head: bytes) -> bool:
        announced = False
        for part in head.replace(b"\r", b"\n").split(b"\n"):
            if not may_tell_epochs(part):
                continue
            text = _plain(part)
            announced = announced or _EPOCH.search(text) is not None
            if _BAR_OR_LINE.search(text) and (announced or _LOSS in text):
                return True
            if announced and _OLD_LINE.search(text):
                return True
        return False

    def parse(self, path: str, data: bytes) -> Parsed:
        ranks: set[int] = set()
        outputs: dict[tuple[int | None, str], _Output] = {}
        # If each update of a bar became a line, the bar ends more than once.
        torn_apart = b"\r" not in data
        for line in rank_lines(data, only=EPOCH_LINES):
            key = (line.rank, line.stream)
            if line.rank is not None:
                ranks.add(line.rank)
            if key not in outputs:
                outputs[key] = _Output(torn_apart)
            if is_in_progress(line.text):
                outputs[key].last_bar = line.text
            else:
                outputs[key].add(line)
        found = _one_stream_per_rank(outputs)
        if not found:
            raise UnreadableError(
                f"{path}: this looks like what Keras prints, and no epoch has ended in it"
            )
        logs, epochs = zip(*_logs(path, found, ranks), strict=True)
        return in_one_file(with_epochs(logs, epochs), len(data))


class _Times(NamedTuple):
    """Milliseconds, and half of the unit that they are rounded to."""

    ms: float
    half: float
    #: Per step, where that is distinguished from the epoch's time.
    step_ms: float | None = None
    step_half: float = 0.0


@dataclass(frozen=True)
class _Printed:
    """One epoch's line."""

    fit: int
    epoch: int
    #: How many epochs the fit was to have.
    of: int | None
    #: Steps, or samples in old versions.
    count: int | None
    of_samples: bool
    times: _Times
    #: Whether the line contains values of a validation.
    validated: bool
    timestamp: Timestamp | None


@dataclass
class _Output:
    """The lines of one rank."""

    torn_apart: bool

    def __post_init__(self) -> None:
        self.epochs: list[_Printed] = []
        self._announced: tuple[int, int] | None = None
        self._ever_announced = False
        self._samples: int | None = None
        self._provisional = False
        #: The last line that may be a bar in progress.
        self.last_bar = b""

    @property
    def announced(self) -> bool:
        """Whether epochs were announced: otherwise bars of ``evaluate`` may be among them."""
        return self._ever_announced

    def add(self, line: Line) -> None:
        text = _plain(line.text)
        epoch = _EPOCH.search(text) if "Epoch " in text else None
        if epoch is not None:
            self._announced = (int(epoch[1]), int(epoch[2]))
            self._ever_announced = True
            self.last_bar = b""
            return
        samples = _SAMPLES.search(text) if "Train on " in text else None
        if samples is not None:
            self._samples = int(samples[1])
            return
        found = _BAR.search(text) or _LINE.search(text)
        if found is None and self._announced is not None:
            found = _OLD_LINE.search(text)
        if found is None:
            self.last_bar = line.text
        else:
            self._end(text, found, line)

    def _end(self, text: str, found: re.Match[str], line: Line) -> None:
        parts: dict[str, str | None] = {"count": None, "each": None, **found.groupdict()}
        count = None if parts["count"] is None else int(parts["count"])
        again = self._provisional and self.epochs[-1].count == count and self._announced is None
        if again:
            last = self.epochs.pop()
            place = (last.fit, last.epoch, last.of)
        elif self._announced is not None:
            place = self._announced_place(*self._announced)
        elif not self._ever_announced and _LOSS in text and self._as_the_first(count):
            place = (0, len(self.epochs), None)
        else:
            return
        self._announced = None
        bar = found.re is _BAR
        self._provisional = self.torn_apart and bar and parts["seconds"] == "0" and not again
        of_samples = parts.get("of") == "sample" or (count is not None and count == self._samples)
        times = _times(text, parts, None if of_samples else count, bar)
        validated = _VALIDATION in text
        self.epochs.append(_Printed(*place, count, of_samples, times, validated, line.timestamp))

    def truncated(self) -> str | None:
        """Describe where an epoch broke off, None if none did."""
        found = _PART.search(_plain(self.last_bar))
        if self._announced is None or found is None:
            return None
        of = "an unknown number" if found["of"] == "Unknown" else found["of"]
        where = f"epoch {self._announced[0]} broke off at step {found['at']} of {of}"
        # Without a length, Keras prints the time so far instead.
        knows_eta = found["of"] != "Unknown"
        return where + (
            f", with {found['eta']}{found['s']} to go as Keras saw it" if knows_eta else ""
        )

    def _announced_place(self, number: int, of: int) -> tuple[int, int, int | None]:
        """Return the fit, the epoch and the planned number of epochs; a loop around ``fit`` is one
        fit.
        """
        if not self.epochs:
            return 0, number - 1, of
        last = self.epochs[-1]
        if of == last.of == 1:
            return last.fit, last.epoch + 1, of
        goes_on = of == last.of and number - 1 > last.epoch
        return last.fit + (not goes_on), number - 1, of

    def _as_the_first(self, count: int | None) -> bool:
        return not self.epochs or self.epochs[0].count == count


def _times(text: str, parts: dict[str, str | None], steps: int | None, bar: bool) -> _Times:
    """Return the finest time of a line's epoch; ``steps`` is the number of steps, if known."""
    ms, half = 1000.0 * int(parts["seconds"] or 0), 500.0
    at_the_end = None if bar else _AT_THE_END.search(text)
    if at_the_end is not None:
        parts = at_the_end.groupdict()
        unit = _MS[parts["epoch_unit"] or "s"]
        ms, half = int(parts["epoch"] or 0) * unit, unit / 2
    if parts["each"] is None or not steps:
        return _Times(ms, half)
    unit = _MS[parts["unit"] or "s"]
    each = int(parts["each"]) * unit
    # Whole seconds per step are coarser than the epoch's seconds over its steps.
    finer = unit / 2 <= half / steps
    if not bar and steps * unit / 2 < half:
        ms, half = steps * each, steps * unit / 2
    return _Times(ms, half, each, unit / 2) if finer else _Times(ms, half)


def _one_stream_per_rank(outputs: dict[tuple[int | None, str], _Output]) -> dict[int, _Output]:
    """Return each rank's stream with most epochs, and drop unlabelled lines beside labelled ones."""
    found: dict[int, _Output] = {}
    for (rank, _), output in sorted(outputs.items(), key=lambda item: _STREAMS.index(item[0][1])):
        own = _UNLABELLED if rank is None else rank
        if len(output.epochs) > (len(found[own].epochs) if own in found else 0):
            found[own] = output
    if len(found) > 1:
        found.pop(_UNLABELLED, None)
    return dict(sorted(found.items()))


def _logs(
    path: str, found: dict[int, _Output], ranks: Iterable[int]
) -> Iterator[tuple[Parsed, list[Epoch]]]:
    """Make one log for each fit of each rank, still without its epochs, and return both."""
    timed = all(_timestamps_agree(output.epochs) for output in found.values())
    known = max(ranks, default=-1) + 1
    begins = {rank: _begins(output.epochs, timed) for rank, output in found.items()}
    first = min(own[0] for own in begins.values())
    for rank, output in found.items():
        problems = [] if output.announced else [Problem(path, _NOT_ANNOUNCED)]
        truncated = output.truncated()
        if truncated is not None:
            whose = f"rank {rank}: " if len(found) > 1 else ""
            problems.append(Problem(path, whose + truncated))
        rows = zip(output.epochs, begins[rank], strict=True)
        for fit, own in groupby(rows, key=lambda row: row[0].fit):
            epochs = [(epoch, begin - first) for epoch, begin in own]
            facts = _facts([epoch for epoch, _ in epochs], timed, first)
            if known > 1:
                facts |= {"size": known, "size_from": FROM_LABELS}
            log = epochs_log(
                path,
                rank=(rank_in(path)[0] or 0) if rank == _UNLABELLED else rank,
                part=fit,
                facts=facts,
                epochs=(),
                ended=_all_there(epochs[-1][0]),
                problems=problems,
            )
            yield log, _rows(path, epochs)
            problems = []


_NOT_ANNOUNCED = (
    "bars that no line 'Epoch 1/1' announces are taken for epochs; evaluate prints the same"
)


def _facts(epochs: Sequence[_Printed], timed: bool, first: int) -> dict[str, object]:
    half = max(epoch.times.half for epoch in epochs)
    facts: dict[str, object] = {
        "framework": "keras",
        "known_from": KNOWN_FROM,
        "precision": f"epochs, to {rounded_to(2 * half)}",
        "epoch_precision_ms": half,
        "first_epoch": epochs[0].epoch,
        "validation_in_epochs": _validated(epochs),
    } | clock_facts(epochs[0].timestamp if timed else None, first)
    counts = {epoch.count for epoch in epochs}
    if len(counts) == 1 and epochs[0].count is not None:
        of = "samples" if epochs[0].of_samples else "steps"
        facts[f"{of}_per_epoch"] = epochs[0].count
    return facts | _step_facts(epochs[1:] or epochs)


def _validated(epochs: Sequence[_Printed]) -> bool | None:
    """Whether the epochs' times include a validation; None where some do."""
    found = {epoch.validated for epoch in epochs}
    return found.pop() if len(found) == 1 else None


def _step_facts(epochs: Sequence[_Printed]) -> dict[str, object]:
    """Return the mean over epochs of the printed time per step."""
    timed = [
        (epoch.times.step_ms, epoch.times.step_half, epoch.count)
        for epoch in epochs
        if epoch.times.step_ms is not None and epoch.count
    ]
    if not timed:
        return {}
    steps = sum(count for _, _, count in timed)
    return {
        "step_ms": sum(ms * count for ms, _, count in timed) / steps,
        "step_precision_ms": max(half for _, half, _ in timed),
    }


def _rows(path: str, epochs: Sequence[tuple[_Printed, int]]) -> list[Epoch]:
    rows = [Epoch(epoch.epoch, begin, begin + _ns(epoch)) for epoch, begin in epochs]
    if max(row.end for row in rows) > _LATEST_NS:
        raise UnreadableError(f"{path}: these epochs take a century: not what Keras prints")
    return rows


def _begins(epochs: Sequence[_Printed], timed: bool) -> list[int]:
    """Return the starts of epochs: timestamps of their ends less their durations, or one after
    another.
    """
    begins, end = [], 0
    for epoch in epochs:
        if timed and epoch.timestamp is not None:
            begins.append(epoch.timestamp.ns - _ns(epoch))
        else:
            begins.append(end)
            end += _ns(epoch)
    return begins


def _timestamps_agree(epochs: Sequence[_Printed]) -> bool:
    """Whether every epoch has a timestamp, and none ends sooner after another than it took.

    Buffered output gets the time at which it was read, and clocks are set.
    """
    stamps = [epoch.timestamp for epoch in epochs]
    if None in stamps or len({timestamp.zone_known for timestamp in stamps if timestamp}) > 1:
        return False
    ends = [timestamp.ns for timestamp in stamps if timestamp]
    return all(
        end - before > _ns(epoch) - epoch.times.half * 1e6 - _STAMP_NS
        for before, end, epoch in zip(ends, ends[1:], epochs[1:], strict=False)
    )


def _all_there(last: _Printed) -> bool:
    """Whether the last epoch that was meant has ended; early stopping looks like a kill."""
    return last.of is None or last.epoch + 1 == last.of


def _ns(epoch: _Printed) -> int:
    return round(epoch.times.ms * 1e6)


def _plain(text: bytes) -> str:
    plain = text.decode("utf-8", "replace")
    return _ESCAPES.sub("", plain) if "\x1b" in plain else plain
