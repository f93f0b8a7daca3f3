"""Compute the pace of runs from logs of every step, of means or of epochs, and group runs by job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isclose
from typing import Any, Literal, get_args

import numpy as np

from stallscope.arrays import arrow
from stallscope.arrays.distributions import student_quantile
from stallscope.arrays.stats import Mean
from stallscope.formatting.lists import joined
from stallscope.run import Run

from ..ledger.epoch_ledger import (
    EpochTime,
    EpochTimes,
    known_size,
    recorded_number,
    samples_per_epoch,
    steady_epochs,
)
from ..result import Analysis

#: Units of what samples hold, the finest first, and all units of work. ``epochs`` are passes of all
#: ranks together over one data set.
PartOfSample = Literal["tokens", "elements"]
PARTS_OF_SAMPLES: tuple[PartOfSample, ...] = get_args(PartOfSample)
Unit = Literal[PartOfSample, "samples", "steps", "epochs"]
#: With this many repeats, their spread gives the uncertainty of their mean.
FEWEST_REPEATS = 2

# Runs with the same facts are the same job, on any number of ranks.
_SAME_JOB = (
    "framework",
    "model",
    "dataset",
    "parameters",
    "optimizer",
    "backward_passes_per_step",
    "placement",
)
# Smaller differences in samples per step come from uneven last batches.
_SAME_WORK = 0.02
# Keras output does not show the backend.
_KERAS = ("keras", "tensorflow")
#: Facts to group runs by, in the order of the menu: a key for addresses, a title, and a function that
#: returns a run's value.
FACTS: Mapping[str, tuple[str, Callable[[Run], object]]] = {
    "all": ("All runs", lambda _: "one job"),
    "run": ("Run name", lambda run: run.name),
    "model": ("Model", lambda run: run.fact("model")),
    "data": ("Data", lambda run: "synthetic data" if run.synthetic else "real data"),
    "dataset": ("Data set", lambda run: run.fact("dataset")),
    "framework": ("Framework", lambda run: run.fact("framework")),
    "optimizer": ("Optimizer", lambda run: run.fact("optimizer")),
    "batch": ("Batch size per rank", lambda run: run.fact("batch_size")),
}


@dataclass(frozen=True)
class Pace:
    """A run, its times and the work done in them; None if the logs do not show them.

    Times are in milliseconds, and work is per rank.
    """

    analysis: Analysis
    size: int
    #: Whether every step was recorded: then times are of steady steps, without validation.
    from_steps: bool
    step_ms: Mean | None
    #: The mean epoch without the first, including validation.
    epoch_ms: Mean | None
    job_ms: Mean | None
    steps_per_epoch: float | None
    samples_per_step: float | None
    samples_per_epoch: float | None
    #: What the samples of a step hold, in each unit that is known; tokens without padding.
    parts_per_step: Mapping[Unit, Mean]
    #: The work of the whole job.
    steps: float | None
    epochs: float | None

    @property
    def run(self) -> Run:
        return self.analysis.run

    def fact(self, name: str) -> Any:
        """Return a recorded fact of the run."""
        return self.run.fact(name)

    def unit_ms(self, unit: Unit) -> Mean | None:
        """Return one rank's time per unit of work, over steady steps or steady epochs."""
        of_steps = _each(self.step_ms, self.work_of_step(unit))
        of_epochs = self.epochs_ms(unit)
        return of_steps or of_epochs if self.from_steps else of_epochs or of_steps

    def epochs_ms(self, unit: Unit) -> Mean | None:
        """Return the time per unit over steady epochs, to compare with runs that only have epochs."""
        return _each(self.epoch_ms, self._work_of_epoch(unit))

    def job_unit_ms(self, unit: Unit) -> Mean | None:
        """Return the time per unit over the whole job."""
        by_epochs = _product(self.epochs, self._work_of_epoch(unit))
        by_steps = _product(self.steps, self.work_of_step(unit))
        done = by_steps or by_epochs if self.from_steps else by_epochs or by_steps
        return _each(self.job_ms, done)

    def work_of_step(self, unit: Unit) -> float | None:
        """Return how much a rank does in a step; None if unknown."""
        if unit == "samples":
            return self.samples_per_step
        if unit in PARTS_OF_SAMPLES:
            parts = self.parts_per_step.get(unit)
            return None if parts is None else parts.value
        if unit == "steps":
            return 1.0
        return 1 / (self.size * self.steps_per_epoch) if self.steps_per_epoch else None

    def _work_of_epoch(self, unit: Unit) -> float | None:
        if unit == "samples":
            return self.samples_per_epoch
        if unit in PARTS_OF_SAMPLES:
            return _product(self.work_of_step(unit), self.steps_per_epoch)
        return self.steps_per_epoch if unit == "steps" else 1 / self.size


def pace_of(analysis: Analysis) -> Pace | None:
    """Return the run's pace; None if nothing was timed, or the number of processes is unknown."""
    if analysis.epoch_times is not None:
        return _of_epochs(analysis, analysis.epoch_times)
    step_ms = analysis.step_ms
    return None if step_ms is None or step_ms.value <= 0 else _of_steps(analysis, step_ms)


def _of_steps(analysis: Analysis, step_ms: Mean) -> Pace:
    size = analysis.run.size
    epoch_ms, per_epoch = _epochs_of_steps(analysis.run)
    rate = analysis.samples_per_second
    batch = None if rate is None else rate * step_ms.value / 1e3 / size
    tokens, elements = analysis.amount("token"), analysis.amount("element")
    parts: dict[Unit, Mean] = {}
    if tokens is not None:
        parts["tokens"] = tokens.per_step.scaled(1 / size)
    if elements is not None:
        parts["elements"] = elements.per_step.scaled(1 / size)
    steps = max(analysis.steps, 1)
    return Pace(
        analysis,
        size=size,
        from_steps=True,
        step_ms=step_ms,
        epoch_ms=epoch_ms,
        job_ms=Mean(analysis.job.total * 1e3, None),
        steps_per_epoch=per_epoch,
        samples_per_step=batch or None,
        samples_per_epoch=_product(batch, per_epoch),
        parts_per_step=parts,
        steps=steps,
        epochs=None if per_epoch is None else steps / per_epoch,
    )


def _epochs_of_steps(run: Run) -> tuple[Mean | None, float | None]:
    """Return the mean epoch after the first, milliseconds and steps, of the lowest rank, if any."""
    table = run.intervals.filter(arrow.equal(run.intervals["kind"], "epoch"))
    table = table.filter(arrow.equal(table["rank"], min(run.ranks))).sort_by("end")
    ends = arrow.numbers(table["end"])
    # The step after the epoch.
    after = arrow.numbers(table["step"])
    if len(ends) < 2 or not np.all(np.diff(after) > 0):
        return None, None
    took = [Mean(ms, None) for ms in (np.diff(ends) / 1e6).tolist()]
    return mean_over(took), float(np.diff(after).mean())


def _of_epochs(analysis: Analysis, known: EpochTimes) -> Pace | None:
    run, size = analysis.run, known_size(analysis.run)
    if size is None:
        return None
    # The series of step times excludes warm-up.
    step_ms = analysis.step_ms or _around(known.step_ms, known.step_precision_ms)
    epoch_ms = _epoch_ms(run, known)
    if step_ms is None and epoch_ms is None:
        return None
    all_samples, all_of_step = samples_per_epoch(run), recorded_number(run, "samples_per_step")
    of_step = recorded_number(run, "batch_size") if all_of_step is None else all_of_step / size
    return Pace(
        analysis,
        size=size,
        from_steps=False,
        step_ms=step_ms,
        epoch_ms=epoch_ms,
        job_ms=_job_ms(analysis, known),
        steps_per_epoch=recorded_number(run, "steps_per_epoch"),
        samples_per_step=of_step,
        samples_per_epoch=None if all_samples is None else all_samples / size,
        parts_per_step={},
        steps=recorded_number(run, "steps_timed"),
        epochs=_done(run, known.epochs) or None,
    )


def _epoch_ms(run: Run, known: EpochTimes) -> Mean | None:
    """Return the mean epoch, with an interval from rounding and from the spread of epochs."""
    if known.mean_s is None:
        return None
    by_epoch: dict[int, list[float]] = defaultdict(list)
    for epoch in steady_epochs(known.epochs, run.fact("first_epoch")):
        by_epoch[epoch.epoch].append(epoch.s)
    scatter = mean_over([Mean(float(np.mean(seconds)), None) for seconds in by_epoch.values()]).ci95
    half = (known.precision_s or 0.0) + (0.0 if scatter is None else (scatter[1] - scatter[0]) / 2)
    mean = _around(known.mean_s, half)
    return None if mean is None else mean.scaled(1e3)


def _done(run: Run, epochs: Sequence[EpochTime]) -> int:
    """Count the epochs that ended, including those without a known start."""
    fits = {epoch.fit for epoch in epochs}
    firsts = {log.part: log.facts.get("first_epoch") for log in reversed(run.logs)}
    started = {(fit, firsts.get(fit)) for fit in fits if isinstance(firsts.get(fit), int)}
    return len(started | {(epoch.fit, epoch.epoch) for epoch in epochs})


def _job_ms(analysis: Analysis, known: EpochTimes) -> Mean | None:
    run = analysis.run
    logged = recorded_number(run, "time_logged_ms")
    if logged is not None:
        return Mean(logged, None)
    total, stamped = analysis.job.total * 1e3, recorded_number(run, "stamp_precision_ms")
    if not known.epochs or total <= 0:
        return None
    # Rounding errors of consecutive durations add up.
    laid = sum(epoch.precision_s for epoch in known.epochs) * 1e3 / len(run.ranks)
    return _around(total, laid if stamped is None else stamped)


def mean_over(means: Sequence[Mean]) -> Mean:
    """Return the mean over repeats; the interval of two or more comes from their spread."""
    if len(means) < FEWEST_REPEATS:
        return means[0]
    values = np.array([mean.value for mean in means])
    half = student_quantile(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    centre = float(values.mean())
    return Mean(centre, (centre - float(half), centre + float(half)))


def _around(value: float | None, half: float | None) -> Mean | None:
    """Return a mean with its rounding as interval; None if it is shorter than its rounding."""
    if value is None or value <= (half or 0.0):
        return None
    return Mean(value, None if half is None else (value - half, value + half))


def _each(ms: Mean | None, work: float | None) -> Mean | None:
    return None if ms is None or not work else ms.scaled(1 / work)


def _product(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first * second


# -- Group runs by job, by their recorded facts or by one fact ------------------------------------


def jobs_of(runs: Sequence[Pace], by: str | None) -> list[list[Pace]]:
    """Group runs by job: by all their facts, or by one of ``FACTS``.

    Lines of which nothing says that they are the same job as another run are left out.
    """
    if by is not None:
        groups: dict[str, list[Pace]] = defaultdict(list)
        for run in runs:
            groups[value_of(run.run, by)].append(run)
        return list(groups.values())
    if len(runs) > 1:
        runs = [run for run in runs if not _stands_apart(run, runs)]
    stepped: list[list[Pace]] = []
    others: list[list[Pace]] = []
    # Logs of epochs have fewer facts. Start with those with the most, to distinguish jobs.
    for run in sorted(runs, key=_unknown_facts):
        jobs = stepped if run.from_steps else others
        fitting = [job for job in jobs if _fits(run, job)]
        if len(fitting) == 1:
            fitting[0].append(run)
        else:
            jobs.append([run])
    alone = []
    for job in others:
        fitting = [known for known in stepped if _completes(job, known)]
        if len(fitting) == 1:
            fitting[0].extend(job)
        else:
            alone.append(job)
    return [part for job in [*stepped, *alone] for part in _by_work(job)]


def value_of(run: Run, by: str) -> str:
    """Return the value of one of ``FACTS``, in words."""
    value = FACTS[by][1](run)
    return f"{FACTS[by][0].lower()} not recorded" if value is None else str(value)


def left_out(analyses: Sequence[Analysis], by: str | None = None) -> list[str]:
    """Return sentences on the runs that are in no curve: the missing fact, and how to add it.

    Args:
        by: the one of ``FACTS`` by which runs are grouped.
    """
    paces = [pace_of(analysis) for analysis in analyses]
    unknown = [analysis for analysis, pace in zip(analyses, paces, strict=True) if pace is None]
    unsized = [
        analysis.run.name
        for analysis in unknown
        if analysis.epoch_times is not None and known_size(analysis.run) is None
    ]
    timed = [pace for pace in paces if pace is not None]
    apart = [pace.run.name for pace in timed if by is None and _stands_apart(pace, timed)]
    sentences = [
        f"{analysis.run.name}: neither steps nor epochs that could be timed"
        for analysis in unknown
        if analysis.run.name not in unsized
    ]
    if unsized:
        sentences.append(
            f"{joined(unsized)}: the log does not contain the number of ranks; name its file or folder "
            "after it (np8, 8-ranks), or log the MLflow param world_size"
        )
    if apart:
        sentences.append(
            f"{joined(apart)}: in no curve, as nothing in these logs shows which are of the same job; "
            "--same-job says that all of them are"
        )
    return sentences


def job_of_lines(analysis: Analysis) -> tuple[str, ...]:
    """Return what tells which job another program's lines are of: the program, and stated settings.

    Without settings, a run is its own job. Empty for recorded runs and for logs that name their model:
    facts tell which job these are of.
    """
    run, printed = analysis.run, analysis.printed
    if printed is None or printed.recorded or run.fact("model") is not None:
        return ()
    settings = run.fact("job_settings")
    if not settings:
        return str(run.fact("known_from")), run.id
    stated = (f"{name} {settings[name]}" for name in sorted(settings))
    return str(run.fact("known_from")), *stated, f"of {run.fact('job_steps')} steps"


def _of_same_lines(first: Pace, second: Pace) -> bool:
    """Whether lines of two logs state settings, and none that differs, on any number of ranks."""
    if job_of_lines(first.analysis)[:1] != job_of_lines(second.analysis)[:1]:
        return False
    if not job_of_lines(first.analysis):
        return True
    ours, theirs = (run.fact("job_settings") or {} for run in (first, second))
    common = ours.keys() & theirs.keys()
    if not common or any(ours[name] != theirs[name] for name in common):
        return False
    steps = first.fact("job_steps"), second.fact("job_steps")
    if None in steps:
        return True
    # Ranks share the samples of an epoch, or each of them makes as many steps as before.
    return alike(*steps) or alike(steps[0] * first.size, steps[1] * second.size)


def _stands_apart(run: Pace, runs: Sequence[Pace]) -> bool:
    """Whether nothing says that these lines and any other run are the same job."""
    return bool(job_of_lines(run.analysis)) and not any(
        _same_job(run, peer) for peer in runs if peer is not run
    )


def _unknown_facts(run: Pace) -> int:
    return 0 if run.from_steps else sum(run.fact(name) is None for name in _SAME_JOB)


def _fits(run: Pace, job: Sequence[Pace]) -> bool:
    return all(_same_job(run, member) for member in job)


def _completes(job: Sequence[Pace], known: Sequence[Pace]) -> bool:
    """Whether logs of epochs belong to the job of these step logs.

    If their model is unknown, they only join it with sizes that it lacks.
    """
    if not all(_fits(run, known) for run in job):
        return False
    named = all(run.fact("model") is not None for run in job)
    sizes = {run.size for run in known}
    return named or not any(run.size in sizes for run in job)


def _same_job(first: Pace, second: Pace) -> bool:
    if not _of_same_lines(first, second):
        return False
    pairs = {name: (first.fact(name), second.fact(name)) for name in _SAME_JOB}
    if first.from_steps and second.from_steps:
        same = all(str(left) == str(right) for left, right in pairs.values())
        return same and first.run.synthetic == second.run.synthetic
    for name, pair in pairs.items():
        words = {str(fact).casefold() for fact in pair}
        keras = name == "framework" and words <= set(_KERAS)
        if None not in pair and len(words) > 1 and not keras:
            return False
    return True


def _by_work(runs: Sequence[Pace]) -> list[list[Pace]]:
    """Split a job's runs by batch size if each batch size has several numbers of ranks.

    Runs with an unknown batch size join the others if these have only one.
    """
    groups: list[list[Pace]] = []
    unknown = [run for run in runs if not run.samples_per_step]
    for run in sorted((run for run in runs if run.samples_per_step), key=_work):
        if groups and alike(_work(groups[-1][0]), _work(run)):
            groups[-1].append(run)
        else:
            groups.append([run])
    if len(groups) < 2 or all(len({run.size for run in group}) == 1 for group in groups):
        return [list(runs)]
    return [*groups, unknown] if unknown else groups


def _work(run: Pace) -> float:
    return run.samples_per_step or 0.0


def alike(first: float, second: float) -> bool:
    """Whether two amounts of work are equal, except for uneven last batches."""
    return isclose(first, second, rel_tol=_SAME_WORK)
