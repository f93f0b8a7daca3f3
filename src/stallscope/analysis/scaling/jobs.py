"""Group runs by job, by their recorded facts or by one fact."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isclose

from stallscope.run import Run

from ..ledger.epochs import known_size
from ..result import Analysis
from .pace import Pace, pace_of

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
    "run": ("Run name", lambda run: run.name),
    "model": ("Model", lambda run: run.fact("model")),
    "data": ("Data", lambda run: "synthetic data" if run.synthetic else "real data"),
    "dataset": ("Data set", lambda run: run.fact("dataset")),
    "framework": ("Framework", lambda run: run.fact("framework")),
    "optimizer": ("Optimizer", lambda run: run.fact("optimizer")),
    "batch": ("Batch size per rank", lambda run: run.fact("batch_size")),
}


def jobs_of(runs: Iterable[Pace], by: str | None) -> list[list[Pace]]:
    """Group runs by job: by all their facts, or by one of ``FACTS``."""
    if by is not None:
        groups: dict[str, list[Pace]] = defaultdict(list)
        for run in runs:
            groups[value_of(run.run, by)].append(run)
        return list(groups.values())
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


def untimed(analyses: Iterable[Analysis]) -> list[str]:
    """Return a sentence for every run without a known pace: the missing fact, and how to add it."""
    return [_untimed(analysis) for analysis in analyses if pace_of(analysis) is None]


def _untimed(analysis: Analysis) -> str:
    name = analysis.run.name
    if analysis.epoch_times is not None and known_size(analysis.run) is None:
        return (
            f"{name}: the log does not contain the number of ranks; name its file or folder after it "
            "(np8, 8-ranks), or log the MLflow param world_size"
        )
    return f"{name}: neither steps nor epochs that could be timed"


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
