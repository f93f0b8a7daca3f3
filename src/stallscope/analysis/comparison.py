"""Compare two runs: what changed in each entry of the ledger, and whether that is more than noise.

A difference of means has the combined interval of both runs' steps. Among the step and the five entries
of two equal runs, one is often outside its own 95 % interval. So a figure only counts as changed outside
an interval that holds for all six in 99.8 % of pairs (Bonferroni). No interval covers differences
between two starts of a job (another host, a warm cache): only more runs show them (regression.py).

Where the steps of two runs hold different amounts of work, the second run's times are also scaled to
the first one's work: per token, or per element or sample where tokens are unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from stallscope.arrays.distributions import normal_quantile
from stallscope.arrays.stats import Mean
from stallscope.run import Run
from stallscope.words import CAUSES, ENTRIES, WORK_UNITS, WorkUnit

from .findings.step_amounts import Amount
from .gains.baseline import COMPARED
from .ledger.ledger import Ledger
from .result import Analysis, differ

# Further facts that step times may depend on, in addition to those that baselines are matched on.
_FURTHER = (
    "learning_rate",
    "gradient_bytes",
    "loader_workers",
    "cpus_allowed",
    "devices",
    "timeline",
    "python",
    "settings",
)
# Settings that a launcher changes for every process and job.
_OF_THE_LAUNCH = re.compile(r"_(RANK|SIZE|ADDR|PORT|HOSTNAME|ID|KEY)$")
# Two in 1,000 equal pairs; up to five in simulations with few, highly correlated steps.
_BY_CHANCE = 0.002


@cache
def _joint_width() -> float:
    """Return the width of joint intervals of the step and its entries, relative to 95 % intervals."""
    chance = _BY_CHANCE / 2 / (1 + len(ENTRIES))
    return float(normal_quantile(1 - chance) / normal_quantile(0.975))


@dataclass(frozen=True)
class Change:
    """A mean in both runs, milliseconds: an entry of the ledger, or the whole ``step``."""

    name: str
    first: Mean
    second: Mean

    @property
    def by(self) -> Mean:
        """Second − first, with its 95 % interval."""
        return self.second.minus(self.first)

    @property
    def is_real(self) -> bool | None:
        """Whether the change is more than noise of steps; None with too few steps."""
        by = self.by
        if by.ci95 is None:
            return None
        half = (by.ci95[1] - by.ci95[0]) / 2
        return abs(by.value) > half * _joint_width()

    def times(self, factor: Mean) -> Change:
        """Return the change with the second mean scaled by a factor."""
        return replace(self, second=self.second.times(factor))


@dataclass(frozen=True)
class Difference:
    """A fact that differs between the runs; None if a run did not record it."""

    name: str
    first: Any
    second: Any


@dataclass(frozen=True)
class Changes:
    """The changes of a step's times."""

    #: None if one of the runs has no steps.
    step: Change | None
    #: One per entry of the ledger by cause; they add up to the step's. Empty if a run has no stages.
    by_cause: tuple[Change, ...]
    #: The same of the ledger with imbalance.
    entries: tuple[Change, ...]
    #: The wait for data in printed steps; None unless both runs print it.
    input_wait: Change | None

    @property
    def largest(self) -> Change | None:
        """The largest change by cause that is more than noise; None without one."""
        waits = [self.input_wait] if self.input_wait is not None and not self.by_cause else []
        real = [change for change in (*self.by_cause, *waits) if change.is_real]
        return max(real, key=lambda change: abs(change.by.value), default=None)

    def times(self, factor: Mean) -> Changes:
        """Return the changes with all times of the second run scaled by a factor."""
        return Changes(
            None if self.step is None else self.step.times(factor),
            tuple(change.times(factor) for change in self.by_cause),
            tuple(change.times(factor) for change in self.entries),
            None if self.input_wait is None else self.input_wait.times(factor),
        )


@dataclass(frozen=True)
class SameWork:
    """The second run's times for as much work as the first run's steps hold."""

    #: What each run trains, in the finest unit in which both are known.
    first: Amount
    second: Amount
    changes: Changes

    @property
    def unit(self) -> WorkUnit:
        return self.first.unit

    @property
    def factor(self) -> float:
        """By how much the second run's times are scaled."""
        return self.first.per_step.value / self.second.per_step.value

    @property
    def speedup(self) -> Mean:
        """The second run's work per second over the first one's."""
        return self.second.per_second.over(self.first.per_second)


@dataclass(frozen=True)
class Comparison(Changes):
    """The changes from one run's steps to another's."""

    first: Analysis
    second: Analysis
    differences: tuple[Difference, ...]
    #: None where steps hold as much work in both runs, or an unknown amount.
    same_work: SameWork | None

    @property
    def fair(self) -> Changes:
        """The changes for as much work in both runs."""
        return self if self.same_work is None else self.same_work.changes

    @property
    def speedup(self) -> Mean | None:
        """The second run's throughput over the first one's; None if either is unknown."""
        first, second = self.first.samples_per_second, self.second.samples_per_second
        if not first or second is None:
            return None
        ratio = second / first
        steps = (self.first.step, self.second.step)
        halves = [
            (step.ci95[1] - step.ci95[0]) / 2 / step.mean
            for step in steps
            if step is not None and step.ci95 is not None and step.mean
        ]
        if len(halves) < 2:
            return Mean(ratio, None)
        half = ratio * float(np.hypot(halves[0], halves[1]))
        return Mean(ratio, (ratio - half, ratio + half))

    @property
    def same_run(self) -> bool:
        """Whether a run is compared with itself."""
        return self.first.run.id == self.second.run.id


def compare(first: Analysis, second: Analysis) -> Comparison:
    """Compare the second run with the first."""
    step_ms = first.step_ms, second.step_ms
    changes = Changes(
        None
        if step_ms[0] is None or step_ms[1] is None
        else Change("step", step_ms[0], step_ms[1]),
        tuple(_changes(first.steady, second.steady, CAUSES, by_cause=True)),
        tuple(_changes(first.steady, second.steady, ENTRIES, by_cause=False)),
        _input_wait(first, second),
    )
    return Comparison(
        **vars(changes),
        first=first,
        second=second,
        differences=tuple(differences(first.run, second.run)),
        same_work=_same_work(first, second, changes),
    )


def _same_work(first: Analysis, second: Analysis, changes: Changes) -> SameWork | None:
    """Compare for the same work; None where steps hold as much, or runs differ in their ranks."""
    unit = common_unit([first, second])
    if unit is None or first.run.size != second.run.size:
        return None
    of_first, of_second = first.amount(unit), second.amount(unit)
    if of_first is None or of_second is None:
        return None
    if not differ([of_first.per_step, of_second.per_step]):
        return None
    factor = of_first.per_step.over(of_second.per_step)
    return SameWork(of_first, of_second, changes.times(factor))


def common_unit(runs: Sequence[Analysis]) -> WorkUnit | None:
    """Return the finest unit in which the work of all runs is known and comparable.

    Elements say no more than samples where samples of all runs have as many.
    """
    amounts: dict[WorkUnit, list[Mean]] = {}
    for unit in WORK_UNITS:
        known = [amount.per_step for run in runs if (amount := run.amount(unit)) is not None]
        if len(known) == len(runs):
            amounts[unit] = known
    if "token" in amounts:
        return "token"
    samples, elements = amounts.get("sample"), amounts.get("element")
    if elements is None or len({str(run.run.fact("model")) for run in runs}) > 1:
        # The first tensor of another model's batch may be of another kind.
        return None if samples is None else "sample"
    if samples is None:
        return "element"
    each = [of_run.over(count) for of_run, count in zip(elements, samples, strict=True)]
    return "element" if differ(each) else "sample"


def _input_wait(first: Analysis, second: Analysis) -> Change | None:
    waits = [
        None if analysis.printed is None else analysis.printed.input_ms
        for analysis in (first, second)
    ]
    return None if waits[0] is None or waits[1] is None else Change("input", waits[0], waits[1])


def _changes(
    first: Ledger | None, second: Ledger | None, names: Sequence[str], *, by_cause: bool
) -> Iterator[Change]:
    if first is not None and second is not None:
        for name in names:
            yield Change(name, first.mean_ms(name, by_cause), second.mean_ms(name, by_cause))


def differences(first: Run, second: Run) -> Iterator[Difference]:
    """Return the facts that differ between two runs."""
    first_facts, second_facts = _facts(first), _facts(second)
    for name in dict.fromkeys([*first_facts, *second_facts]):
        if first_facts.get(name) != second_facts.get(name):
            yield Difference(name, first_facts.get(name), second_facts.get(name))


def _facts(run: Run) -> dict[str, Any]:
    """Return facts by name; a fact with parts becomes several: ``versions.keras``."""
    facts: dict[str, Any] = {
        # Logs of epochs may not record the number of ranks.
        "ranks": run.size if run.steps.num_rows else run.fact("size"),
        "hosts": len(run.hosts),
        "synthetic": run.synthetic,
    }
    for name in (*COMPARED, *_FURTHER):
        value = run.fact(name)
        if isinstance(value, Mapping):
            facts |= {
                f"{name}.{part}": part_value
                for part, part_value in value.items()
                if not _OF_THE_LAUNCH.search(str(part))
            }
        else:
            facts[name] = value
    return facts
