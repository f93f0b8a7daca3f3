"""Any order of a run's rows gives the same steps and ranks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from simulator import Job, simulate

from stallscope.arrays import pivot as module
from stallscope.arrays.memory import in_memory
from stallscope.arrays.pivot import Pivoted, pivot

NAMES = ("begin", "reduced", "samples")
STEPS = simulate(Job(ranks=5, steps=60, epochs=3, first_step=7)).run.steps


def replaced(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    index = table.schema.get_field_index(name)
    return table.set_column(index, name, values.cast(table.schema.field(name).type))


def with_sessions(table: pa.Table) -> pa.Table:
    """Make every rank start another log in the middle, one of them earlier."""
    rank, step = table["rank"].to_numpy(), table["step"].to_numpy()
    later = step >= np.where(rank == 2, 20, 40)
    return replaced(table, "log", pa.array(np.where(later, rank + 5, rank)))


def with_holes(table: pa.Table) -> pa.Table:
    """Remove one timestamp and some epochs."""
    draws = np.random.default_rng(1).random(table.num_rows)
    for name, missing in (("reduced", draws < 0.01), ("epoch", draws < 0.3)):
        table = replaced(table, name, pa.array(table[name].to_numpy(), mask=missing))
    return table


def scattered(table: pa.Table) -> pa.Table:
    """Return the rows log by log, but the ranks in another order."""
    order = np.lexsort((table["step"].to_numpy(), -table["rank"].to_numpy()))
    return table.take(pa.array(order)).combine_chunks()


def assert_alike(first: Pivoted, second: Pivoted) -> None:
    assert first.ranks == second.ranks
    for name in ("steps", "epochs", "session_start"):
        assert np.array_equal(getattr(first, name), getattr(second, name)), name
    for name in NAMES:
        assert np.array_equal(first.cells.whole(name), second.cells.whole(name)), name


@pytest.mark.parametrize("rows_at_a_time", [2**20, 130, 16])
@pytest.mark.parametrize("sessions", [None, [0, 1, 2, 3, 4, 5, 6, 2, 8, 9]])
@pytest.mark.parametrize("table", [STEPS, with_sessions(STEPS), with_holes(STEPS)])
def test_consecutive_ranks_equal_scattered_rows(
    table: pa.Table,
    sessions: list[int] | None,
    rows_at_a_time: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "ROWS", rows_at_a_time)
    session_array = None if sessions is None else np.array(sessions)
    whole = pivot(table, NAMES, in_memory, session_array)
    assert_alike(whole, pivot(scattered(table), NAMES, in_memory, session_array))
    halves = pa.concat_tables([table.slice(0, 100), table.slice(100)])
    assert_alike(whole, pivot(halves, NAMES, in_memory, session_array))
    assert len(whole.steps) == 60


def test_consecutive_ranks_are_not_copied() -> None:
    cells = pivot(STEPS, NAMES, in_memory).cells
    assert np.shares_memory(cells.whole("begin"), STEPS["begin"].to_numpy())


@pytest.mark.parametrize(
    ("table", "complete"), [(STEPS, True), (with_holes(STEPS), False), (STEPS.slice(1), False)]
)
def test_rows_without_a_timestamp_are_incomplete(table: pa.Table, complete: bool) -> None:
    assert pivot(table, NAMES, in_memory).complete is complete


@pytest.mark.parametrize("row", [0, 130, 299])
@pytest.mark.parametrize("name", ["rank", "step"])
def test_a_single_row_out_of_place_is_found(name: str, row: int) -> None:
    # Of another rank, or of another step, so that one rank lacks a step and none is twice.
    values = STEPS[name].to_numpy().copy()
    values[row] = 9 if name == "rank" else 999
    pivoted = pivot(replaced(STEPS, name, pa.array(values)), NAMES, in_memory)
    rank, step = (
        values[row] if name == "rank" else STEPS["rank"][row].as_py(),
        values[row] if name == "step" else STEPS["step"][row].as_py(),
    )
    at = (int(np.searchsorted(pivoted.steps, step)), pivoted.ranks.index(int(rank)))
    assert pivoted.cells.whole("begin")[at] == STEPS["begin"][row].as_py()
    assert pivoted.cells.whole("begin").size > STEPS.num_rows
