"""The result of measuring a loader alone: numbers, a printed table, and a file."""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ..step_log.run_identity import write_new
from ..subprocesses import upload_companion_file

#: Kinds of stages, in the order in which a sample passes through them.
READ, DECODE, AUGMENT, SHUFFLE, BATCH, COPY = (
    "read",
    "decode",
    "augment",
    "shuffle",
    "batch",
    "copy",
)
#: A stage whose purpose is unknown.
OTHER = "other"
# Typical names of functions; the most specific come first.
_NAMES = (
    (AUGMENT, r"aug|random|flip|crop|jitter|rotat|distort|mixup|cutout"),
    (
        DECODE,
        r"decod|pars|deserial|preproc|totensor|toimage|toarray|to_tensor|convert|resiz|normali",
    ),
    (READ, r"read|load|open|fetch|download"),
)
# Student's t for 95 %, by degrees of freedom.
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
# Means of longer blocks are less correlated than single batches.
_MOST_BLOCKS = 10
_FEWEST_VALUES = 4
_NEARLY_AS_FAST = 1.05

logger = logging.getLogger("stallscope")
VERSION = 1
SUFFIX = ".input.json"


class Mean(NamedTuple):
    """Milliseconds per batch; ``ci95`` is None where there is too little data for an interval."""

    ms: float
    ci95: Optional[Tuple[float, float]]


class Stage(NamedTuple):
    """One stage of a pipeline and its share of a batch's time."""

    kind: str
    #: The operation, and the user's function in it.
    name: str
    mean: Mean


class Trial(NamedTuple):
    """A setting of a loader that was tried."""

    workers: int
    #: Batches that each worker prepares in advance.
    prefetch: int
    #: None where the data ended before there was a rate.
    mean: Optional[Mean]
    #: How long each of the last batches was waited for.
    batches_ns: Sequence[int] = ()


def best_of(trials: Sequence[Trial]) -> Optional[Trial]:
    """Return the smallest setting that is nearly as fast as the fastest; None without rates."""
    known = [(trial, trial.mean.ms) for trial in trials if trial.mean is not None]
    if not known:
        return None
    fastest = min(ms for _, ms in known)
    fast = [trial for trial, ms in known if ms <= fastest * _NEARLY_AS_FAST]
    return min(fast, key=lambda trial: (trial.workers, trial.prefetch))


def kind_of_function(name: str) -> Optional[str]:
    """Guess a function's kind of stage from its name; None if unknown."""
    return next((kind for kind, words in _NAMES if re.search(words, name, re.IGNORECASE)), None)


def mean_of(times_ns: Sequence[int]) -> Mean:
    """Return the mean of consecutive times, with an interval from up to ten block means.

    Args:
        times_ns: nanoseconds, at least one value.
    """
    mean = sum(times_ns) / len(times_ns) / 1e6
    blocks = _blocks(times_ns)
    return Mean(mean, _interval(mean, blocks) if len(times_ns) >= _FEWEST_VALUES else None)


def median_of(times_ns: Sequence[int]) -> Mean:
    """Return the median of up to ten block means, which other load on the machine disturbs less.

    Use it to compare times that were not measured together.
    """
    blocks = _blocks(times_ns)
    median = sorted(blocks)[len(blocks) // 2]
    return Mean(median, _interval(median, blocks) if len(times_ns) >= _FEWEST_VALUES else None)


def _blocks(times_ns: Sequence[int]) -> List[float]:
    """Return the means of up to ten blocks, in milliseconds."""
    count = max(1, min(_MOST_BLOCKS, len(times_ns) // 2))
    size = len(times_ns) // count
    return [sum(times_ns[i * size : (i + 1) * size]) / size / 1e6 for i in range(count)]


def _interval(value: float, blocks: Sequence[float]) -> Tuple[float, float]:
    middle = sum(blocks) / len(blocks)
    variance = sum((block - middle) ** 2 for block in blocks) / (len(blocks) - 1)
    half = _T95[len(blocks) - 2] * (variance / len(blocks)) ** 0.5
    return max(0.0, value - half), value + half


def difference(later: Mean, earlier: Optional[Mean]) -> Mean:
    """Return the difference of two times that were measured separately."""
    if earlier is None:
        return later
    ms = later.ms - earlier.ms
    if later.ci95 is None or earlier.ci95 is None:
        return Mean(ms, None)
    halves = [(ci95[1] - ci95[0]) / 2 for ci95 in (later.ci95, earlier.ci95)]
    half = sum(width**2 for width in halves) ** 0.5
    return Mean(ms, (ms - half, ms + half))


class MeasuredInput:
    """How fast a loader is without training; prints as a table.

    Attributes:
        kind: the kind of loader: ``tf.data``, ``DataLoader``, ``Sequence``, ``iterator``.
        batch_ms: milliseconds per batch, warm-up included.
        warm_up: batches at the start that no rate includes: queues fill and workers start.
        mean: milliseconds per batch after the warm-up; None where no batch is left.
        samples_per_batch: None where batches do not show it.
        ended: whether the data ended before the requested number of batches.
        stages: time per stage; ``no_stages`` says why some or all are missing.
        trials: other settings that were tried; ``no_trials`` says why some are missing.
        error: the error that the data raised, in one sentence; None without an error.
        path: the file with this result; None where there is none (yet).
    """

    def __init__(
        self,
        kind: str,
        batch_ns: List[int],
        warm_up: int,
        samples: List[Optional[int]],
        ended: bool,
        error: Optional[str],
    ) -> None:
        self.kind = kind
        self.batch_ms = [time / 1e6 for time in batch_ns]
        self.warm_up = warm_up
        counted = batch_ns[warm_up:]
        self.mean = mean_of(counted) if counted else None
        known = [count for count in samples[warm_up:] if count is not None]
        self.samples_per_batch = (
            sum(known) / len(known) if known and len(known) == len(counted) else None
        )
        self.ended = ended
        self.error = error
        self.stages: List[Stage] = []
        self.no_stages: Optional[str] = None
        self.trials: List[Trial] = []
        self.no_trials: Optional[str] = None
        #: Facts of the rank and its host.
        self.where: Dict[str, Any] = {}
        self.path: Optional[Path] = None
        #: Why there is no file.
        self.no_path = ""

    @property
    def batches_per_second(self) -> Optional[float]:
        return 1e3 / self.mean.ms if self.mean is not None and self.mean.ms else None

    @property
    def samples_per_second(self) -> Optional[float]:
        rate = self.batches_per_second
        return None if rate is None or not self.samples_per_batch else rate * self.samples_per_batch

    @property
    def ci95_batches_per_second(self) -> Optional[Tuple[float, float]]:
        """Return the 95 % interval of the rate; None where there are too few batches."""
        ci95 = None if self.mean is None else self.mean.ci95
        return None if ci95 is None or not ci95[0] else (1e3 / ci95[1], 1e3 / ci95[0])

    def document(self) -> Dict[str, Any]:
        """Return the content of the file (docs/input.md)."""
        return {
            **self.where,
            "kind": self.kind,
            "batch_us": [round(ms * 1e3) for ms in self.batch_ms],
            "warm_up": self.warm_up,
            "ms": None if self.mean is None else round(self.mean.ms, 6),
            "ci95_ms": None if self.mean is None else self.mean.ci95,
            "samples_per_batch": self.samples_per_batch,
            "ended": self.ended,
            "error": self.error,
            "stages": [
                {
                    "kind": stage.kind,
                    "name": stage.name,
                    "ms": round(stage.mean.ms, 6),
                    "ci95_ms": stage.mean.ci95,
                }
                for stage in self.stages
            ],
            "no_stages": self.no_stages,
            "trials": [
                {
                    "workers": trial.workers,
                    "prefetch": trial.prefetch,
                    "ms": round(trial.mean.ms, 6),
                    "ci95_ms": trial.mean.ci95,
                    "batches_us": [ns // 1000 for ns in trial.batches_ns],
                }
                for trial in self.trials
                if trial.mean is not None
            ],
        }

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        place = "rank %(rank)s of %(size)s on %(host)s" % self.where
        lines = ["Loader alone (%s), %s: %s" % (self.kind, place, self._rate())]
        lines.append("  " + self._how_measured())
        if self.error:
            lines.append("  " + self.error)
        lines += self._table()
        if self.no_stages:
            lines.append("  " + self.no_stages)
        lines += self._trials_table()
        if self.no_trials:
            lines.append("  " + self.no_trials)
        lines.append("  " + (self.no_path if self.path is None else "written to %s" % self.path))
        return "\n".join(lines)

    def _rate(self) -> str:
        rate = self.batches_per_second
        if rate is None:
            return "no rate"
        ci95 = self.ci95_batches_per_second
        sure = "" if ci95 is None else " (95 %%: %s–%s)" % (_number(ci95[0]), _number(ci95[1]))
        samples = self.samples_per_second
        more = "" if samples is None else ", %s samples/s" % _number(samples)
        return "%s batches/s%s%s" % (_number(rate), sure, more)

    def _how_measured(self) -> str:
        count = len(self.batch_ms)
        if not count:
            return "no batch came"
        ended = "; the data has ended" if self.ended else ""
        return "%d batches in %.3g s, %d of them warm-up and left out; the first took %.3g ms%s" % (
            count,
            sum(self.batch_ms) / 1e3,
            self.warm_up,
            self.batch_ms[0],
            ended,
        )

    def _table(self) -> List[str]:
        if not self.stages:
            return []
        width = max(len(stage.name) for stage in self.stages)
        longest = max(self.stages, key=lambda stage: stage.mean.ms)
        lines = ["  %-8s %-*s  ms per batch" % ("stage", width, "where")]
        for stage in self.stages:
            mark = "  ← longest" if stage is longest else ""
            row = (stage.kind, width, stage.name, stage.mean.ms, mark)
            lines.append("  %-8s %-*s  %12.3f%s" % row)
        if self.mean is not None:
            lines.append("  %-8s %-*s  %12.3f" % ("together", width, "", self.mean.ms))
        return lines

    def _trials_table(self) -> List[str]:
        if not self.trials:
            return []
        best = best_of(self.trials)
        lines = ["  workers  prefetch  ms per batch"]
        for trial in self.trials:
            mark = "  ← more is no faster" if trial is best else ""
            ms = "no rate" if trial.mean is None else "%.3f" % trial.mean.ms
            lines.append("  %7d  %8d  %12s%s" % (trial.workers, trial.prefetch, ms, mark))
        return lines


def _number(value: float) -> str:
    return "%.3g" % value if value < 100 else "{:,.0f}".format(value)


# -- Store measured loader times next to the logs of their run ------------------------------------
#
# Each rank and measurement has one file, ``rank-00003.0.input.json``. It is written as a whole, and
# an existing file is never overwritten. A measurement made before any recording waits in memory for
# the first one. Where the run's logs are uploaded to MLflow during training, so are these files.


class _Recorded(NamedTuple):
    """The folder and run of this process's latest recording."""

    folder: Path
    run_id: str


_latest: Optional[_Recorded] = None


_waiting: List[Dict[str, Any]] = []


def recording_started(folder: Path, run_id: str) -> None:
    """Note that a recording has started; earlier measurements belong to its run. Never raises."""
    global _latest
    _latest = _Recorded(folder, run_id)
    while _waiting:
        try:
            _write(folder, {**_waiting.pop(0), "run_id": run_id})
        except Exception as error:
            logger.warning("stallscope: the loader's times are not in %s: %s", folder, error)


def save(measured: Dict[str, Any], folder: Optional[Path]) -> Optional[Path]:
    """Write a measurement into a folder, or into the folder of this process's recording.

    Returns:
        The file; None where the measurement waits for the first recording.

    Raises:
        OSError: if writing fails.
    """
    if folder is None and _latest is None:
        _waiting.append(measured)
        return None
    if _latest is not None and folder in (None, _latest.folder):
        return _write(_latest.folder, {**measured, "run_id": _latest.run_id})
    assert folder is not None
    return _write(folder, measured)


def _write(folder: Path, measured: Dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(measured, separators=(",", ":")) + "\n"
    path = write_new(folder, "rank-%05d" % measured["rank"], SUFFIX, text)
    upload_companion_file(path)
    return path


# -- What a loader counts by itself, during training ----------------------------------------------

# Figures of a loader are written after so long, then seldom.
_FIRST_NS, _SELDOM_NS = 5_000_000_000, 60_000_000_000


class FactPace:
    """Says when the figures of a loader are to be written: ever more seldom, and at the end."""

    def __init__(self) -> None:
        self._due, self._pause = 0, _FIRST_NS

    def is_due(self, now: int, at_the_end: bool) -> bool:
        """Return whether they are to be written at this monotonic time."""
        if self._due == 0 and not at_the_end:
            self._due = now + _FIRST_NS
        if now < self._due and not at_the_end:
            return False
        self._pause = min(2 * self._pause, _SELDOM_NS)
        self._due = now + self._pause
        return True


class StageSums:
    """The time of each stage of a loader, which the loader's library counts for each iteration."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        # What counts the current iteration; batches and nanoseconds of it, and of those before.
        self._source: Any = None
        self._now: Tuple[int, Counter[str]] = (0, Counter())
        self._before: Tuple[int, Counter[str]] = (0, Counter())

    def update(self, source: Any, batches: int, stages: Dict[str, int]) -> None:
        """Take over the present counts.

        Args:
            source: the object that counts; another one counts from zero.
            batches: those so far.
            stages: nanoseconds of each stage so far.
        """
        if source is not self._source:
            self._before = (self._before[0] + self._now[0], self._before[1] + self._now[1])
            self._source = source
        self._now = (batches, Counter(stages))

    def fact(self) -> Optional[Dict[str, Any]]:
        """Return microseconds per batch by stage; None without a batch."""
        batches = self._before[0] + self._now[0]
        if not batches:
            return None
        spent = self._before[1] + self._now[1]
        stages = [[name, round(ns / batches / 1e3, 1)] for name, ns in spent.most_common()]
        return {"kind": self._kind, "batches": batches, "stages": stages}
