"""Compare two runs: intervals of differences hold the truth; equal runs differ by noise only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import simulator
from support.simulated import padded
from support.step_logs import Job, simulated_job

from stallscope.analysis import ENTRIES, Analysis, analyse
from stallscope.analysis.comparison import Change, Comparison, compare
from stallscope.analysis.regression import regression
from stallscope.arrays.stats import Mean
from stallscope.parsers import read
from stallscope.run import Run

PAIRS = 60
FIRST = Job(ranks=2, steps=300, noise=0.05, tracing_ms=0.0)
SECOND = replace(FIRST, input_ms=2.0, compute_ms=19.0, allreduce_ms=4.0)


@dataclass(frozen=True)
class Repeats:
    """A job, run many times, and the true means of its entries: those over all repeats."""

    analyses: list[Analysis]
    truth: Mapping[str, float]


def _analysed(folder: Path, job: Job) -> tuple[Analysis, Mapping[str, float]]:
    simulated = simulator.simulate(simulated_job(job))
    simulator.write_logs(simulated, folder)
    return analyse(read(str(folder))[0]), simulated.truth.ledger_means_ms()


def _repeated(folder: Path, job: Job, first_seed: int) -> Repeats:
    runs = [
        _analysed(folder / str(seed), replace(job, seed=seed, run_id=f"run-{seed}"))
        for seed in range(first_seed, first_seed + PAIRS)
    ]
    names = runs[0][1]
    truth = {name: float(np.mean([truths[name] for _, truths in runs])) for name in names}
    return Repeats([analysis for analysis, _ in runs], truth)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Repeats:
    return _repeated(tmp_path_factory.mktemp("first"), FIRST, 1)


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Repeats:
    return _repeated(tmp_path_factory.mktemp("second"), SECOND, 1001)


@pytest.fixture(scope="module")
def pairs(first: Repeats, second: Repeats) -> list[Comparison]:
    return [compare(a, b) for a, b in zip(first.analyses, second.analyses, strict=True)]


@pytest.mark.any_versions
@pytest.mark.slow
@pytest.mark.parametrize("name", [*ENTRIES, "step"])
def test_the_interval_of_a_difference_holds_the_truth_in_about_95_of_100_pairs(
    first: Repeats, second: Repeats, pairs: list[Comparison], name: str
) -> None:
    truth = second.truth[name] - first.truth[name]
    hits = 0
    for comparison in pairs:
        assert comparison.step is not None
        changes = {change.name: change for change in (*comparison.entries, comparison.step)}
        ci95 = changes[name].by.ci95
        assert ci95 is not None
        hits += ci95[0] <= truth <= ci95[1]
    assert hits / PAIRS >= 0.88


@pytest.mark.any_versions
@pytest.mark.slow
def test_changes_exceed_noise_and_are_named(pairs: list[Comparison]) -> None:
    for comparison in pairs:
        changes = {change.name: change for change in comparison.entries}
        for name in ("input", "compute", "allreduce"):
            assert changes[name].is_real, name
        assert comparison.step is not None
        assert comparison.step.is_real
        assert comparison.largest is not None
        assert comparison.largest.name in ("input", "compute", "allreduce")


@pytest.mark.any_versions
@pytest.mark.slow
def test_hardly_any_entry_of_equal_runs_has_changed(first: Repeats, second: Repeats) -> None:
    half = PAIRS // 2
    same = [
        compare(a, b)
        for repeats in (first, second)
        for a, b in zip(repeats.analyses[:half], repeats.analyses[half:], strict=True)
    ]
    alarms = [any(change.is_real for change in _figures(comparison)) for comparison in same]
    assert np.mean(alarms) <= 0.02


def _figures(comparison: Comparison) -> list[Change]:
    assert comparison.step is not None
    return [*comparison.entries, comparison.step]


@pytest.fixture(scope="module")
def repeats() -> list[Analysis]:
    """Run a job with autocorrelated steps 200 times."""
    job = simulator.Job(ranks=2, steps=120, noise=simulator.Noise(cv=0.05, phi=0.5))
    runs = (replace(job, seed=seed, run_id=f"run-{seed}") for seed in range(200))
    return [analyse(simulator.simulate(repeat).run) for repeat in runs]


@pytest.fixture(scope="module")
def neighbours(repeats: list[Analysis]) -> list[Comparison]:
    """Compare each repeat with the next one."""
    pairs = zip(repeats, [*repeats[1:], repeats[0]], strict=True)
    return [compare(first, second) for first, second in pairs]


@pytest.mark.any_versions
@pytest.mark.slow
def test_noise_alone_names_nothing_in_98_of_100_pairs(neighbours: list[Comparison]) -> None:
    alarms = [any(change.is_real for change in _figures(comparison)) for comparison in neighbours]
    assert np.mean(alarms) <= 0.02


@pytest.mark.any_versions
@pytest.mark.slow
@pytest.mark.parametrize("name", ["compute", "allreduce"])
def test_an_effect_of_10_percent_is_found(repeats: list[Analysis], name: str) -> None:
    slower = {
        "compute": {"compute_ms": 165.0},
        "allreduce": {"communication": simulator.Fixed(22.0)},
    }[name]
    job = simulator.Job(ranks=2, steps=120, noise=simulator.Noise(cv=0.05, phi=0.5), **slower)
    hits = 0
    for seed, first in enumerate(repeats[:40]):
        second = analyse(simulator.simulate(replace(job, seed=1000 + seed, run_id="b")).run)
        changes = {change.name: change for change in _figures(compare(first, second))}
        hits += changes[name].is_real is True
        # In a step of 180 ms, 2 ms are within the noise.
        assert name != "compute" or changes["step"].is_real
    assert hits >= 38


@pytest.mark.any_versions
@pytest.mark.slow
def test_the_interval_of_the_speedup_holds_the_truth_in_about_95_of_100_pairs(
    neighbours: list[Comparison],
) -> None:
    hits = 0
    for comparison in neighbours:
        speedup = comparison.speedup
        assert speedup is not None
        assert speedup.ci95 is not None
        hits += speedup.ci95[0] <= 1.0 <= speedup.ci95[1]
    assert hits / len(neighbours) >= 0.88


@pytest.mark.any_versions
@pytest.mark.slow
def test_a_run_compared_with_itself_is_recognised(repeats: list[Analysis]) -> None:
    assert compare(repeats[0], repeats[0]).same_run
    assert not compare(repeats[0], repeats[1]).same_run


@pytest.mark.any_versions
@pytest.mark.slow
def test_entries_add_up_to_the_step(pairs: list[Comparison]) -> None:
    for comparison in pairs[:5]:
        assert comparison.step is not None
        whole = sum(change.by.value for change in comparison.entries)
        assert whole == pytest.approx(comparison.step.by.value, abs=1e-9)
        back = compare(comparison.second, comparison.first)
        assert back.step is not None
        assert back.step.by.value == pytest.approx(-comparison.step.by.value)
        assert comparison.speedup is not None
        assert back.speedup is not None
        assert comparison.speedup.value == pytest.approx(1 / back.speedup.value)


def test_facts_that_differ_are_named_part_by_part(tmp_path: Path) -> None:
    facts = {"versions": {"keras": "2.15", "horovod": "0.28"}, "settings": {"HOROVOD_RANK": "0"}}
    changed_facts = {
        "versions": {"keras": "2.12", "horovod": "0.28"},
        "settings": {"HOROVOD_RANK": "1", "NCCL_ALGO": "Ring"},
        "optimizer": "Adam",
    }
    run, _ = _analysed(tmp_path / "a", replace(FIRST, steps=20, facts=facts))
    another, _ = _analysed(
        tmp_path / "b", replace(FIRST, ranks=4, steps=20, hosts=("a", "b"), facts=changed_facts)
    )
    named = {
        difference.name: (difference.first, difference.second)
        for difference in compare(run, another).differences
    }
    assert named == {
        "ranks": (2, 4),
        "hosts": (1, 2),
        "optimizer": (None, "Adam"),
        "versions.keras": ("2.15", "2.12"),
        "settings.NCCL_ALGO": (None, "Ring"),
    }
    assert compare(run, run).differences == ()


def test_without_stages_or_steps_there_are_no_figures(tmp_path: Path) -> None:
    full, _ = _analysed(tmp_path / "full", FIRST)
    unstamped, _ = _analysed(tmp_path / "unstamped", replace(FIRST, stamps=False))
    comparison = compare(full, unstamped)
    assert comparison.entries == ()
    assert comparison.step is not None
    assert comparison.largest is None
    few, _ = _analysed(tmp_path / "few", replace(FIRST, steps=8))
    changes = compare(full, few).entries
    assert all(change.is_real is None for change in changes)


def test_a_change_is_real_outside_of_the_joint_interval_of_all_entries() -> None:
    still = Mean(10.0, (10.0, 10.0))
    moved = Mean(11.2, (10.2, 12.2))  # 1.2 ± 1.0: outside of its own interval
    assert not Change("input", still, moved).is_real
    assert Change("input", still, Mean(12.0, (11.0, 13.0))).is_real
    assert Change("input", still, Mean(11.2, None)).is_real is None


# -- steps with different amounts of work ----------------------------------------------------------

WORKING = simulator.Job(ranks=2, steps=400, noise=simulator.Noise(cv=0.05), facts={"model": "m"})
PLACES = 40_000


def run_of(seed: int, compute_ms: float = 50.0, **changes: object) -> Run:
    job = replace(WORKING, seed=seed, run_id=f"run-{seed}", compute_ms=compute_ms)
    return simulator.simulate(replace(job, **changes)).run  # type: ignore[arg-type]


def with_tokens(seed: int, compute_ms: float, tokens: float | np.ndarray) -> Analysis:
    """Analyse a run whose ranks have so many tokens in each batch."""
    return analyse(padded(run_of(seed, compute_ms), 1 - np.asarray(tokens) / PLACES))


def test_runs_with_different_batches_are_compared_per_token() -> None:
    first, second = with_tokens(1, 50.0, 10_000), with_tokens(2, 80.0, 20_000)
    comparison = compare(first, second)
    work = comparison.same_work
    assert work is not None
    assert work.unit == "token"
    assert work.first.per_step.value == pytest.approx(2 * 10_000)
    assert first.step is not None
    assert second.step is not None
    expected = 2 * first.step.mean / second.step.mean
    assert work.speedup.value == pytest.approx(expected)
    assert work.speedup.ci95 is not None
    assert work.speedup.ci95[0] < expected < work.speedup.ci95[1]
    step = work.changes.step
    assert step is not None
    assert step.is_real
    assert (step.first.value, step.second.value) == pytest.approx(
        (first.step.mean, second.step.mean / 2)
    )
    parts = sum(change.second.value for change in work.changes.by_cause)
    assert parts == pytest.approx(step.second.value)
    # The steps' own changes are as ever.
    assert comparison.step is not None
    assert comparison.step.second.value == second.step.mean
    assert comparison.fair is work.changes


def test_runs_as_fast_per_token_do_not_differ() -> None:
    twice = {"input_ms": 8.0, "other_ms": 12.0, "communication": simulator.Fixed(40.0)}
    first, second = (
        analyse(padded(run, share))
        for run, share in ((run_of(1, 50.0), 0.75), (run_of(2, 100.0, **twice), 0.5))
    )
    comparison = compare(first, second)
    assert comparison.step is not None
    assert comparison.step.is_real
    assert comparison.fair.step is not None
    assert not comparison.fair.step.is_real


@pytest.mark.any_versions
def test_samples_of_equal_size_are_compared_per_sample_and_others_per_element() -> None:
    sizes = {"facts": {"model": "m", "sample_elements": 1000}}
    first = analyse(run_of(1, **sizes))
    larger = analyse(run_of(2, batch_size=64, **sizes))
    work = compare(first, larger).same_work
    assert work is not None
    assert work.unit == "sample"
    assert work.second.per_step.value == 2 * 64
    longer = analyse(run_of(3, facts={"model": "m", "sample_elements": 3000}))
    work = compare(first, longer).same_work
    assert work is not None
    assert work.unit == "element"
    assert work.second.per_step.value == 2 * 32 * 3000
    # What a batch of another model begins with may be anything.
    unlike = analyse(run_of(4, facts={"model": "n", "sample_elements": 3000}))
    assert compare(first, unlike).same_work is None


def test_equal_work_and_other_numbers_of_ranks_leave_the_steps_own_figures() -> None:
    first = with_tokens(1, 50.0, 10_000)
    assert compare(first, with_tokens(2, 80.0, 10_100)).same_work is None
    on_four = analyse(padded(run_of(3, ranks=4), 0.5))
    assert compare(first, on_four).same_work is None


@pytest.mark.broad
def test_batches_of_random_sizes_are_no_different_work() -> None:
    rng = np.random.default_rng(1)
    # One in eight of 400 steps on two ranks is counted.
    runs = [with_tokens(seed, 50.0, rng.integers(4_000, 16_000, 100)) for seed in range(24)]
    assert all(compare(runs[0], run).same_work is None for run in runs[1:])
    (history,) = regression(runs)
    assert history.unit is None
