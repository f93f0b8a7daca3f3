"""Read the lines that Keras prints about epochs.

Among millions of other lines a ``LineFilter`` finds Keras's by short texts, so that regular expressions
read only a few.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from ..launcher_output import Line, LineFilter, rank_lines
from ..lines.timestamps import Timestamp

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
# A bar in progress: its step, the number of steps, and the remaining time.
_PART = re.compile(
    r"(?<![\d/.])(?P<at>\d{1,12})/(?P<of>\d{1,12}|Unknown) "
    r"(?:\[[=>.]{10,}\] - |[━=]{10,} |-? ?)(?:ETA: )?(?P<eta>\d{1,4}(?::\d\d){0,2})(?P<s>s?)"
)
# A bar in progress, or a finished one.
_BAR_OR_LINE = re.compile(
    rf"\d/\d+ (?:\[[=>.]{{10,}}\] - (?:ETA: )?\d|[━=]{{10,}} \d)|\d/Unknown -? ?\d|{_LINE.pattern}"
)
_STREAMS = ("", "stdout", "stderr", "stddiag")

# Every line of interest contains one of these.
_OF_INTEREST = re.compile(
    rb"s/(?:step|sample|epoch)|\ds - |\ds\s*$|Epoch \d+/|Train on \d|ETA: \d|/Unknown "
)
_IN_PROGRESS = re.compile(rb" - ETA: \d|\d/Unknown ")
# Updates of a bar have the remaining time, or the rest of the bar in Keras 3's colours.
_UPDATES = (rb" - ETA: \d", rb"\d/Unknown ", b"\x1b[37m\xe2\x94\x81")
# The next epoch, or a finished bar, where the bar's newline is missing.
_NOT_UPDATES = (rb"Epoch \d", b"\x1b[37m\x1b[0m", b"\xe2\x94\x81 ", b"=] - ")


def has_epochs(head: bytes) -> bool:
    """Whether the start of a file contains an epoch of Keras."""
    announced = False
    for part in head.replace(b"\r", b"\n").split(b"\n"):
        if not _may_tell_epochs(part):
            continue
        text = _plain(part)
        announced = announced or _EPOCH.search(text) is not None
        if _BAR_OR_LINE.search(text) and (announced or _LOSS in text):
            return True
        if announced and _OLD_LINE.search(text):
            return True
    return False


def outputs_by_rank(data: bytes) -> tuple[dict[int | None, KerasOutput], set[int]]:
    """Read the epochs in a launcher's output.

    Returns:
        What each rank has printed (None: lines without a label), and the ranks of all labels.
    """
    ranks: set[int] = set()
    outputs: dict[tuple[int | None, str], KerasOutput] = {}
    # Where a logger has made each update of a bar a line, the bar ends more than once.
    updates_are_lines = b"\r" not in data
    for line in rank_lines(data, only=_FILTER):
        key = (line.rank, line.stream)
        if line.rank is not None:
            ranks.add(line.rank)
        if key not in outputs:
            outputs[key] = KerasOutput(updates_are_lines)
        if _is_in_progress(line.text):
            outputs[key].last_bar = line.text
        else:
            outputs[key].add(line)
    return _one_stream_per_rank(outputs), ranks


def _is_in_progress(line: bytes) -> bool:
    """Whether a line is an update of a bar in progress."""
    return (b"ETA" in line or b"Unknown" in line) and _IN_PROGRESS.search(line) is not None


def _may_tell_epochs(line: bytes) -> bool:
    """Whether a line may be about epochs, by texts that are found faster than regular expressions."""
    return (
        b"s - " in line
        or b"poch " in line
        or b"/Unknown" in line
        or b"s/" in line
        or b"ETA" in line
        or b"==" in line
        or b"] - " in line
        or b"\x1b" in line
        or b"\xe2\x94\x81" in line
        or line.rstrip().endswith(b"s")
    )


def _may_matter(line: bytes) -> bool:
    likely = _may_tell_epochs(line) or b"Train on" in line
    return likely and _OF_INTEREST.search(line) is not None


_FILTER = LineFilter(
    (
        b"s/step",
        b"s/sample",
        b"s/epoch",
        rb"\ds - ",
        b"\\ds\n",
        b"\\ds\r",
        rb"Epoch \d",
        b"/Unknown ",
        rb"Train on \d",
    ),
    _may_matter,
    updates=_UPDATES,
    not_updates=_NOT_UPDATES,
)


class EpochTimes(NamedTuple):
    """The time of an epoch, milliseconds, and half of the unit that it is rounded to."""

    ms: float
    half: float
    #: Per step, if that is printed as precisely.
    step_ms: float | None = None
    step_half: float = 0.0


@dataclass(frozen=True)
class PrintedEpoch:
    """One epoch's line."""

    fit: int
    epoch: int
    #: The planned number of epochs of the fit.
    of: int | None
    #: Steps, or samples in old versions.
    count: int | None
    of_samples: bool
    times: EpochTimes
    #: Whether the line contains values of a validation.
    validated: bool
    timestamp: Timestamp | None


class KerasOutput:
    """The epochs that one rank has printed.

    Args:
        updates_are_lines: whether each update of a bar is a line.
    """

    def __init__(self, updates_are_lines: bool) -> None:
        self._updates_are_lines = updates_are_lines
        self.epochs: list[PrintedEpoch] = []
        self._announced: tuple[int, int] | None = None
        #: Whether epochs were ever announced: otherwise bars of ``evaluate`` may be among them.
        self.announces = False
        self._samples: int | None = None
        self._provisional = False
        #: The last line that may be a bar in progress.
        self.last_bar = b""

    def add(self, line: Line) -> None:
        """Add a line that is not an update of a bar in progress."""
        text = _plain(line.text)
        epoch = _EPOCH.search(text) if "Epoch " in text else None
        if epoch is not None:
            self._announced = (int(epoch[1]), int(epoch[2]))
            self.announces = True
            self.last_bar = b""
            return
        samples = _SAMPLES.search(text) if "Train on " in text else None
        if samples is not None:
            self._samples = int(samples[1])
            return
        match = _BAR.search(text) or _LINE.search(text)
        if match is None and self._announced is not None:
            match = _OLD_LINE.search(text)
        if match is None:
            self.last_bar = line.text
        else:
            self._end(text, match, line)

    def _end(self, text: str, match: re.Match[str], line: Line) -> None:
        parts: dict[str, str | None] = {"count": None, "each": None, **match.groupdict()}
        count = None if parts["count"] is None else int(parts["count"])
        again = self._provisional and self.epochs[-1].count == count and self._announced is None
        if again:
            last = self.epochs.pop()
            place = (last.fit, last.epoch, last.of)
        elif self._announced is not None:
            place = self._announced_place(*self._announced)
        elif not self.announces and _LOSS in text and self._is_like_the_first(count):
            place = (0, len(self.epochs), None)
        else:
            return
        self._announced = None
        bar = match.re is _BAR
        self._provisional = (
            self._updates_are_lines and bar and parts["seconds"] == "0" and not again
        )
        of_samples = parts.get("of") == "sample" or (count is not None and count == self._samples)
        times = _times(text, parts, None if of_samples else count, bar)
        validated = _VALIDATION in text
        self.epochs.append(
            PrintedEpoch(*place, count, of_samples, times, validated, line.timestamp)
        )

    def truncated(self) -> str | None:
        """Describe where an epoch broke off; None if none did."""
        match = _PART.search(_plain(self.last_bar))
        if self._announced is None or match is None:
            return None
        of = "an unknown number" if match["of"] == "Unknown" else match["of"]
        where = f"epoch {self._announced[0]} broke off at step {match['at']} of {of}"
        # Without a length, Keras prints the time so far instead.
        knows_eta = match["of"] != "Unknown"
        return where + (
            f", with {match['eta']}{match['s']} to go as Keras saw it" if knows_eta else ""
        )

    def _announced_place(self, number: int, of: int) -> tuple[int, int, int | None]:
        """Return the fit, the epoch and the planned number of epochs.

        A loop that calls ``fit`` for one epoch each is one fit.
        """
        if not self.epochs:
            return 0, number - 1, of
        last = self.epochs[-1]
        if of == last.of == 1:
            return last.fit, last.epoch + 1, of
        goes_on = of == last.of and number - 1 > last.epoch
        return last.fit + (not goes_on), number - 1, of

    def _is_like_the_first(self, count: int | None) -> bool:
        return not self.epochs or self.epochs[0].count == count


def _times(text: str, parts: dict[str, str | None], steps: int | None, bar: bool) -> EpochTimes:
    """Return the finest time of a line's epoch; ``steps`` is the number of steps, if known."""
    ms, half = 1000.0 * int(parts["seconds"] or 0), 500.0
    at_the_end = None if bar else _AT_THE_END.search(text)
    if at_the_end is not None:
        parts = at_the_end.groupdict()
        unit = _MS[parts["epoch_unit"] or "s"]
        ms, half = int(parts["epoch"] or 0) * unit, unit / 2
    if parts["each"] is None or not steps:
        return EpochTimes(ms, half)
    unit = _MS[parts["unit"] or "s"]
    each = int(parts["each"]) * unit
    # Whole seconds per step are coarser than the epoch's seconds over its steps.
    finer = unit / 2 <= half / steps
    if not bar and steps * unit / 2 < half:
        ms, half = steps * each, steps * unit / 2
    return EpochTimes(ms, half, each, unit / 2) if finer else EpochTimes(ms, half)


def _one_stream_per_rank(
    outputs: dict[tuple[int | None, str], KerasOutput],
) -> dict[int | None, KerasOutput]:
    """Return each rank's stream with the most epochs; labelled lines exclude unlabelled ones."""
    by_rank: dict[int | None, KerasOutput] = {}
    for (rank, _), output in sorted(outputs.items(), key=lambda item: _STREAMS.index(item[0][1])):
        if len(output.epochs) > (len(by_rank[rank].epochs) if rank in by_rank else 0):
            by_rank[rank] = output
    if len(by_rank) > 1:
        by_rank.pop(None, None)
    return dict(sorted(by_rank.items(), key=lambda item: item[0] or 0))


def _plain(text: bytes) -> str:
    plain = text.decode("utf-8", "replace")
    return _ESCAPES.sub("", plain) if "\x1b" in plain else plain
