"""Durations of so many steps, as TimeHistory of TensorFlow's official models logs them.

    TimeHistory: 12.34 seconds, 829.82 examples/second between steps 0 and 100
    BenchmarkMetric: {'global step':100, 'time_taken': 12.340000,'examples_per_second': 829.821717}

No epochs and no ranks: steps are counted over the job, examples over all ranks.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, NamedTuple

from stallscope.errors import UnreadableError

from .base import Parsed, Parser
from .epochs_only import epochs_log, in_one_file
from .launcher_output import LineFilter, rank_lines
from .rank_names import rank_in

KNOWN_FROM = "what TimeHistory logged"

_LINE = re.compile(
    rb"TimeHistory: (\d{1,9}(?:\.\d{1,9})?) seconds, (\d{1,12}(?:\.\d{1,9})?) examples/second "
    rb"between steps (\d{1,12}) and (\d{1,12})"
)
_OLD_LINE = re.compile(
    rb"BenchmarkMetric: \{'(?:global step|num_batches)': ?(\d{1,12}), ?'time_taken': ?"
    rb"(\d{1,9}(?:\.\d{1,9})?), ?'examples_per_second': ?(\d{1,12}(?:\.\d{1,9})?)"
)


_FILTER = LineFilter((b"TimeHistory: ", b"BenchmarkMetric: "))


class _Timing(NamedTuple):
    seconds: float
    examples_per_second: float
    first: int
    last: int


class TimeHistoryParser(Parser):
    name: ClassVar[str] = "time-history"
    title: ClassVar[str] = "what TimeHistory logs"
    suffix: ClassVar[str] = ".log"
    has_steps: ClassVar[bool] = False

    def recognises(self, file_name: str, head: bytes) -> bool:
        return _LINE.search(head) is not None or _OLD_LINE.search(head) is not None

    def parse(self, path: str, data: bytes) -> Parsed:
        ranks: dict[int | None, list[_Timing]] = {}
        for line in rank_lines(data, only=_FILTER):
            timings = ranks.get(line.rank, [])
            timing = _timing(line.text, timings[-1].last if timings else 0)
            if timing is not None:
                ranks.setdefault(line.rank, timings).append(timing)
        if not ranks:
            raise UnreadableError(f"{path}: TimeHistory has no steps with a duration")
        of_the_file = rank_in(path)[0] or 0
        logs = [
            epochs_log(
                path,
                rank=of_the_file if rank is None else rank,
                facts=_facts(timings),
                epochs=(),
                ended=False,
            )
            for rank, timings in sorted(ranks.items(), key=lambda item: item[0] or 0)
        ]
        return in_one_file(logs, len(data))


def _timing(text: bytes, before: int) -> _Timing | None:
    found = _LINE.search(text)
    if found is not None:
        timing = _Timing(float(found[1]), float(found[2]), int(found[3]), int(found[4]))
    else:
        found = _OLD_LINE.search(text)
        if found is None:
            return None
        timing = _Timing(float(found[2]), float(found[3]), before, int(found[1]))
    return timing if timing.last > timing.first and timing.seconds > 0 else None


def _facts(timings: list[_Timing]) -> dict[str, Any]:
    # The first steps trace.
    counted = timings[1:] or timings
    steps, every = _steps(counted), _steps(timings)
    samples = sum(timing.examples_per_second * timing.seconds for timing in counted)
    half_ms = 5.0 * len(counted) / steps
    return {
        "framework": "tensorflow",
        "known_from": KNOWN_FROM,
        "precision": f"a mean over {steps:,} steps",
        "clock": "none: durations one after another",
        "step_ms": 1e3 * sum(timing.seconds for timing in counted) / steps,
        "step_precision_ms": half_ms,
        "samples_per_step": samples / steps,
        "steps_logged": timings[-1].last,
        "steps_timed": every,
        "time_logged_ms": 1e3 * sum(timing.seconds for timing in timings),
    }


def _steps(timings: list[_Timing]) -> int:
    return sum(timing.last - timing.first for timing in timings)
