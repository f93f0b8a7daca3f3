"""Steps are read back from row groups of any layout, and only the requested ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from simulator import Job, simulate

from stallscope.arrays.memory import MEMORY
from stallscope.collector.store import step_files
from stallscope.collector.store.step_files import read_steps, write_rows
from stallscope.run import STEPS_SCHEMA, TIMESTAMPS

STEPS = simulate(Job(ranks=6, steps=700, epochs=3)).run.steps


@dataclass(frozen=True)
class WrittenSteps:
    """Files, and their full content."""

    paths: list[Path]
    steps: pa.Table


def with_holes() -> pa.Table:
    """Make steps without some timestamps and samples, and without the epochs of the last ranks."""
    drawn = np.random.default_rng(1).random(STEPS.num_rows)
    none = pa.scalar(None, pa.int64())
    table = STEPS
    for name, missing in (
        ("reduced", drawn < 0.1),
        ("samples", drawn < 0.5),
        ("epoch", STEPS["rank"].to_numpy() > 3),
    ):
        filled = pc.if_else(pa.array(missing), none.cast(table[name].type), table[name])
        table = table.set_column(table.schema.get_field_index(name), name, filled)
    return table.cast(STEPS_SCHEMA)


@pytest.fixture(params=["by log", "by epoch", "ten rows", "no statistics"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> WrittenSteps:
    steps, paths = with_holes(), [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    half = STEPS.num_rows // 2
    parts = [steps.slice(0, half), steps.slice(half)]
    if request.param == "by epoch":
        late = pc.fill_null(pc.greater(steps["epoch"], 0), True)
        parts = [steps.filter(pc.invert(late)), steps.filter(late)]
    for path, part in zip(paths, parts, strict=True):
        if request.param == "ten rows":
            pq.write_table(part, path, row_group_size=10)
        elif request.param == "no statistics":
            pq.write_table(part, path, row_group_size=500, write_statistics=False)
        else:
            write_rows(part, path)
    return WrittenSteps(paths, pa.concat_tables(parts).combine_chunks())


@pytest.fixture(params=["a thread", "threads"])
def at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "threads":
        monkeypatch.setattr(step_files, "_ROWS_AT_A_TIME", 64)
        monkeypatch.setattr(step_files, "_ROWS_PER_TASK", 256)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("memory", ["1GB", "1kB"])
def test_all_rows_come_back_in_their_order_and_timestamps_in_one_piece(
    written: WrittenSteps, memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MEMORY, memory)
    back = read_steps(written.paths)
    assert back.equals(written.steps)
    assert {back[name].num_chunks for name in TIMESTAMPS} == {1}


@pytest.mark.usefixtures("at_once")
def test_what_all_ranks_have_in_common_is_in_memory_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_files, "FEWEST_ROWS", 500)
    monkeypatch.setattr(step_files, "_ROWS_OF_SEVERAL_LOGS", 500)
    write_rows(STEPS, tmp_path / "a.parquet")
    back = read_steps([tmp_path / "a.parquet"])
    assert back.equals(STEPS)
    for name, places in (("step", 1), ("epoch", 1), ("micro", 1), ("rank", 6), ("samples", 1)):
        addresses = {chunk.buffers()[1].address + chunk.offset for chunk in back[name].chunks}
        assert len(addresses) == places, name


def test_a_column_that_a_file_lacks_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "old.parquet"
    pq.write_table(STEPS.drop_columns(["samples"]), path)
    back = read_steps([path])
    assert back["samples"].null_count == STEPS.num_rows
    assert back.drop_columns(["samples"]).equals(STEPS.drop_columns(["samples"]))


def test_narrower_numbers_are_read_as_the_schema_has_them(tmp_path: Path) -> None:
    path = tmp_path / "narrow.parquet"
    index = STEPS.schema.get_field_index("step")
    pq.write_table(STEPS.set_column(index, "step", STEPS["step"].cast(pa.int32())), path)
    assert read_steps([path]).equals(STEPS)
