"""Compute step time by cause over the run, for tools that draw scalars over steps; send it to MLflow.

A point is the mean over a window of steps: windows are 1, 2, 5, 10, … steps long, so that there are
2,000 points at most. The last repetition of a step counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from stallscope.arrays.blocks import Block
from stallscope.arrays.types import Floats, Ints
from stallscope.collector.mlflow.client import MlflowRun, convert_errors
from stallscope.errors import NotFoundError, UsageError
from stallscope.formatting.plain import plain
from stallscope.words import CAUSES, STAGES

from .exported_run import ExportedRun, Generation

#: Tools draw fewer points, and TensorBoard keeps 1,000 of a series by default.
MOST_POINTS = 2000
#: The names of the series, or their prefixes.
TOTAL = "stallscope/step_ms"
SLOWEST = "stallscope_slowest_rank"
MEAN = "stallscope_mean_of_ranks"
#: The first step of a window, when the window ended (seconds), and values in milliseconds by name.
Point = tuple[int, float, dict[str, float]]

_PLACE = re.compile(r"mlflow:([0-9a-f]{32})")
# Servers refuse requests with more metrics.
_AT_A_TIME = 1000


@dataclass(frozen=True)
class Scalars:
    """Series over the windows of a run."""

    #: The first step of each window.
    steps: Ints
    #: When each window ended: seconds since 1970, or since the run's first step without a wall clock.
    seconds: Floats
    #: Milliseconds by name; NaN where a window has no measured step.
    values: Mapping[str, Floats]

    def points(self) -> Iterator[Point]:
        """Yield step, seconds and known values of each window."""
        for at, (step, seconds) in enumerate(zip(self.steps, self.seconds, strict=True)):
            point = {name: float(values[at]) for name, values in self.values.items()}
            yield (
                int(step),
                float(seconds),
                {name: value for name, value in point.items() if np.isfinite(value)},
            )


def scalars_of(exported: ExportedRun) -> Scalars:
    """Compute the series of the chosen steps; means are over the chosen ranks.

    Raises:
        NotFoundError: if the stages of no chosen step were measured.
    """
    scalars = scalars_of_steps(exported)
    return in_windows(scalars, scalars.steps // _window_length(scalars.steps))


def scalars_of_steps(exported: ExportedRun) -> Scalars:
    """Compute the series of the chosen steps, step by step.

    Raises:
        NotFoundError: if the stages of no chosen step were measured.
    """
    parts = [
        _of_generation(exported, generation)
        for generation in exported.generations
        if len(generation.ledger)
    ]
    steps = np.concatenate([np.zeros(0, np.int64), *(part.steps for part in parts)])
    if not len(steps):
        raise NotFoundError(
            f"{plain(exported.run.name)}: the stages of these steps were not measured, so there are no "
            "series to export; the format csv has the steps"
        )
    _, last = np.unique(steps[::-1], return_index=True)
    kept = len(steps) - 1 - last
    seconds = np.concatenate([part.seconds for part in parts])[kept]
    values = {
        name: np.concatenate([part.values[name] for part in parts])[kept]
        for name in parts[0].values
    }
    return Scalars(steps[kept], seconds, values)


def _of_generation(exported: ExportedRun, generation: Generation) -> Scalars:
    """Return the series of one generation, step by step."""
    ledger = generation.ledger
    ranks = exported.selection.of(ledger.ranks)
    other_ns, fetch, compute, arrival = ledger.cells.gathered(_means, ranks)
    allreduce = "waiting_and_allreduce" if exported.run.one_log_of_many else "allreduce"
    names = [*STAGES, allreduce]
    slowest = dict(zip(names, (ledger.by_cause(name) for name in CAUSES), strict=True))
    mean = {
        "input": fetch,
        "compute": compute,
        "other": other_ns,
        "wait": ledger.last - arrival,
        allreduce: ledger.allreduce,
    }
    nanoseconds = {
        TOTAL: ledger.total,
        **{f"{SLOWEST}/{name}_ms": values for name, values in slowest.items()},
        **{f"{MEAN}/{name}_ms": values for name, values in mean.items()},
    }
    chosen = exported.selection.steps(ledger.steps)
    ended = ledger.reduced + generation.reference_shift + (exported.wall_ns or 0)
    values = {name: series[chosen] / 1e6 for name, series in nanoseconds.items()}
    return Scalars(ledger.steps[chosen], ended[chosen] / 1e9, values)


def _means(block: Block, ranks: Ints) -> list[Floats]:
    """Kernel: mean other, input, compute and arrival of each step over measured ranks."""
    measured = block.of("measured", ranks)
    known = measured.sum(axis=1)
    divisor = np.where(known, known, np.nan)
    return [
        np.where(measured, block.of(name, ranks), 0).sum(axis=1) / divisor
        for name in ("other", "input", "compute", "arrival")
    ]


def in_windows(scalars: Scalars, windows: Ints) -> Scalars:
    """Return the means over windows of steps.

    Args:
        scalars: step by step.
        windows: the window of each step, ascending.
    """
    _, first, window = np.unique(windows, return_index=True, return_inverse=True)
    last = np.append(first[1:], len(windows)) - 1
    values = {name: _window_means(window, series) for name, series in scalars.values.items()}
    return Scalars(scalars.steps[first], scalars.seconds[last], values)


def _window_length(steps: Ints) -> int:
    # A window at either end may be cut.
    least = -(-(int(steps[-1] - steps[0]) + 1) // (MOST_POINTS - 1))
    power: int = 10 ** (len(str(least)) - 1)
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least)


def _window_means(window: Ints, values: Floats) -> Floats:
    known = np.isfinite(values)
    counts = np.bincount(window, known)
    sums = np.bincount(window, np.where(known, values, 0.0))
    return np.asarray(sums / np.where(counts, counts, np.nan))


# -- Add series to an MLflow run's metrics, next to those of training -----------------------------


def run_id_of(place: str) -> str:
    """Return the MLflow run that ``--out`` names.

    Raises:
        UsageError: if it names none.
    """
    match = _PLACE.fullmatch(place)
    if match is None:
        raise UsageError(f"--out {place}: give mlflow:RUN_ID with 32 hex digits")
    return match[1]


def write_mlflow(exported: ExportedRun, place: str) -> None:
    """Add the series to the run's metrics. Repeating it adds no points.

    Raises:
        MissingExtraError: without mlflow.
        NotFoundError: if there is no such run.
        UnreadableError: if the server cannot be reached, or refuses the metrics.
    """
    MlflowSeries(place).add(exported, list(scalars_of(exported).points()))


class MlflowSeries:
    """Adds points to an MLflow run's metrics; the server keeps repeated ones once."""

    def __init__(self, place: str) -> None:
        """Find the run.

        Raises:
            MissingExtraError: without mlflow.
            NotFoundError: if there is no such run.
            UnreadableError: if the server cannot be reached.
        """
        self._run = MlflowRun(run_id_of(place))
        self.last_step = -1

    def add(self, exported: ExportedRun, points: Sequence[Point]) -> None:
        """Log points.

        Raises:
            UnreadableError: if the server cannot be reached, or refuses the metrics.
        """
        from mlflow.entities import Metric

        metrics = (
            Metric(name, value, round(seconds * 1000), step)
            for step, seconds, values in points
            for name, value in values.items()
        )
        with convert_errors(self._run.where):
            while batch := list(islice(metrics, _AT_A_TIME)):
                self._run.client.log_batch(self._run.id, metrics=batch)
        self.last_step = points[-1][0]

    def close(self) -> None:
        """Do nothing: all points are on the server."""
