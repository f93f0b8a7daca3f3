"""Check that a job is valid before it is simulated."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .job import Job

_AT_LEAST_ONE = ("ranks", "epochs", "ranks_per_host")
_AT_LEAST_ZERO = (
    "steps",
    "prefetch",
    "input_ms",
    "compute_ms",
    "other_ms",
    "jitter_ms",
    "skew",
    "batch_size",
    "tracing_ms",
    "validation_ms",
    "checkpoint_ms",
    "epoch_gap_ms",
    "rank_spread",
    "generation",
    "first_step",
    "seed",
)


def check(job: Job) -> None:
    """Check a job.

    Raises:
        ValueError: if the job is invalid, with what is allowed.
    """
    _check_sizes(job)
    _check_ranks(job)
    _check_hosts(job)
    _check_clocks(job)


def _check_sizes(job: Job) -> None:
    if job.cores_per_host is not None and not job.cores_per_host >= 1:
        raise ValueError(f"cores_per_host is {job.cores_per_host}; it must be None or at least 1")
    if job.cores_per_host is not None and job.prefetch:
        raise ValueError("prefetching loaders (prefetch) are not simulated on shared cores")
    for least, names in ((1, _AT_LEAST_ONE), (0, _AT_LEAST_ZERO)):
        for name in names:
            if not getattr(job, name) >= least:
                raise ValueError(f"{name} is {getattr(job, name)}; it must be at least {least}")
    if not 0 <= job.lost_rows <= 1:
        raise ValueError(f"lost_rows is {job.lost_rows}; it must be between 0 and 1")
    if not all(factor > 0 for factor in job.samples_factor.values()):
        raise ValueError("all factors in samples_factor must be above 0")
    if not all(0 <= steps <= job.steps for steps in job.cut_ranks.values()):
        raise ValueError(f"a log in cut_ranks must have between 0 and {job.steps} steps")


def _check_ranks(job: Job) -> None:
    named: dict[str, Collection[int]] = {
        "samples_factor": job.samples_factor,
        "validation_ranks": job.validation_ranks or (),
        "checkpoint_ranks": job.checkpoint_ranks or (),
        "lost_ranks": job.lost_ranks,
        "cut_ranks": job.cut_ranks,
        **{f"faults[{index}]": fault.ranks for index, fault in enumerate(job.faults)},
    }
    for where, ranks in named.items():
        for rank in ranks:
            if not 0 <= rank < job.ranks:
                raise ValueError(
                    f"{where} names rank {rank}; the job's ranks are 0 to {job.ranks - 1}"
                )
    if len(set(job.lost_ranks)) == job.ranks:
        raise ValueError("every rank is in lost_ranks; at least one rank must have a log")


def _check_hosts(job: Job) -> None:
    names, count = job.hosts, job.host_count
    if len(names) != count or len(set(names)) != count:
        raise ValueError(
            f"host_names contains {len(set(names))} different names for {count} hosts: "
            f"{job.ranks} ranks, {job.ranks_per_host} per host"
        )
    for index, fault in enumerate(job.faults):
        for name in fault.hosts:
            if name not in names:
                raise ValueError(
                    f"faults[{index}] names host {name!r}; the hosts are {names[0]} to {names[-1]}"
                )


def _check_clocks(job: Job) -> None:
    clocks, hosts = job.clocks, job.host_count
    if len(clocks.offsets_ms) not in (0, hosts):
        raise ValueError(f"the clocks have {len(clocks.offsets_ms)} offsets for {hosts} hosts")
    changes = [(slew.host, slew.last_step) for slew in clocks.slews]
    changes += [(jump.host, jump.step) for jump in clocks.jumps]
    for host, step in changes:
        if host == 0:
            raise ValueError("host 0 has the true clock; change the clock of another host")
        if not 0 < host < hosts:
            raise ValueError(f"the clock of host {host} changes; the hosts are 0 to {hosts - 1}")
        if step >= job.steps:
            raise ValueError(f"a clock changes in step {step}; the last is {job.steps - 1}")
