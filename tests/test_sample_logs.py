"""The bundled sample runs show what their READMEs describe."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stallscope.analysis import ENTRIES, Analysis, analyse
from stallscope.analysis.gains.baseline import find_baseline
from stallscope.opening import open_run

SAMPLES = Path(__file__).parents[1] / "sample_logs"
NAMES = sorted(path.parent.name for path in SAMPLES.glob("*/run.json"))
RUNS = {name: open_run(str(SAMPLES / name)) for name in NAMES}


def analysis_of(name: str) -> Analysis:
    return analyse(RUNS[name], find_baseline(RUNS[name], RUNS.values()))


def test_all_samples_exist_and_are_small() -> None:
    assert NAMES == [
        "busy-rank-0",
        "clean",
        "ranks-1",
        "ranks-4",
        "slow-compute-rank",
        "slow-input-all-ranks",
        "slow-input-one-rank",
        "synthetic",
    ]
    size = sum(path.stat().st_size for path in SAMPLES.rglob("*") if path.is_file())
    assert size < 3_000_000
    for name in NAMES:
        assert (SAMPLES / name / "README.md").read_text().startswith(f"# {name}\n")


@pytest.mark.parametrize("name", NAMES)
def test_every_step_of_every_rank_is_recorded_and_adds_up(name: str) -> None:
    run = RUNS[name]
    assert run.name == name
    assert run.missing_ranks == []
    assert run.problems == ()
    assert run.steps.num_rows == 600 * run.size
    ledger = analysis_of(name).ledger
    assert ledger is not None
    assert len(ledger) == 600
    np.testing.assert_array_equal(sum(ledger.entry(entry) for entry in ENTRIES), ledger.total)


@pytest.mark.parametrize(
    ("name", "cause", "rank", "milliseconds"),
    [
        ("slow-input-one-rank", "input", 1, None),
        ("slow-compute-rank", "compute", 1, 15),
        ("busy-rank-0", "other", 0, 15),
    ],
)
def test_a_slow_rank_is_named_with_its_cause(
    name: str, cause: str, rank: int, milliseconds: float | None
) -> None:
    analysis = analysis_of(name)
    assert analysis.baseline is not None
    assert analysis.baseline.run.name == "synthetic"
    verdict = analysis.bottleneck
    assert (verdict.kind, verdict.cause, verdict.ranks) == ("imbalance", cause, (rank,))
    if milliseconds is not None:
        costs = {figures.rank: getattr(figures, f"{cause}_ms") for figures in analysis.ranks}
        assert costs[rank] - costs[1 - rank] == pytest.approx(milliseconds, rel=0.35)


def test_slow_input_everywhere_names_no_rank() -> None:
    verdict = analysis_of("slow-input-all-ranks").bottleneck
    assert (verdict.kind, verdict.cause, verdict.ranks) == ("input", "input", ())


@pytest.mark.parametrize("name", ["clean", "synthetic", "ranks-1", "ranks-4"])
def test_no_rank_is_blamed_in_a_run_without_a_fault(name: str) -> None:
    verdict = analysis_of(name).bottleneck
    assert verdict.ranks == ()
    assert verdict.kind not in ("input", "imbalance", "insufficient_data")


def test_rank_0s_log_alone_mistakes_waiting_for_communication() -> None:
    """A single rank's log is misleading: the reason for this project."""
    run = RUNS["slow-input-one-rank"]
    columns = run.steps.filter(run.steps["rank"].to_numpy() == 0).to_pydict()
    seen = np.median(np.array(columns["reduced"]) - np.array(columns["ready"])) / 1e6
    entry = analysis_of("slow-input-one-rank").entry("allreduce")
    assert entry is not None
    assert seen > 4 * entry.ms
