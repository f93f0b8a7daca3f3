"""Simulated jobs, analysed, and what recorders count in their batches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from simulator import Job, simulate

from stallscope.analysis import Analysis, analyse
from stallscope.run import Run


def analysis_of_job(job: Job) -> Analysis:
    """Simulate a job and analyse its run, without writing logs."""
    return analyse(simulate(job).run)


def in_mesh(run: Run) -> Run:
    """Return a run of 2 n ranks in a mesh: n pipeline stages of neighbours, and two replicas of them."""
    logs = []
    for log in run.logs:
        stage, replica = divmod(log.rank, 2)
        groups = [
            {"name": "pp", "first": replica, "stride": 2, "size": run.size // 2},
            {"name": "dp", "first": 2 * stage, "stride": 1, "size": 2},
        ]
        logs.append(replace(log, facts={**log.facts, "groups": groups}))
    return replace(run, logs=tuple(logs))


def padded(run: Run, share: Any, **facts: object) -> Run:
    """Return a run whose recorders have counted padding in one of eight batches.

    Args:
        run: a run whose batches have 40,000 places each, unless their elements are known.
        share: that of the padding: in all batches, or in each that was counted.
        facts: more facts of its logs.
    """
    chosen = run.steps.filter(pc.equal(pc.bit_wise_and(run.steps["step"], 7), 0))
    elements = chosen["elements"].to_numpy() if chosen["elements"].null_count == 0 else None
    places = np.full(chosen.num_rows, 40_000) if elements is None else elements
    padding = np.rint(share * places).astype(np.int64)
    logs = tuple(replace(log, facts={**log.facts, **facts}) for log in run.logs)
    return replace(_with_tokens(run, "padding", chosen, places - padding, padding), logs=logs)


def routed(run: Run) -> Run:
    """Return a run whose recorders have noted its batches' elements as tokens of experts instead."""
    steps, tokens = run.steps, run.steps["elements"].to_numpy()
    noted = _with_tokens(run, "routed", steps, tokens, np.zeros_like(tokens))
    at = steps.schema.get_field_index("elements")
    unknown = pa.nulls(run.rows, steps.schema.field(at).type)
    return replace(noted, steps=steps.set_column(at, steps.schema.field(at), unknown))


def _with_tokens(run: Run, kind: str, steps: pa.Table, tokens: Any, padding: Any) -> Run:
    """Return a run with a row of this kind in each of these steps."""
    columns = {
        **{name: steps[name] for name in ("log", "generation", "rank", "step", "begin")},
        "kind": pa.array([kind] * steps.num_rows),
        "end": steps["begin"],
        "steps": pa.array(padding),
        "samples": pa.array(tokens),
    }
    schema = run.intervals.schema
    arrays = [
        columns[field.name].cast(field.type)
        if field.name in columns
        else pa.nulls(steps.num_rows, field.type)
        for field in schema
    ]
    rows = pa.table(arrays, schema=schema)
    return replace(run, intervals=pa.concat_tables([run.intervals, rows]))
