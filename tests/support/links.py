"""Runs with records of the links between hosts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
from simulator import Clocks, Fault, Job, simulate

from stallscope.run import TIMESTAMPS, Run

HOSTS = ("h1", "h2", "h3", "h4")


def address(host: str) -> str:
    return f"10.0.0.{host[1:]}"


def row(local: str, peer: str, **changes: Any) -> dict[str, Any]:
    known = {
        "local": address(local),
        "peer": address(peer),
        "sent_kb": 200_000,
        "busy_ms": 2000,
        "limited_ms": 0,
        "rate_kb_s": [90_000, 100_000, 110_000],
        "round_trip_us": [80, 100, 120],
        "least_round_trip_us": 5,
        "retransmitted": 3,
    }
    return {**known, **changes}


SLOW = {"rate_kb_s": [4000, 4500, 4800], "round_trip_us": [14_000, 27_000, 46_000]}


def run_with_links(
    slow: bool, wall_ms: float = 0.0, skew_ms: float = 0.0, compute_ms: float = 0.0
) -> Run:
    """Return a run of a ring of three hosts; the last one may have a slow link.

    Args:
        slow: whether the last host has a slow link.
        wall_ms: by how much the second host's wall clock is ahead.
        skew_ms: by how much the second host's allreduces complete later than elsewhere. It starts its
            next step late, and all wait for it: each step is longer by that.
        compute_ms: by how much the second rank computes longer.
    """
    clocks = Clocks(offsets_ms=[0.0, 500.0, 900.0])
    faults = [Fault("compute", compute_ms, ranks=(1,), cv=0)] if compute_ms else []
    job = Job(ranks=3, ranks_per_host=1, steps=300, compute_ms=24.0, clocks=clocks, faults=faults)
    run = simulate(replace(job, host_names=HOSTS[:3])).run
    logs = []
    for log, peer in zip(run.logs, (2, 0, 1), strict=True):
        changes = SLOW if slow and "h3" in (log.host, HOSTS[peer]) else {}
        rows = [row(log.host, HOSTS[peer], **changes)]
        offset = round(([0.0, 500.0, 900.0][log.rank]) * 1e6)
        anchor = {
            "monotonic_ns": log.anchor,
            "wall_ns": 10**18 + log.anchor - offset + round(wall_ms * 1e6) * (log.rank == 1),
        }
        facts = {**log.facts, "connections": rows, "gradient_bytes": 1_000_000, "anchor": anchor}
        logs.append(replace(log, facts=facts))
    return replace(run, logs=tuple(logs), steps=_completing_late(run.steps, round(skew_ms * 1e6)))


def _completing_late(steps: pa.Table, skew: int) -> pa.Table:
    step, second = (steps[name].to_numpy() for name in ("step", "rank"))
    for name in TIMESTAMPS:
        later = step + (second == 1) + (name in ("reduced", "end"))
        moved = steps[name].to_numpy() + skew * later
        at = steps.schema.get_field_index(name)
        steps = steps.set_column(at, steps.schema.field(name), [moved])
    return steps
