"""The table of steps and ranks, rank by rank; values that were not measured are null.

| column | is |
| --- | --- |
| ``begin_ns`` | when the rank started the step, on the run's time line |
| ``input_ns``, ``compute_ns``, ``other_ns``, ``wait_ns`` | the rank's own stages |
| ``allreduce_ns`` | exposed allreduce, the same for all ranks |
| ``step_ns`` | the whole step, the sum of these five; without stages, until the next step starts |
| ``critical``, ``reference`` | whether the rank came last, and whether others are compared with it |
| ``elements`` | numbers in the first array of its batches, if they vary |
| ``garbage_collection_ns``, ``compilation_ns``, ``saving_ns`` | pauses since the last step ended |
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from stallscope import __version__
from stallscope.analysis.views.one_step import pauses_by_step
from stallscope.arrays.blocks import NULL
from stallscope.arrays.types import Bools, Ints
from stallscope.formatting.plain import plain
from stallscope.words import PAUSES_IN_STEPS, RANK_PARTS

from .exported_run import ExportedRun, Generation
from .trace import next_begin

SCHEMA = pa.schema(
    [
        pa.field("run_id", pa.string(), nullable=False),
        pa.field("generation", pa.int32(), nullable=False),
        pa.field("step", pa.int64(), nullable=False),
        pa.field("epoch", pa.int32()),
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("host", pa.string(), nullable=False),
        *(pa.field(f"{name}_ns", pa.int64()) for name in ("begin", *RANK_PARTS, "step")),
        pa.field("critical", pa.bool_()),
        pa.field("reference", pa.bool_()),
        pa.field("samples", pa.int64()),
        pa.field("elements", pa.int64()),
        *(pa.field(f"{kind}_ns", pa.int64()) for kind in PAUSES_IN_STEPS),
    ]
)

_STAMPS = ("begin", "data", "ready", "reduced", "end")


def write_parquet(exported: ExportedRun, file: BinaryIO) -> None:
    """Write with Zstandard and one row group per rank, so that readers can load single ranks."""
    with pq.ParquetWriter(file, _schema_of(exported), compression="zstd") as writer:
        for table in tables(exported):
            writer.write_table(table)


def _schema_of(exported: ExportedRun) -> pa.Schema:
    """Return the columns, with the origin of times."""
    facts = {"version": __version__, "times": exported.note, "wall_ns_at_0": exported.wall_ns}
    return SCHEMA.with_metadata({"stallscope": json.dumps(facts)})


def tables(exported: ExportedRun) -> Iterator[pa.Table]:
    """Yield the rows of one rank after the other, in the order of generations and steps."""
    for rank in exported.ranks:
        parts = [
            _rows(exported, generation, generation.aligned.ranks.index(rank))
            for generation in exported.generations
            if rank in generation.aligned.ranks
        ]
        yield pa.concat_tables(parts)


def _rows(exported: ExportedRun, generation: Generation, rank: int) -> pa.Table:
    aligned = generation.aligned
    stamps = {name: getattr(aligned, name)[:, rank] for name in _STAMPS}
    recorded = np.logical_or.reduce([column != NULL for column in stamps.values()])
    chosen = recorded & exported.selection.steps(aligned.steps)
    columns = {
        **_stages(generation, rank, stamps),
        "epoch": _array(aligned.epochs, aligned.epochs >= 0, pa.int32()),
        "begin_ns": _nullable(generation.on_line(stamps["begin"], rank)),
        "samples": _nullable(aligned.samples[:, rank]),
        "elements": _elements(generation, rank),
        **_pauses(exported, generation, rank),
    }
    count = int(chosen.sum())
    arrays = {name: column.filter(pa.array(chosen)) for name, column in columns.items()}
    same = {
        "run_id": plain(exported.run.id),
        "generation": aligned.generation,
        "rank": aligned.ranks[rank],
        "host": plain(aligned.hosts[rank]),
    }
    for name, value in same.items():
        arrays[name] = pa.repeat(pa.scalar(value, SCHEMA.field(name).type), count)
    arrays["step"] = pa.array(aligned.steps[chosen])
    return pa.table([arrays[name] for name in SCHEMA.names], schema=_schema_of(exported))


def _elements(generation: Generation, rank: int) -> pa.Array:
    cells = generation.aligned.cells
    if "elements" not in cells.names:
        return pa.nulls(cells.shape[0], pa.int64())
    return _nullable(cells.columns("elements", [rank])[:, 0])


def _pauses(exported: ExportedRun, generation: Generation, rank: int) -> dict[str, pa.Array]:
    spent = pauses_by_step(exported.run, generation.aligned, rank)
    nothing = pa.nulls(len(generation.aligned.steps), pa.int64())
    return {
        f"{kind}_ns": pa.array(spent[kind]) if kind in spent else nothing
        for kind in PAUSES_IN_STEPS
    }


def _stages(generation: Generation, rank: int, stamps: dict[str, Ints]) -> dict[str, pa.Array]:
    """Return the rank's stages from the ledger, and input and compute from its timestamps."""
    ledger, at = generation.ledger, generation.in_ledger
    position = np.maximum(at, 0)
    in_ledger = at >= 0
    if not len(ledger):
        nothing = pa.nulls(len(at), pa.int64())
        names = ("other_ns", "wait_ns", "allreduce_ns")
        return {
            **_own_stages(generation, rank, stamps),
            **dict.fromkeys(names, nothing),
            "step_ns": _until_next(generation, stamps["begin"]),
            **dict.fromkeys(("critical", "reference"), pa.nulls(len(at), pa.bool_())),
        }
    measured = in_ledger & ledger.measured[position, rank]
    arrival = ledger.arrival[position, rank]
    other_ns = arrival - ledger.input[position, rank] - ledger.compute[position, rank]
    return {
        **_own_stages(generation, rank, stamps),
        "other_ns": _array(other_ns, measured),
        "wait_ns": _array(ledger.last[position] - arrival, measured),
        "allreduce_ns": _array(ledger.allreduce[position], measured),
        "step_ns": _array(ledger.total[position], in_ledger),
        "critical": _array(ledger.critical[position] == rank, measured),
        "reference": _array(ledger.reference[position] == rank, measured),
    }


def _own_stages(generation: Generation, rank: int, stamps: dict[str, Ints]) -> dict[str, pa.Array]:
    known = {name: column != NULL for name, column in stamps.items()}
    # All timestamps, but not measured: the clock was set within this step.
    whole = np.logical_and.reduce(list(known.values()))
    sound = generation.aligned.measured[:, rank] | ~whole
    begin, data, ready = (stamps[name] for name in ("begin", "data", "ready"))
    return {
        "input_ns": _array(data - begin, sound & known["begin"] & known["data"]),
        "compute_ns": _array(ready - data, sound & known["data"] & known["ready"]),
    }


def _until_next(generation: Generation, begin: Ints) -> pa.Array:
    after = next_begin(generation, begin)
    return _array(after - begin, (after != NULL) & (begin != NULL))


def _nullable(values: Ints) -> pa.Array:
    return _array(values, values != NULL)


def _array(values: npt.NDArray[np.generic], known: Bools, kind: pa.DataType = None) -> pa.Array:
    array = pa.array(values, mask=~known)
    return array if kind is None else array.cast(kind)
