"""Measure the CPU time of reading launchers' output, against one bare ``bytes.splitlines``.

Of many kinds of output, the slowest counts. Other logs have a million lines that match a user's
pattern, with and without a launcher's label, or lines of MXNet's Speedometer.

``printed_output.py`` prints more details: each part of the work.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from figures import Figure, share_of
from printed_output import KINDS, epochs, printed, seconds, whole

from stallscope.parsers.formats.line_pattern import LinePatternParser
from stallscope.parsers.registry import by_name

# Multiples of the CPU time of splitting the same text at its line ends.
_MOST_FOR_EPOCHS, _MOST_FOR_A_RUN = 4, 8
_LINES, _QUICK_LINES = 1_000_000, 50_000
# When the first line was printed, seconds since 1970, and how many follow in a second.
_START_S, _LINES_PER_SECOND = 1_795_219_200, 10
LABEL, LINE, RANKS = b"[%d]<stdout>:", b"step %d of %d, loss 2.2800, 829 samples\n", 16
_PATTERN = "{time} {}epoch={epoch} step={step}"
_OWN_LINE = "{date} {clock},{milliseconds:03} INFO train: epoch={epoch} step={step} loss=0.2174\n"
#: The launcher's label, a pattern, and a line that matches it.
_LABELLED = (
    ("[1,{rank}]<stdout>:", _PATTERN, _OWN_LINE),
    ("{day} {clock} 2026[{rank}]<stdout>:", "{}epoch={epoch} step={step}", _OWN_LINE),
    ("{rank:2}: ", "{}epoch={epoch} step={step}", _OWN_LINE),
    ("", "epoch {epoch} took {seconds}", "epoch {step} took {epoch}.{milliseconds:03} s\n"),
    (
        "[1,{rank}]<stdout>:",
        "epoch {epoch} took {seconds}",
        "epoch {step} took {epoch}.{milliseconds:03} s\n",
    ),
)
_LINES_PER_EPOCH = 1000
# The lines of an epoch of one rank, after its label, and the last one.
_NODE = "[1,{rank}]<stdout>:{date} {clock},{milliseconds:03} Node[{rank}] Epoch[{epoch}] "
_SPEEDOMETER = (
    _NODE + "Batch [{step}]\tSpeed: 1284.10 samples/sec\taccuracy=0.4009\n",
    _NODE + "Time cost=61.400\n",
)


class Times(NamedTuple):
    """CPU seconds of reading a text, and of splitting it at its line ends."""

    own_s: float
    split_s: float

    @property
    def ratio(self) -> float:
        return self.own_s / self.split_s


def figures(quick: bool) -> list[Figure]:
    data = printed(LABEL, LINE, (1 if quick else 40) * 1_000_000, RANKS)
    name = f"Keras's epochs in {len(data) / 1e6:.0f} MB of horovodrun's output"
    return [
        _share(name, measured(epochs, data), _MOST_FOR_EPOCHS),
        slowest(quick),
        pattern_figure(quick),
        labelled_patterns_figure(quick),
        speedometer_figure(quick),
    ]


def slowest(quick: bool) -> Figure:
    """Return the kind of output that is read slowest, and its time."""
    texts = {
        kind: printed(label, line, (1 if quick else 20) * 1_000_000, RANKS)
        for kind, label, line in KINDS
    }
    times = slowest_of(
        {kind: lambda data=data: measured(whole, data) for kind, data in texts.items()}
    )
    return _share(f"a run from the slowest of {len(KINDS)} kinds of output", times)


def slowest_of(kinds: dict[str, Callable[[], Times]]) -> Times:
    """Return the time of the slowest kind, measured twice: the first time may have been disturbed."""
    times = {kind: measure() for kind, measure in kinds.items()}
    again: set[str] = set()
    while (kind := max(times, key=lambda name: times[name].ratio)) not in again:
        again.add(kind)
        times[kind] = min(times[kind], kinds[kind](), key=lambda attempt: attempt.ratio)
    return times[kind]


def measured(work: Callable[[bytes], object], data: bytes) -> Times:
    """Measure some work on a text, and splitting the text."""
    return Times(seconds(lambda: work(data)), seconds(data.splitlines))


def pattern_figure(quick: bool) -> Figure:
    """Measure reading a run from a log of a pattern, without a launcher."""
    return _share(f"a run from {_PATTERN}", times_of("", _PATTERN, _OWN_LINE, quick))


def labelled_patterns_figure(quick: bool) -> Figure:
    """Return the kind of such logs that is read slowest, and its time."""
    times = slowest_of(
        {
            f"{label}{pattern}": lambda labelled=(label, pattern, line): times_of(*labelled, quick)
            for label, pattern, line in _LABELLED
        }
    )
    return _share(f"a run from the slowest of {len(_LABELLED)} kinds of lines of patterns", times)


def speedometer_figure(quick: bool) -> Figure:
    """Measure reading a run from the output of MXNet's Speedometer on many ranks."""
    data = _lines(*_SPEEDOMETER, quick=quick)
    times = measured(lambda text: whole(text, by_name("mxnet-speedometer")), data)
    return _share("a run from MXNet's Speedometer after labels", times)


def times_of(label: str, pattern: str, line: str, quick: bool) -> Times:
    """Measure reading a run from lines of a pattern."""
    data = _lines(label + line, label + line, quick=quick)
    return measured(lambda text: whole(text, LinePatternParser(pattern)), data)


def _lines(line: str, last: str, *, quick: bool) -> bytes:
    """Make a million lines (50,000 if quick); each rank's last line of an epoch is ``last``."""
    lines = []
    for number in range(_QUICK_LINES if quick else _LINES):
        second, tenth = divmod(number, _LINES_PER_SECOND)
        if tenth == 0:
            moment = time.gmtime(_START_S + second)
            date, day, clock = (
                time.strftime(form, moment) for form in ("%Y-%m-%d", "%a %b %d", "%H:%M:%S")
            )
        values = {
            "date": date,
            "day": day,
            "clock": clock,
            "milliseconds": tenth * 1000 // _LINES_PER_SECOND,
            "epoch": number // _LINES_PER_EPOCH + 1,
            "step": number,
            "rank": number % RANKS,
        }
        ends_epoch = number % _LINES_PER_EPOCH >= _LINES_PER_EPOCH - RANKS
        lines.append((last if ends_epoch else line).format(**values))
    return "".join(lines).encode()


def _share(name: str, times: Times, most: float = _MOST_FOR_A_RUN) -> Figure:
    return share_of(name, times.own_s, "s", "bytes.splitlines", times.split_s, most=most)
