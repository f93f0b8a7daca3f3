"""Logs have the same steps wherever these are kept, and those of many ranks are in memory once."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from simulator import Job, simulate
from simulator.logs import write_logs

from stallscope.arrays import memory
from stallscope.parsers.reader import read
from stallscope.parsers.runs import grouping, reading
from stallscope.run import TIMESTAMPS, Run

RANKS, STEPS = 4, 300


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_logs(simulate(Job(ranks=RANKS, steps=STEPS, epochs=2)), tmp_path)
    return tmp_path


def kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Read a folder as if it were large."""
    monkeypatch.setattr(reading, "_FEWEST_BYTES", 1)
    for module in (reading, memory):
        monkeypatch.setattr(module, "FEWEST_ROWS", STEPS // 2)
    (run,) = read(str(folder))
    return run


def test_what_all_ranks_have_in_common_is_in_memory_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (small,) = read(str(folder))
    large = kept(folder, monkeypatch)
    assert large.steps.equals(small.steps)
    assert {large.steps[name].num_chunks for name in TIMESTAMPS} == {1}
    for name, places in (("step", 1), ("epoch", 1), ("micro", 1), ("rank", RANKS)):
        addresses = {chunk.buffers()[1].address for chunk in large.steps[name].chunks}
        assert len(addresses) == places, name


@pytest.mark.parametrize(
    ("released_bytes", "released"), [(grouping.RELEASED_BYTES, False), (RANKS * STEPS, True)]
)
def test_only_what_large_columns_leave_is_released(
    folder: Path, monkeypatch: pytest.MonkeyPatch, released_bytes: int, released: bool
) -> None:
    """In a large process, releasing takes longer than reading a small run."""
    calls: list[bool] = []
    pool = SimpleNamespace(release_unused=lambda: calls.append(True))
    monkeypatch.setattr(pa, "default_memory_pool", lambda: pool)
    monkeypatch.setattr(grouping, "RELEASED_BYTES", released_bytes)
    read(str(folder))
    assert bool(calls) is released


@pytest.mark.parametrize("more_rows", [0.1, 0.6])
def test_more_rows_than_expected(
    folder: Path, monkeypatch: pytest.MonkeyPatch, more_rows: float
) -> None:
    (small,) = read(str(folder))
    monkeypatch.setattr(reading, "_MORE_ROWS", more_rows)
    assert kept(folder, monkeypatch).steps.equals(small.steps)


def test_missing_timestamps(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = sorted(folder.iterdir())[1]
    lines = path.read_text().splitlines(keepends=True)
    cells = lines[5].split(",")
    columns = lines[1].split(",")
    cells[columns.index("ready_us")] = ""
    lines[5] = ",".join(cells)
    path.write_text("".join(lines))
    (small,) = read(str(folder))
    large = kept(folder, monkeypatch)
    assert large.steps["ready"].null_count == 1
    assert large.steps.equals(small.steps)
