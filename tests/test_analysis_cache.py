"""Analyses of large collected runs are cached, and used for exactly these runs."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from simulator import Between, Clocks, Fault, Job, Noise, simulate

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.ledger.ledger import Ledger
from stallscope.catalogue import analysis_cache
from stallscope.catalogue.analysis_cache import StoredRun, cached_analysis, from_cache, table_of
from stallscope.catalogue.checking import check_run
from stallscope.catalogue.collecting import list_runs
from stallscope.charts.charts import named_charts
from stallscope.collector.store.layout import ANALYSIS
from stallscope.collector.store.loading import RunOnDisk, load_run
from stallscope.collector.store.run_folders import save_run
from stallscope.parsers import read
from stallscope.run import Run, Series
from stallscope.text.machine_words import evidence
from stallscope.words import ENTRIES

JOBS = {
    "a late rank on hosts with different clocks": Job(
        ranks=16,
        steps=300,
        epochs=2,
        validation_ms=500,
        noise=Noise(cv=0.05),
        clocks=Clocks(offset_s=10, drift_ppm=20),
        faults=(Fault("compute", 30, ranks=(3,)),),
    ),
    "a change in the middle": Job(
        ranks=4,
        steps=400,
        faults=(Fault("input", 40, when=Between(200, 399)),),
        noise=Noise(cv=0.05),
    ),
    "one rank": Job(ranks=1, steps=60),
    "hardly any steps": Job(ranks=4, steps=3),
}

FINDING = {"code": "timeline_on", "severity": "warning", "title": "It was on", "evidence": ""}
CELLS = ("input", "compute", "arrival", "measured", "samples")
LEDGER = [*CELLS, *(field.name for field in fields(Ledger) if field.name != "cells")]


@pytest.mark.parametrize("name", JOBS)
def test_cached_analyses_equal_fresh_ones(name: str, tmp_path: Path) -> None:
    job = JOBS[name]
    run = simulate(job).run
    synthetic = simulate(replace(job, faults=(), synthetic=True, run_id="synthetic")).run
    single = simulate(replace(job, faults=(), synthetic=True, ranks=1, run_id="single")).run
    for others in ((None, None), (synthetic, None), (synthetic, single)):
        fresh = analyse(run, *others)
        table = _written(table_of(fresh), tmp_path)
        _assert_same(from_cache(table, run, fresh.baseline, fresh.single), fresh)


def test_a_run_of_epochs_is_cached(tmp_path: Path) -> None:
    lines = (f"Epoch {n}/3\n78/78 - {9 + n}s - loss: 1.9 - {9 + n}s/epoch\n" for n in (1, 2, 3))
    (tmp_path / "train.log").write_text("".join(lines))
    (run,) = read(str(tmp_path / "train.log"))
    fresh = analyse(run)
    _assert_same(from_cache(_written(table_of(fresh), tmp_path), run, None, None), fresh)


@pytest.fixture
def analysed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Cache runs of any size; return a list for the runs that are analysed."""
    monkeypatch.setattr(analysis_cache, "_FEWEST_ROWS", 1)
    return []


def _noting(analysed: list[str]) -> Any:
    def noted(run: Run, *others: Any) -> Analysis:
        analysed.append(run.id)
        return analyse(run, *others)

    return noted


def _saved(store: Path, job: Job) -> StoredRun:
    folder = save_run(simulate(job).run, store)
    return StoredRun(load_run(folder), folder, check_run(folder).manifest or "")


def test_a_cached_run_is_not_analysed_again(tmp_path: Path, analysed: list[str]) -> None:
    stored = _saved(tmp_path, Job(run_id="own"))
    base = _saved(tmp_path, Job(run_id="base", synthetic=True))
    first = cached_analysis(stored, base, analyse=_noting(analysed))
    assert analysed == ["base", "own"]
    _assert_same(cached_analysis(stored, base, analyse=_noting(analysed)), first)
    assert analysed == ["base", "own"]
    # The check knows the cache's file.
    assert not check_run(stored.folder or tmp_path).notes


def test_machine_series_need_no_second_analysis(tmp_path: Path, analysed: list[str]) -> None:
    run = simulate(Job(run_id="own")).run
    assert run.started_at is not None
    walls = round(run.started_at.timestamp() * 1e9) + 10**9 * np.arange(1, 9)
    cpu = Series("cpu_utilization", "%", None, None, "m.json", walls, np.arange(8.0))
    folder = save_run(replace(run, series=(cpu,)), tmp_path)
    manifest = check_run(folder).manifest or ""
    sentences = [
        evidence(cached_analysis(StoredRun(run, folder, manifest), analyse=_noting(analysed)))
        for run in (load_run(folder), RunOnDisk.open(folder))
    ]
    assert analysed == ["own"]
    assert sentences[0].startswith("CPU utilization was ")
    assert sentences[0] == sentences[1]
    assert not check_run(folder).notes


def test_another_baseline_is_another_analysis(tmp_path: Path, analysed: list[str]) -> None:
    stored = _saved(tmp_path, Job(run_id="own"))
    base = _saved(tmp_path, Job(run_id="base", synthetic=True))
    cached_analysis(stored, base, analyse=_noting(analysed))
    alone = cached_analysis(stored, analyse=_noting(analysed))
    assert (alone.baseline, analysed) == (None, ["base", "own", "own"])


def test_a_run_that_has_grown_is_analysed_again(tmp_path: Path, analysed: list[str]) -> None:
    cached_analysis(_saved(tmp_path, Job(run_id="own")), analyse=_noting(analysed))
    grown = cached_analysis(
        _saved(tmp_path, Job(run_id="own", steps=150)), analyse=_noting(analysed)
    )
    assert (grown.steps, analysed) == (150, ["own", "own"])


def test_other_code_analyses_again(
    tmp_path: Path, analysed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = _saved(tmp_path, Job(run_id="own"))
    cached_analysis(stored, analyse=_noting(analysed))
    monkeypatch.setattr(analysis_cache, "code_state", lambda: "another")
    cached_analysis(stored, analyse=_noting(analysed))
    assert analysed == ["own", "own"]


@pytest.mark.parametrize("content", [b"", b"{}", b"PAR1", b"PAR1" * 100])
def test_a_damaged_cache_is_analysed_again(
    content: bytes, tmp_path: Path, analysed: list[str]
) -> None:
    stored = _saved(tmp_path, Job(run_id="own"))
    assert stored.folder is not None
    (stored.folder / ANALYSIS).write_bytes(content)
    cached_analysis(stored, analyse=_noting(analysed))
    assert analysed == ["own"]


@pytest.mark.parametrize(
    "damage",
    [
        {"step": "fast"},
        {"bottleneck": {"kind": "input"}},
        {"bottleneck": {"kind": "imbalence", "cause": None, "evidence": ""}},
        {"ranks": [{"rank": "x"}]},
        {"job": None},
        # Advice was text once.
        {"bottleneck": {"kind": "input", "cause": None, "evidence": "", "advice": ["Look."]}},
        {"findings": [{**FINDING, "advice": "Look."}]},
    ],
)
def test_a_cache_with_other_fields_is_analysed_again(
    damage: dict[str, object], tmp_path: Path, analysed: list[str]
) -> None:
    stored = _saved(tmp_path, Job(run_id="own"))
    assert stored.folder is not None
    cached_analysis(stored, analyse=_noting(analysed))
    kept = pq.read_table(stored.folder / ANALYSIS)
    values = {**json.loads(kept.schema.metadata[b"found"]), **damage}
    metadata = {**kept.schema.metadata, b"found": json.dumps(values)}
    pq.write_table(kept.replace_schema_metadata(metadata), stored.folder / ANALYSIS)
    cached_analysis(stored, analyse=_noting(analysed))
    pq.write_table(kept.select(["total"]), stored.folder / ANALYSIS)
    cached_analysis(stored, analyse=_noting(analysed))
    assert analysed == ["own"] * 3


def test_the_overview_needs_no_steps(tmp_path: Path, analysed: list[str]) -> None:
    folder = _saved(tmp_path, JOBS["a late rank on hosts with different clocks"]).folder
    assert folder is not None
    list_runs([(load_run(folder), folder)], tmp_path)
    manifest = check_run(folder).manifest or ""
    run = RunOnDisk.open(folder)
    analysis = cached_analysis(StoredRun(run, folder, manifest), analyse=_noting(analysed))
    assert named_charts(analysis)
    assert analysis.stragglers[0].ranks == (3,)
    assert not analysed
    assert not {"steps", "intervals"} & vars(run).keys()
    assert analysis.steady is not None
    assert analysis.steady.arrival.shape == (len(analysis.steady), 16)
    assert "steps" in vars(run)
    half = replace(analysis.steady, allreduce=analysis.steady.allreduce // 2)
    np.testing.assert_array_equal(half.imbalance, analysis.steady.imbalance)
    np.testing.assert_array_equal(half.entry("input"), analysis.steady.entry("input"))


def test_small_runs_are_not_cached(tmp_path: Path) -> None:
    stored = _saved(tmp_path, Job(run_id="own"))
    assert stored.folder is not None
    cached_analysis(stored)
    assert not (stored.folder / ANALYSIS).exists()


def test_collecting_caches_its_analysis(tmp_path: Path, analysed: list[str]) -> None:
    folder = save_run(simulate(Job(run_id="own")).run, tmp_path)
    list_runs([(load_run(folder), folder)], tmp_path)
    stored = StoredRun(load_run(folder), folder, check_run(folder).manifest or "")
    cached_analysis(stored, analyse=_noting(analysed))
    assert not analysed


def _written(table: pa.Table, folder: Path) -> pa.Table:
    pq.write_table(table, folder / "table.parquet")
    return pq.read_table(folder / "table.parquet")


def _assert_same(cached: Analysis, fresh: Analysis) -> None:
    for field in fields(Analysis):
        left, right = getattr(cached, field.name), getattr(fresh, field.name)
        if field.name in ("ledger", "steady"):
            assert (left is None) == (right is None)
            for name in () if left is None else (*LEDGER, "imbalance", "last", "wait", "cause"):
                np.testing.assert_array_equal(getattr(left, name), getattr(right, name))
            for name in () if left is None else ENTRIES:
                np.testing.assert_array_equal(left.entry(name), right.entry(name))
        elif field.name == "warm_up":
            np.testing.assert_array_equal(left, right)
        elif isinstance(left, Analysis):
            _assert_same(left, right)
        elif field.name == "run":
            assert left is right
        else:
            # NaN is not equal to itself, but counts as the same here.
            assert repr(left) == repr(right), field.name
