"""The table of steps and ranks, as Parquet and as CSV."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from stallscope.analysis.ledger.build import build_ledger
from stallscope.analysis.steps.alignment import align
from stallscope.exports.exported_run import Selection
from stallscope.run import Run

from .decoding import ALL, exported, simulated

COLUMNS = [
    "run_id",
    "generation",
    "step",
    "epoch",
    "rank",
    "host",
    *(f"{n}_ns" for n in ("begin", "input", "compute", "other", "wait", "allreduce", "step")),
    "critical",
    "reference",
    "samples",
    "elements",
    "garbage_collection_ns",
    "compilation_ns",
    "saving_ns",
]
STAGES = ("other", "input", "compute", "wait", "allreduce")


def rows(run: Run, folder: Path, selection: Selection = ALL) -> list[dict[str, object]]:
    path = exported(run, "parquet", folder, selection)
    return list(pq.read_table(path).to_pylist())


def test_rows_are_the_ledgers(tmp_path: Path) -> None:
    run = simulated()
    table = pq.read_table(exported(run, "parquet", tmp_path))
    assert table.column_names == COLUMNS
    assert table.num_rows == 4 * 160
    aligned = align(run, 0)
    ledger = build_ledger(aligned)
    zero = min(aligned.begin[0].tolist())
    for rank in range(4):
        columns = {name: table[name].to_pylist()[rank * 160 : (rank + 1) * 160] for name in COLUMNS}
        assert columns["step"] == list(range(160))
        assert set(columns["rank"]) == {rank}
        assert set(columns["host"]) == {f"host-{rank // 2}"}
        assert columns["begin_ns"] == (aligned.begin[:, rank] - zero).tolist()
        assert columns["other_ns"] == ledger.other[:, rank].tolist()
        assert columns["input_ns"] == ledger.input[:, rank].tolist()
        assert columns["compute_ns"] == ledger.compute[:, rank].tolist()
        assert columns["wait_ns"] == ledger.wait[:, rank].tolist()
        assert columns["allreduce_ns"] == ledger.allreduce.tolist()
        assert columns["step_ns"] == ledger.total.tolist()
        assert columns["critical"] == (ledger.critical == rank).tolist()
        assert columns["reference"] == (ledger.reference == rank).tolist()
        assert set(columns["samples"]) == {32}
        # The recorder has noted none of these.
        assert {*columns["elements"], *columns["garbage_collection_ns"]} == {None}


def test_parquet_has_a_row_group_per_rank_and_documents_its_zero(tmp_path: Path) -> None:
    file = pq.ParquetFile(exported(simulated(), "parquet", tmp_path))
    assert file.num_row_groups == 4
    assert [set(file.read_row_group(n)["rank"].to_pylist()) for n in range(4)] == [
        {rank} for rank in range(4)
    ]
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    facts = json.loads(file.schema_arrow.metadata[b"stallscope"])
    assert facts["times"].startswith("time 0 is the start of the run's first step, 2026-")
    assert facts["wall_ns_at_0"] > 0


def test_stages_add_up_to_the_step_where_they_are_known(tmp_path: Path) -> None:
    run = simulated(ranks=16, ranks_per_host=8, lost_rows=0.02, jitter_ms=1.0)
    exported_rows = rows(run, tmp_path)
    assert len(exported_rows) == run.steps.num_rows
    known = [row for row in exported_rows if row["other_ns"] is not None]
    assert 0 < len(known) < len(exported_rows)
    for row in known:
        assert sum(row[f"{name}_ns"] for name in STAGES) == row["step_ns"]  # type: ignore[misc]
    # Rows that are not in the ledger keep their own timestamps.
    others = [row for row in exported_rows if row["other_ns"] is None]
    assert all(row["input_ns"] is not None and row["wait_ns"] is None for row in others)
    assert all(row["critical"] is None for row in others)


def test_without_stages_the_other_columns_are_kept(tmp_path: Path) -> None:
    exported_rows = rows(simulated(stamps=False), tmp_path)
    assert len(exported_rows) == 4 * 160
    nothing = [f"{name}_ns" for name in STAGES] + ["critical", "reference"]
    assert all(row[name] is None for row in exported_rows for name in nothing)
    assert all(row["begin_ns"] is not None and row["samples"] == 32 for row in exported_rows)
    # The last step, and the last one of the first epoch, have no step after them.
    unknown = {row["step"] for row in exported_rows if row["step_ns"] is None}
    assert unknown == {79, 159}


def test_a_selection_keeps_times(tmp_path: Path) -> None:
    run = simulated()
    whole = rows(run, tmp_path)
    (tmp_path / "out").unlink()
    part = rows(run, tmp_path, Selection(10, 12, frozenset({3, 1})))
    wanted = [row for row in whole if row["rank"] in (1, 3) and 10 <= row["step"] <= 12]  # type: ignore[operator]
    assert part == wanted


def test_csv_equals_parquet(tmp_path: Path) -> None:
    run = simulated(lost_rows=0.02)
    wanted = rows(run, tmp_path)
    path = exported(run, "csv", tmp_path, file="out.csv")
    with path.open(newline="", encoding="utf-8") as file:
        csv_rows = list(csv.DictReader(file))
    assert path.read_bytes().count(b"\r\n") == len(wanted) + 1

    def text(value: object) -> str:
        return "" if value is None else str(value).lower() if value in (True, False) else str(value)

    for row, expected in zip(csv_rows, wanted, strict=True):
        for name in COLUMNS:
            bool_ = name in ("critical", "reference")
            assert row[name] == (
                text(expected[name]) if bool_ or expected[name] is None else str(expected[name])
            )


@pytest.mark.parametrize("evil", ["=1+1", "+1", "-1", "@a", " =1", "＝1", '=a","b"\r\n'])
def test_names_are_not_formulas_and_stay_in_their_cells(evil: str, tmp_path: Path) -> None:
    run = replace(simulated(steps=40, facts={"host": evil}), id=evil)
    path = exported(run, "csv", tmp_path)
    with path.open(newline="", encoding="utf-8") as file:
        csv_rows = list(csv.DictReader(file))
    assert len(csv_rows) == 4 * 40
    for row in csv_rows:
        assert row["host"].startswith("'")
        assert row["run_id"].startswith("'")
        assert row["rank"] in "0123"
