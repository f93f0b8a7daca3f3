"""Time the reading of what launchers print, against one bare ``bytes.splitlines``: the slowest
kind; and logs whose every line matches a user's pattern, with and without a launcher's label, or is one
of MXNet's Speedometer.

``parsers.py`` prints more details: each part of the work.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from figures import Figure, share_of

from parsers import KINDS, printed, whole
from stallscope.parsers.keras_output import KerasOutputParser
from stallscope.parsers.line_pattern import LinePatternParser
from stallscope.parsers.printed_steps.mxnet_speedometer import MxnetSpeedometerParser

_LEAST_SPEED = 50
# One in so many lines has its own time and step.
_PATTERN_LINES = 36_000
LABEL, LINE, RANKS = b"[%d]<stdout>:", b"step %d of %d, loss 2.2800, 829 samples\n", 16
_PATTERN = "{time} {}epoch={epoch} step={step}"
_OWN_LINE = (
    "2026-11-21 {clock},{milliseconds:03} INFO train: epoch={epoch} step={step} loss=0.2174\n"
)
#: The launcher's label, a pattern, and a line that matches it.
_LABELLED = (
    ("[1,{rank}]<stdout>:", _PATTERN, _OWN_LINE),
    ("Sat Nov 21 {clock} 2026[{rank}]<stdout>:", "{}epoch={epoch} step={step}", _OWN_LINE),
    ("{rank:2}: ", "{}epoch={epoch} step={step}", _OWN_LINE),
    ("", "epoch {epoch} took {seconds}", "epoch {step} took {epoch}.{milliseconds:03} s\n"),
    (
        "[1,{rank}]<stdout>:",
        "epoch {epoch} took {seconds}",
        "epoch {step} took {epoch}.{milliseconds:03} s\n",
    ),
)
_LINES_PER_EPOCH = 1000
# Of a rank of many, behind its label: the lines of an epoch, and its last one.
_NODE = "[1,{rank}]<stdout>:2026-11-21 {clock},{milliseconds:03} Node[{rank}] Epoch[{epoch}] "
_SPEEDOMETER = (
    _NODE + "Batch [{step}]\tSpeed: 1284.10 samples/sec\taccuracy=0.4009\n",
    _NODE + "Time cost=61.400\n",
)


def figures(quick: bool) -> list[Figure]:
    data = printed(LABEL, LINE, (4 if quick else 40) * 1_000_000, RANKS)
    own, bare = seconds(lambda: read(data)), seconds(data.splitlines)
    name = f"Keras's epochs in {len(data) / 1e6:.0f} MB of horovodrun's output"
    return [
        share_of(name, own, "s", "bytes.splitlines", bare),
        slowest(quick),
        of_a_pattern(quick),
        of_labelled_patterns(quick),
        of_a_speedometer(quick),
    ]


def slowest(quick: bool) -> Figure:
    """Return the kind of output that is read slowest, and its speed."""
    texts = {
        kind: printed(label, line, (4 if quick else 20) * 1_000_000, RANKS)
        for kind, label, line in KINDS
    }
    kind, speed = slowest_of({kind: speed_in(whole, data) for kind, data in texts.items()})
    return _fast_enough(f"a run from the slowest of {len(KINDS)} kinds of output, {kind}", speed)


def slowest_of(kinds: dict[str, Callable[[], float]]) -> tuple[str, float]:
    """Return the slowest, timed again: one of many may have been measured at a bad moment."""
    speeds = {kind: speed() for kind, speed in kinds.items()}
    again: set[str] = set()
    while (kind := min(speeds, key=speeds.__getitem__)) not in again:
        again.add(kind)
        speeds[kind] = max(speeds[kind], kinds[kind]())
    return kind, speeds[kind]


def speed_in(work: Callable[[bytes], object], data: bytes) -> Callable[[], float]:
    """Return a function that measures the MB/s at which a text is read."""
    return lambda: len(data) / seconds(lambda: work(data)) / 1e6


def of_a_pattern(quick: bool) -> Figure:
    """Measure how fast a run is read from a log of a pattern, without a launcher."""
    return _fast_enough(f"a run from {_PATTERN}", speed_of("", _PATTERN, _OWN_LINE, quick))


def of_labelled_patterns(quick: bool) -> Figure:
    """Return the kind of such logs that is read slowest, and its speed."""
    kind, speed = slowest_of(
        {
            f"{label}{pattern}": lambda one=(label, pattern, line): speed_of(*one, quick)
            for label, pattern, line in _LABELLED
        }
    )
    return _fast_enough(
        f"a run from the slowest of {len(_LABELLED)} kinds of lines of patterns, {kind}", speed
    )


def of_a_speedometer(quick: bool) -> Figure:
    """Measure how fast a run is read from what MXNet's Speedometer logs on many ranks."""
    data = _repeated(*_SPEEDOMETER, quick=quick)
    speed = speed_in(lambda text: whole(text, MxnetSpeedometerParser()), data)()
    return _fast_enough("a run from MXNet's Speedometer behind labels", speed)


def speed_of(label: str, pattern: str, line: str, quick: bool) -> float:
    """Return the MB/s at which a run is read from lines of a pattern."""
    data = _repeated(label + line, label + line, quick=quick)
    return speed_in(lambda text: whole(text, LinePatternParser(pattern)), data)()


def _repeated(line: str, last: str, *, quick: bool) -> bytes:
    """Make about 20 MB of lines, the last one of each epoch another one; 4 MB if quick."""
    lines = []
    for number in range(_PATTERN_LINES):
        second, tenth = divmod(number, 10)
        minutes, seconds_of_minute = divmod(second, 60)
        hours, minutes = divmod(minutes, 60)
        values = {
            "clock": f"{hours:02}:{minutes:02}:{seconds_of_minute:02}",
            "milliseconds": tenth * 100,
            "epoch": number // _LINES_PER_EPOCH + 1,
            "step": number,
            "rank": number % RANKS,
        }
        ends_epoch = number % _LINES_PER_EPOCH >= _LINES_PER_EPOCH - RANKS
        lines.append((last if ends_epoch else line).format(**values))
    once = "".join(lines).encode()
    return once * max((4 if quick else 20) * 1_000_000 // len(once), 1)


def _fast_enough(name: str, speed: float) -> Figure:
    return Figure(
        name,
        speed,
        "MB/s",
        target=f"at least {_LEAST_SPEED} MB/s",
        met=speed >= _LEAST_SPEED,
    )


def read(data: bytes) -> None:
    KerasOutputParser().parse("printed", data)


def seconds(work: Callable[[], object]) -> float:
    """Return the faster of two runs' seconds."""
    times = []
    for _ in range(2):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return min(times)
