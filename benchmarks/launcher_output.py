"""How fast what launchers print is read, against one bare ``bytes.splitlines``; the slowest kind; and
a log whose every line is as a user's pattern says.

``parsers.py`` prints more of it: each part of the work.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from figures import Figure, share_of

from parsers import KINDS, printed, whole
from stallscope.parsers.keras_output import KerasOutputParser
from stallscope.parsers.line_pattern import LinePatternParser

_LEAST_SPEED = 50
_PATTERN = "{time} {}epoch={epoch} step={step}"
# Of so many lines each is of a moment and a step of its own.
_PATTERN_LINES = 36_000
LABEL, LINE, RANKS = b"[%d]<stdout>:", b"step %d of %d, loss 2.2800, 829 samples\n", 16


def figures(quick: bool) -> list[Figure]:
    data = printed(LABEL, LINE, (4 if quick else 40) * 1_000_000, RANKS)
    own, bare = seconds(lambda: read(data)), seconds(data.splitlines)
    name = f"Keras's epochs in {len(data) / 1e6:.0f} MB of horovodrun's output"
    return [share_of(name, own, "s", "bytes.splitlines", bare), slowest(quick), of_a_pattern(quick)]


def slowest(quick: bool) -> Figure:
    """The kind of output that is read slowest, and how fast."""
    speeds = {}
    for kind, label, line in KINDS:
        data = printed(label, line, (4 if quick else 20) * 1_000_000, RANKS)
        speeds[kind] = len(data) / seconds(lambda data=data: whole(data)) / 1e6
    kind = min(speeds, key=speeds.__getitem__)
    return _fast_enough(
        f"a run from the slowest of {len(speeds)} kinds of output, {kind}", speeds[kind]
    )


def of_a_pattern(quick: bool) -> Figure:
    """How fast a run is read from a log of a pattern, without a launcher."""
    line = "2026-11-21 {:02}:{:02}:{:02},{:03} INFO train: epoch={} step={} loss=0.2174\n"
    lines = []
    for step in range(_PATTERN_LINES):
        seconds_of_day, tenth = divmod(step, 10)
        minutes, second = divmod(seconds_of_day, 60)
        clock = (*divmod(minutes, 60), second, tenth * 100)
        lines.append(line.format(*clock, step // 1000 + 1, step))
    once = "".join(lines).encode()
    data = once * max((4 if quick else 20) * 1_000_000 // len(once), 1)
    took = seconds(lambda: whole(data, LinePatternParser(_PATTERN)))
    return _fast_enough(f"a run from {_PATTERN}", len(data) / took / 1e6)


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
    """The faster one of two."""
    times = []
    for _ in range(2):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return min(times)
