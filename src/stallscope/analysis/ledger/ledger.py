"""The ledger: where the time of every step goes, exact to the nanosecond; also from a cache.

Step i lasts from R(i−1) to R(i), the earliest moment at which it is reduced on any rank. Its time is
input + compute + other of the reference rank, plus imbalance (how much later the critical rank was
ready), plus allreduce (from the last rank's gradients ready until reduced). Validation, checkpoints
and the ends of epochs lie between steps: they are cut out of every rank's arrival, and the wall time
of each cut is a separate row.

Where a slow link makes completions late, a rank's work starts at its own completion of step i−1: the
time that it waits after R(i−1) counts as allreduce of step i, not as work between steps.

A step that a few of many ranks did not measure is in the ledger, too. These ranks count like the
reference rank there, so they are never blamed. If more ranks did not measure it, the step is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np

from stallscope.arrays.blocks import Block, Matrix
from stallscope.arrays.stats import Mean, mean_with_interval
from stallscope.arrays.types import Bools, Floats, Ints
from stallscope.words import CAUSES, ENTRIES, STAGES, LedgerPart, PartByCause

from ..steps.alignment import PAUSES

#: Time between steps, by kind.
GAPS = (*PAUSES, "epoch_gap")
# Quantities of the reference and the critical rank of each step.
_OF_ROLES = ("arrival", "input", "compute")

#: Fields of a ledger that have a number per step and rank.
PER_RANK = ("cells",)
#: Bytes of these fields per step and rank.
BYTES_PER_RANK = 4 * 8 + 1


@dataclass(frozen=True)
class Ledger:
    """n steps of one generation (or several, one after the other), int64 nanoseconds."""

    ranks: tuple[int, ...]
    steps: Ints
    epochs: Ints
    #: R(i) on the reference clock.
    reduced: Ints
    #: The whole step, without cuts.
    total: Ints
    #: n × R: ``input``; ``compute``; ``arrival``, the time from the step's start until the rank's
    #: gradients were ready; ``measured``, false if a timestamp is missing and the reference rank's
    #: figures are used; ``samples``, NULL if unknown; and ``elements`` of batches, if they vary.
    cells: Matrix
    allreduce: Ints
    #: Positions in ``ranks`` of the critical rank, of the second last rank (the critical rank itself if
    #: it is the only one), and of the reference rank.
    critical: Ints
    second: Ints
    reference: Ints
    #: Wall time between R(i−1) and R(i) outside of the step: n × 3, in the order of GAPS.
    gaps: Ints
    #: Whether a training session starts with this step.
    session_start: Bools
    #: Per step, the least lateness of its latest timestamp.
    late: Ints
    #: The error of R(i) that all steps share, from the clocks, nanoseconds (SD).
    boundary_sd: float

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def input(self) -> Ints:
        """n × R."""
        return self.cells.whole("input")

    @property
    def compute(self) -> Ints:
        """n × R."""
        return self.cells.whole("compute")

    @property
    def arrival(self) -> Ints:
        """n × R."""
        return self.cells.whole("arrival")

    @property
    def measured(self) -> Bools:
        """n × R."""
        return self.cells.whole("measured")

    @property
    def samples(self) -> Ints:
        """n × R."""
        return self.cells.whole("samples")

    @property
    def other(self) -> Ints:
        """n × R: from R(i−1), or the rank's own completion, to the rank's start of the step."""
        return self.cells.whole("other")

    @property
    def wait(self) -> Ints:
        """n × R: from the rank's own gradients ready until the last rank's are."""
        return self.last[:, None] - self.arrival

    @cached_property
    def last(self) -> Ints:
        """Per step, when the last rank's gradients were ready, from the step's start."""
        return self._of_role("arrival", "critical")

    @property
    def imbalance(self) -> Ints:
        """Per step, how much later the critical rank was than the reference rank."""
        return self.last - self._of_role("arrival", "reference")

    def of(self, name: str, rank: Ints) -> Ints:
        """Return, per step, a quantity of ``cells`` or a stage, of the rank at this position."""
        return self.cells.at(name, np.arange(len(self)), rank)

    def excess(self, name: str) -> Ints:
        """Return how much longer a stage of the critical rank is than the reference rank's, per step."""
        return self.by_cause(name) - self.entry(name)

    @property
    def cause(self) -> Ints:
        """Per step, the stage with the largest excess of the critical over the reference rank."""
        return np.asarray(np.argmax(np.stack([self.excess(name) for name in STAGES]), axis=0))

    def entry(self, name: str) -> Ints:
        """Return an entry of the ledger per step: input, compute, other, imbalance or allreduce."""
        if name in STAGES:
            return self._of_role(name, "reference")
        return self.imbalance if name == "imbalance" else self.allreduce

    def by_cause(self, name: str) -> Ints:
        """Return an entry of the ledger by cause per step: a stage of the critical rank, or allreduce.

        The critical rank's stages include the time that others wait, so the four entries add up to
        the step.
        """
        return self.allreduce if name == "allreduce" else self._of_role(name, "critical")

    def _of_role(self, name: str, role: str) -> Ints:
        """Return ``of`` for the critical or the reference rank of each step."""
        times = self._roles[role]
        if name == "other":
            return times["arrival"] - times["input"] - times["compute"]
        return times[name]

    @cached_property
    def _roles(self) -> dict[str, dict[str, Ints]]:
        """Quantities of the reference and critical ranks, looked up once for all figures."""
        quantities = np.concatenate(
            self.cells.by_steps(_of_roles, self.reference, self.critical), axis=-1
        )
        return {
            role: dict(zip(_OF_ROLES, values, strict=True))
            for role, values in zip(("reference", "critical"), quantities, strict=True)
        }

    def mean_ms(self, name: str, by_cause: bool = False) -> Mean:
        """Return the mean of an entry in milliseconds, with its interval."""
        per_step = self.by_cause(name) if by_cause else self.entry(name)
        return self.widened_by_clocks(name, mean_with_interval(per_step)).scaled(1e-6)

    def widened_by_clocks(self, name: str, mean: Mean) -> Mean:
        """Widen a mean in nanoseconds by the errors of clocks and late timestamps."""
        if name in ("other", "allreduce"):
            mean = mean.with_error(2 * self.boundary_sd)
        if name in ("compute", "allreduce") and len(self):
            # Timestamps of other steps may be as late as those that causality reveals.
            mean = mean.widened(float(self.late.mean()))
        return mean

    @cached_property
    def rank_means(self) -> dict[str, Floats]:
        """Return means of the stages and of ``wait`` per rank, nanoseconds per measured step.

        NaN where a rank measured no step.
        """
        count, *sums = self.cells.summed(_rank_sums, self.last)
        measured = np.where(count, count, np.nan)
        return {name: total / measured for name, total in zip((*STAGES, "wait"), sums, strict=True)}

    @cached_property
    def last_shares(self) -> Floats:
        """Return how often each rank was last, of the steps that it measured; NaN without any."""
        times = np.bincount(self.critical, minlength=len(self.ranks))
        steps = self.cells.summed(measured_steps)
        return np.asarray(times / np.where(steps, steps, np.nan))

    def take(self, chosen: Bools) -> Ledger:
        """Return the ledger of the chosen steps."""
        return Ledger(**{name: _rows(value, chosen) for name, value in _fields(self).items()})


def mean_over_ranks(block: Block, name: str, ranks: Ints | None = None) -> Floats:
    """Kernel: compute the mean of a quantity over all ranks, or some of them, per step."""
    return np.asarray((block[name] if ranks is None else block.of(name, ranks)).mean(axis=1))


def measured_steps(block: Block, ranks: Ints | None = None) -> Ints:
    """Kernel: count the steps that each rank, or each of some ranks, measured."""
    measured = block["measured"] if ranks is None else block.of("measured", ranks)
    return np.asarray(measured.sum(axis=0))


def _rank_sums(block: Block, last: Ints) -> Ints:
    """Kernel: count measured steps and add up each stage and the wait, per rank."""
    measured = block["measured"]
    times, lasts = [block[name] for name in _OF_ROLES], last[block.steps]
    count, last_sum = np.full(len(block.ranks), len(lasts)), lasts.sum()
    if not measured.all():
        times = [np.where(measured, values, 0) for values in times]
        count, last_sum = measured.sum(axis=0), measured.T @ lasts
    arrival, fetch, compute = (values.sum(axis=0) for values in times)
    return np.array([count, fetch, compute, arrival - fetch - compute, last_sum - arrival])


def _of_roles(block: Block, *roles: Ints) -> Ints:
    """Kernel: look up quantities of the ranks in each role: roles × quantities × steps."""
    at = np.arange(block.shape[0])
    if not len(block.ranks):
        return np.zeros((len(roles), len(_OF_ROLES), 0), np.int64)
    return np.array(
        [[block.at(name, at, role[block.steps]) for name in _OF_ROLES] for role in roles]
    )


def concatenated(ledgers: Sequence[Ledger]) -> Ledger | None:
    """Concatenate ledgers of generations with the same ranks; None if there are none."""
    if len(ledgers) < 2:
        return next(iter(ledgers), None)
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(ledger, name) for ledger in ledgers])
        if isinstance(value, np.ndarray)
        else value
        for name, value in _fields(ledgers[-1]).items()
    }
    cells = ledgers[0].cells.followed_by([ledger.cells for ledger in ledgers[1:]])
    return Ledger(**{**joined, "cells": cells})


def _fields(ledger: Ledger) -> dict[str, Any]:
    return {name: getattr(ledger, name) for name in Ledger.__dataclass_fields__}


def _rows(value: Any, chosen: Bools) -> Any:
    """Return the chosen steps of a ledger's field."""
    if isinstance(value, Matrix):
        return value.take(chosen)
    return value[chosen] if isinstance(value, np.ndarray) else value


# -- Restore ledgers from the analysis cache ------------------------------------------------------
#
# Figures per step are stored, others are made on demand.


class CachedLedger(Ledger):
    """A ledger with stored figures per step; figures per rank are made when they are first read."""

    @classmethod
    def from_cache(
        cls,
        per_step: Mapping[str, Any],
        entries: Mapping[str, Ints],
        causes: Mapping[str, Ints],
        make: Callable[[], Ledger | None],
    ) -> CachedLedger:
        """Make a ledger from stored figures per step.

        Args:
            per_step: all fields but those per rank.
            entries: the nanoseconds per step of each entry of the ledger.
            causes: the same for the ledger by cause.
            make: makes the ledger from the run's steps.
        """
        ledger = cls.__new__(cls)
        # Set the fields of a frozen dataclass; __getattr__ makes the missing ones.
        vars(ledger).update(per_step, _make=make, _making=Lock())
        vars(ledger).update(_entries=dict(entries), _causes=dict(causes))
        vars(ledger)["last"] = ledger.total - ledger.allreduce
        return ledger

    def __getattr__(self, name: str) -> Any:
        if name not in PER_RANK:
            raise AttributeError(name)
        with self._making:
            if name not in vars(self):
                ledger = self._make()
                vars(self).update({quantity: getattr(ledger, quantity) for quantity in PER_RANK})
        return vars(self)[name]

    @property
    def pending_bytes(self) -> int:
        """Bytes of the fields that are made on demand."""
        return len(self.steps) * len(self.ranks) * BYTES_PER_RANK

    @property
    def imbalance(self) -> Ints:
        return self.entry("imbalance") if "_entries" in vars(self) else super().imbalance

    def entry(self, name: str) -> Ints:
        known: Mapping[str, Ints] | None = vars(self).get("_entries")
        return super().entry(name) if known is None else known[name]

    def by_cause(self, name: str) -> Ints:
        known: Mapping[str, Ints] | None = vars(self).get("_causes")
        return super().by_cause(name) if known is None else known[name]


def entries_of(ledger: Ledger) -> dict[str, Ints]:
    """Return the nanoseconds per step of each entry of a ledger."""
    return {name: np.asarray(ledger.entry(name)) for name in ENTRIES}


def causes_of(ledger: Ledger) -> dict[str, Ints]:
    """Return the nanoseconds per step of each entry of a ledger by cause."""
    return {name: np.asarray(ledger.by_cause(name)) for name in CAUSES}


# -- Make the entries of both ledgers: means over the steady steps, compared with baselines --------


@dataclass(frozen=True)
class LedgerEntry:
    """One entry of the ledger: its mean over the steady steps. Excess is over the baseline's."""

    name: LedgerPart
    ms: float
    #: Fraction of the step time.
    share: float
    ci95_ms: tuple[float, float] | None
    baseline_ms: float | None = None
    excess_ms: float | None = None
    excess_ci95_ms: tuple[float, float] | None = None
    #: The same entry of the run on one rank.
    single_ms: float | None = None


@dataclass(frozen=True)
class CauseEntry(LedgerEntry):
    """One entry of the ledger by cause: the critical rank's own stage, or exposed allreduce.

    ``waiting_ms`` is how much longer the critical rank's stage takes than the reference rank's: the time
    that the other ranks wait for it. It is negative if the critical rank's stage is shorter, and None if
    only one of several ranks has a log.
    """

    name: PartByCause
    waiting_ms: float | None = 0.0


def waiting_part(entry: CauseEntry) -> float:
    """Return the milliseconds of a stage that other ranks wait for; never negative."""
    return min(max(entry.waiting_ms or 0.0, 0.0), max(entry.ms, 0.0))


def ledger_entries(
    steady: Ledger,
    base: Sequence[LedgerEntry],
    alone: Sequence[LedgerEntry],
    waiting_known: bool,
) -> tuple[LedgerEntry, ...]:
    """Make the entries of the ledger with imbalance, compared with the baseline and one rank.

    Args:
        steady: steady steps.
        base: the same entries of the baseline; empty without one.
        alone: the same entries of the run on one rank; empty without one.
        waiting_known: False if only one of several ranks has a log: then imbalance is left out.
    """
    return tuple(
        LedgerEntry(
            **_entry(
                steady,
                steady.mean_ms(name),
                _named(name, base),
                _named(name, alone),
            ),
            name=name,
        )
        for name in ENTRIES
        if waiting_known or name != "imbalance"
    )


def cause_entries(
    steady: Ledger,
    base: Sequence[LedgerEntry],
    alone: Sequence[LedgerEntry],
    waiting_known: bool,
) -> tuple[CauseEntry, ...]:
    """Make the entries of the ledger by cause; see ``ledger_entries`` for the arguments."""
    return tuple(
        CauseEntry(
            **_entry(
                steady,
                steady.mean_ms(name, by_cause=True),
                _named(name, base),
                _named(name, alone),
            ),
            name=name,
            waiting_ms=_waiting_ms(steady, name) if waiting_known else None,
        )
        for name in CAUSES
    )


def _named(name: str, entries: Sequence[LedgerEntry]) -> LedgerEntry | None:
    return next((entry for entry in entries if entry.name == name), None)


def _waiting_ms(steady: Ledger, name: str) -> float:
    return float(steady.excess(name).mean()) / 1e6 if name in STAGES else 0.0


def _entry(
    steady: Ledger, mean: Mean, base: LedgerEntry | None, alone: LedgerEntry | None
) -> dict[str, Any]:
    """Compute the fields that the entries of both ledgers share."""
    step = float(steady.total.mean()) / 1e6
    excess = None if base is None else mean.minus(Mean(base.ms, base.ci95_ms))
    return {
        "ms": mean.value,
        "share": mean.value / step if step else 0.0,
        "ci95_ms": mean.ci95,
        "baseline_ms": None if base is None else base.ms,
        "excess_ms": None if excess is None else excess.value,
        "excess_ci95_ms": None if excess is None else excess.ci95,
        "single_ms": None if alone is None else alone.ms,
    }
