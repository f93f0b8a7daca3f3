"""Series of printed step times: warm-up, changes, slow starts of epochs, bursts, the wait for data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.findings.slow_steps import WORTH
from stallscope.analysis.gains.verdict import WORTHWHILE
from stallscope.analysis.ledger.change_points import growth_in
from stallscope.analysis.ledger.printed_steps import PrintedSteps
from stallscope.analysis.ledger.slow_windows import WaitingAlone, slow_windows
from stallscope.analysis.ledger.windows import RankWindows
from stallscope.analysis.scaling import scaling
from stallscope.analysis.views.log_health import rank_logs
from stallscope.charts.step_time import step_time_chart
from stallscope.parsers import read
from stallscope.reports.run.json_content import json_content
from stallscope.reports.run.run_tables import job_table
from stallscope.text.figure_words import health, printed_figures, printed_job_parts

METERS = (
    "Epoch: [{epoch}][{step}/{steps}] Time {seconds} ({mean_seconds}) Data {data} ({mean_data})"
)
START = datetime(2026, 9, 6, 2, 52, 5)


def analysis_of(folder: Path, lines: Sequence[str], pattern: str) -> Analysis:
    (folder / "train.log").write_text("\n".join(lines) + "\n")
    (run,) = read(str(folder / "train.log"), read_as=f"pattern:{pattern}")
    return analyse(run)


def printed_in(analysis: Analysis) -> PrintedSteps:
    assert analysis.printed is not None
    return analysis.printed


def step_times(
    count: int, seconds: float, *, noise: float = 0.05, after: float = 1.0, at: int | None = None
) -> np.ndarray:
    """Return seconds per step; from step ``at`` on they are ``after`` times as long."""
    times = seconds * np.exp(np.random.default_rng(count).normal(0, noise, count))
    if at is not None:
        times[at:] *= after
    return times


def single_steps(times: np.ndarray) -> list[str]:
    return [f"step {step} took {seconds:.3f} s" for step, seconds in enumerate(times)]


def means(times: np.ndarray, of: int) -> list[str]:
    ends = range(of - 1, len(times), of)
    return [f"step {end} took {times[end - of + 1 : end + 1].mean():.4f} s" for end in ends]


def rates(times: np.ndarray, of: int) -> list[str]:
    """Return rates of 8 ranks with 32 samples each, with timestamps in whole seconds."""
    now, lines = START, ["batch_size=32, world_size: 8"]
    for end in range(of - 1, len(times), of):
        took = times[end - of + 1 : end + 1]
        now += timedelta(seconds=float(took.sum()))
        lines.append(f"{now:%Y-%m-%d %H:%M:%S} step {end}: {256 / took.mean():.2f} samples/sec")
    return lines


def stamped(times: np.ndarray, stamp: str) -> list[str]:
    moments = [START + timedelta(seconds=float(seconds)) for seconds in np.cumsum(times)]
    return [f"{moment.strftime(stamp)[:23]} step {step}" for step, moment in enumerate(moments)]


TOOK = "step {step} took {seconds}"
KINDS = {
    "single steps": (TOOK, "step", single_steps(step_times(2400, 3.28, after=1.44, at=1500))),
    "means of 20 steps": (TOOK, "last", means(step_times(2400, 0.35, after=1.1, at=1500), 20)),
    "rates": (
        "{time} step {step}: {rate}",
        "last",
        rates(step_times(2400, 0.8, after=1.2, at=1500), 20),
    ),
    "timestamps": (
        "{time} step {step}",
        "stamps",
        stamped(step_times(2400, 0.3, after=1.2, at=1500), "%Y-%m-%d %H:%M:%S,%f"),
    ),
    "timestamps in whole seconds": (
        "{time} step {step}",
        "stamps",
        stamped(step_times(2400, 3.28, after=1.44, at=1500), "%Y-%m-%d %H:%M:%S"),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_change_is_named_where_it_is(tmp_path: Path, kind: str) -> None:
    pattern, method, lines = KINDS[kind]
    analysis = analysis_of(tmp_path, lines, pattern)
    printed = printed_in(analysis)
    assert printed.found == method
    (change,) = printed.changes
    window = int(np.median(printed.whole.steps))
    assert abs(change.step - 1500) <= 2 * window
    assert change.between[0] - window <= 1500 <= change.between[1] + window
    assert change.entry is None
    assert change.after_ms / change.before_ms == pytest.approx(
        {"single steps": 1.44, "means of 20 steps": 1.1, "timestamps in whole seconds": 1.44}.get(
            kind, 1.2
        ),
        rel=0.02,
    )
    assert [finding.code for finding in analysis.findings] == ["step_time_changed"]
    slower = change.after_ms / change.before_ms
    assert printed.slowdown == pytest.approx(900 * (slower - 1) / (1500 + 900 * slower), rel=0.05)
    faulty = printed.slowdown >= WORTHWHILE
    assert analysis.bottleneck.cause == ("changes" if faulty else None)
    reason = (
        analysis.findings[0].evidence
        if faulty
        else "how long steps took, and nothing known of their stages"
    )
    assert reason in analysis.bottleneck.evidence


def test_a_log_that_counts_otherwise_is_said_to(tmp_path: Path) -> None:
    times = step_times(200, 0.35)
    from_1 = [f"step {step} took {seconds:.3f} s" for step, seconds in enumerate(times, 1)]
    figures = dict(printed_figures(analysis_of(tmp_path, from_1, TOOK).printed))
    assert figures["Step numbers"] == "from 0 over the job; the log counts from 1"
    same = dict(printed_figures(analysis_of(tmp_path, single_steps(times), TOOK).printed))
    assert "Step numbers" not in same


@pytest.mark.parametrize("noise", [0.02, 0.2])
@pytest.mark.parametrize("steps", [3, 40, 400, 4000])
def test_noise_is_no_change(tmp_path: Path, steps: int, noise: float) -> None:
    lines = single_steps(step_times(steps, 0.35, noise=noise))
    analysis = analysis_of(tmp_path, lines, TOOK)
    assert printed_in(analysis).changes == ()
    assert analysis.findings == ()
    assert analysis.step is not None
    assert analysis.step.mean == pytest.approx(350, rel=0.2)


def test_changes_that_follow_one_another_are_named(tmp_path: Path) -> None:
    # A job whose ranks come and go: most of its steps are soon after a change.
    levels = [8.9, 4.8, 3.28, 4.73, 3.8, 3.2, 2.8, 2.5]
    times = np.concatenate(
        [step_times(24 + n, level, noise=0.01) for n, level in enumerate(levels)]
    )
    settled = step_times(2000, 0.5, noise=0.02)
    edges = np.cumsum([24 + n for n in range(len(levels))])
    # Each change has a slow step.
    times[edges[:-1]] += 1.5
    all_times = np.concatenate([[27.5], times, settled])
    printed = printed_in(analysis_of(tmp_path, single_steps(all_times), TOOK))
    assert printed.warm_up_steps < 30
    known = {
        int(edge) + 1: pair for edge, pair in zip(edges, pairwise([*levels, 0.5]), strict=True)
    }
    inside = {at: pair for at, pair in known.items() if at > printed.warm_up_steps + 2}
    assert len(inside) >= 7
    for at, (before, after) in inside.items():
        (change,) = [change for change in printed.changes if abs(change.step - at) <= 2]
        assert change.before_ms == pytest.approx(1e3 * before, rel=0.05)
        assert change.after_ms == pytest.approx(1e3 * after, rel=0.05)
    assert len(printed.changes) == len(inside)


def test_a_level_is_told_with_its_end(tmp_path: Path) -> None:
    # After the slow steps, others are little faster than these, and little slower than those before.
    levels = (800, 1.0), (40, 1.10), (800, 1.045), (40, 1.09), (800, 1.01)
    times = np.concatenate([step_times(steps, 0.35 * level, noise=0.01) for steps, level in levels])
    changes = printed_in(analysis_of(tmp_path, single_steps(times), TOOK)).changes
    edges = [0, *(change.step for change in changes), len(times)]
    for change, (begin, at), end in zip(changes, pairwise(edges), edges[2:], strict=False):
        assert change.before_ms == pytest.approx(1e3 * times[begin:at].mean(), rel=0.01)
        assert change.after_ms == pytest.approx(1e3 * times[at:end].mean(), rel=0.01)
        assert abs(change.after_ms / change.before_ms - 1) > 0.045
    assert changes


def test_the_change_that_costs_most_is_named(tmp_path: Path) -> None:
    levels = (400, 1.0), (2000, 1.4), (200, 0.6), (60, 1.9), (1500, 1.0)
    times = np.concatenate([step_times(steps, level, noise=0.01) for steps, level in levels])
    analysis = analysis_of(tmp_path, single_steps(times), TOOK)
    assert analysis.bottleneck.cause == "changes"
    assert analysis.bottleneck.evidence.startswith("From step 400 on")


@pytest.mark.broad
@pytest.mark.any_versions
def test_slow_noise_is_no_change(tmp_path: Path) -> None:
    changes = 0
    for seed in range(30):
        noise = np.random.default_rng(seed).normal(0, 1, 1000)
        for at in range(1, len(noise)):
            noise[at] += 0.95 * noise[at - 1]
        times = 0.5 * np.exp(0.05 * noise / noise.std())
        printed = printed_in(analysis_of(tmp_path, single_steps(times), TOOK))
        changes += len(printed.changes)
    assert changes <= 1


def test_the_first_slow_steps_are_warm_up(tmp_path: Path) -> None:
    times = step_times(300, 0.35)
    times[:3] = 40, 4, 1
    printed = printed_in(analysis_of(tmp_path, single_steps(times), TOOK))
    assert printed.warm_up_steps == 3
    assert printed.step.mean == pytest.approx(350, rel=0.02)
    assert printed.step.ci95 is not None
    low, high = printed.step.ci95
    assert low < times[3:].mean() * 1e3 < high


def meters(
    epochs: int, steps: int, every: int, wait: float, decimals: int, first: float = 0.0
) -> tuple[list[str], float, float]:
    """Print meters as averages over the batches of an epoch so far; return the true sums, too."""
    rng, lines = np.random.default_rng(3), []
    waited = took = 0.0
    for epoch in range(epochs):
        data = np.where(np.arange(steps) % 4 == 0, 4 * wait, 0.0) + rng.uniform(0, 2e-3, steps)
        data[0] += first
        time = data + rng.normal(0.1, 0.003, steps)
        waited, took = waited + data.sum(), took + time.sum()
        for at in range(0, steps, every):
            figures = time[at], time[: at + 1].mean(), data[at], data[: at + 1].mean()
            a, b, c, d = (f"{figure:.{decimals}f}" for figure in figures)
            lines.append(f"Epoch: [{epoch}][{at:4d}/{steps}] Time {a} ({b}) Data {c} ({d})")
    return lines, waited, took


@pytest.mark.parametrize("decimals", [2, 3, 5])
@pytest.mark.parametrize("every", [10, 25])
def test_the_wait_for_data_has_its_share(tmp_path: Path, every: int, decimals: int) -> None:
    lines, waited, took = meters(3, 1001, every, 0.05, decimals)
    analysis = analysis_of(tmp_path, lines, METERS)
    printed = printed_in(analysis)
    assert printed.input_share is not None
    assert printed.input_share.value == pytest.approx(waited / took, abs=0.01)
    assert analysis.bottleneck.kind == "input"
    assert f", {printed.input_share.value:.1%} (95%" in analysis.bottleneck.evidence
    assert printed.input_share.ci95 is not None
    low, high = printed.input_share.ci95
    assert low - 0.002 < waited / took < high + 0.002
    assert analysis.bottleneck.advice
    # Means over a thousand steps are too coarse with two digits, and with three over few of them.
    coarse = {(10, 3): "scaled", (10, 2): "last", (25, 2): "last"}
    assert printed.found == coarse.get((every, decimals), "differences")
    if printed.found != "differences":
        return
    series = printed.whole
    assert series.input_ms is not None
    assert series.input_ms @ series.steps / (series.ms @ series.steps) == pytest.approx(
        waited / took, abs=0.02
    )


def test_input_that_keeps_up_is_no_fault(tmp_path: Path) -> None:
    lines, *_ = meters(2, 400, 10, 0.0, 4)
    analysis = analysis_of(tmp_path, lines, METERS)
    assert analysis.bottleneck.kind == "insufficient_data"
    assert "wait for data 1" in analysis.bottleneck.evidence


def test_slow_starts_of_epochs_and_bursts_are_told_apart(tmp_path: Path) -> None:
    lines, *_ = meters(5, 300, 5, 0.0, 4, first=8.0)
    analysis = analysis_of(tmp_path, lines, METERS)
    assert [finding.code for finding in analysis.findings] == ["slow_first_steps"]
    starts = printed_in(analysis).epoch_starts
    assert starts is not None
    # The wait of the first epoch recurs: it is no warm-up.
    assert starts.windows == 5
    times = step_times(600, 0.35)
    times[[100, 250, 251, 400, 570]] *= 4
    analysis = analysis_of(tmp_path, single_steps(times), TOOK)
    assert [finding.code for finding in analysis.findings] == ["slow_windows"]
    bursts = printed_in(analysis).bursts
    assert bursts is not None
    assert bursts.windows == 5
    assert bursts.cost == pytest.approx(5 * 3 / 615, rel=0.1)


def test_ranks_have_series_of_their_own(tmp_path: Path) -> None:
    lines = [
        f"[{rank}]<stdout>:step {step} took {0.30 + rank / 100:.3f} s"
        for step in range(100)
        for rank in range(3)
    ]
    analysis = analysis_of(tmp_path, lines, TOOK)
    printed = printed_in(analysis)
    assert [round(rank.mean_ms) for rank in printed.ranks] == [300, 310, 320]
    assert analysis.step is not None
    assert analysis.step.mean == pytest.approx(310)
    assert (analysis.run.size, analysis.run.fact("size_from")) == (3, "ranks of the lines")


def test_lines_of_ranks_without_labels_are_said(tmp_path: Path) -> None:
    lines = [f"step {step} took {0.3 + rank:.3f}" for step in range(50) for rank in range(4)]
    analysis = analysis_of(tmp_path, lines, TOOK)
    assert "150 lines of rank 0 about the step of the line before" in analysis.warnings[0]
    assert analysis.step is not None
    assert analysis.step.mean == pytest.approx(300)


def test_a_log_that_goes_on_from_a_checkpoint_has_its_own_steps_only(tmp_path: Path) -> None:
    lines = [f"step {step} took 0.250" for step in range(5020, 6000, 20)]
    printed = printed_in(analysis_of(tmp_path, lines, TOOK))
    assert set(printed.whole.steps.tolist()) == {20}
    assert printed.whole.step[0] == 5000
    assert printed.step.mean == pytest.approx(250)


@pytest.mark.parametrize("kind", ["weak", "strong"])
def test_scaling_is_told_from_what_ranks_printed(tmp_path: Path, kind: str) -> None:
    """One file for each number of ranks, which says it in words; batch sizes tell the kind."""
    runs = []
    for ranks, ms in ((1, 300), (2, 310), (4, 330)):
        batch = 64 if kind == "weak" else 64 // ranks
        times = step_times(200, ms / 1e3 * batch / 64)
        times[:3] *= 10
        stated = f"model=resnet50, batch_size={batch}, I am rank 0 of {ranks}"
        lines = [stated, *single_steps(times)]
        runs.append(analysis_of(tmp_path, lines, TOOK))
    (series,) = scaling(runs)
    assert series.kind == kind
    efficiencies = [point.efficiency for point in series.points]
    assert [efficiency.value for efficiency in efficiencies if efficiency] == pytest.approx(
        [1, 300 / 310, 300 / 330], rel=0.02
    )


def test_waits_in_first_batches_are_a_part_of_the_mean_step(tmp_path: Path) -> None:
    lines = []
    for epoch in range(1, 6):
        first, mean = 450 + epoch, 18.26 + epoch / 25
        for step, took, so_far in ((0, first, first), (24, 0.281, mean)):
            lines.append(
                f"Epoch: [{epoch}][{step}/25]\tTime {took:.3f} ({so_far:.3f})\t"
                f"Data {took - 0.1:.3f} ({so_far * 0.985:.3f})\tLoss 0.0 (0.0)"
            )
    (tmp_path / "run.log").write_text("\n".join(lines))
    (run,) = read(str(tmp_path / "run.log"))
    analysis = analyse(run)
    printed, (gain,) = printed_in(analysis), analysis.what_if
    assert printed.input_ms is not None
    assert printed.input_share is not None
    assert printed.input_share.value == pytest.approx(0.985, abs=0.005)
    assert printed.input_ms.value < printed.step.mean == pytest.approx(18_400, rel=0.01)
    assert printed.step.p50 < 1000
    assert gain.speedup == pytest.approx(1 / (1 - printed.input_share.value))
    assert dict(printed_figures(printed))["Lines"].startswith(
        "10 lines with the mean of 1 to 24 steps"
    )


# Patterns: periods, growth within epochs, and what chance makes of healthy series


def spiky(count: int, every: int, times: float) -> np.ndarray:
    """Return seconds per step; the last step of each cycle takes so many times as long."""
    return step_times(count, 0.4) * np.where(np.arange(count) % every == every - 1, times, 1.0)


@pytest.mark.parametrize(("every", "times"), [(2, 11.0), (3, 3.0), (4, 5.0), (8, 8.0), (90, 20.0)])
def test_steps_with_a_period_are_a_finding(tmp_path: Path, every: int, times: float) -> None:
    series = spiky(max(60, 8 * every), every, times)
    analysis = analysis_of(tmp_path, single_steps(series), TOOK)
    period = printed_in(analysis).period
    assert period is not None
    assert (period.every, period.every_windows) == (every, every)
    assert period.longer_ms == pytest.approx(400 * (times - 1), rel=0.1)
    assert period.cost == pytest.approx((times - 1) / (times - 1 + every), rel=0.1)
    assert [finding.code for finding in analysis.findings] == ["slow_every_nth_step"]
    assert analysis.findings[0].evidence.startswith(f"One step in every {every} takes ")
    # The first slow step is no warm-up, and cycles have the same sums.
    step = printed_in(analysis).step
    assert step.ci95 is not None
    assert step.ci95[0] < 1e3 * series.mean() < step.ci95[1]
    assert step.ci95[1] - step.ci95[0] < 0.2 * step.mean


def test_a_period_of_lines_is_one_of_their_steps(tmp_path: Path) -> None:
    lines = means(spiky(2000, 90, 20.0), 10)
    period = printed_in(analysis_of(tmp_path, lines, TOOK)).period
    assert period is not None
    assert (period.every, period.every_windows) == (90, 9)


def test_what_comes_once_in_an_epoch_is_no_period(tmp_path: Path) -> None:
    # Seven lines in each epoch, and eight in a few; the first one waits for the loader's start.
    lines, rng = [], np.random.default_rng(7)
    for epoch in range(60):
        for step in range(8 if epoch % 9 == 4 else 7):
            took = rng.normal(0.45, 0.004) + 0.03 * (step == 0)
            lines.append(f"epoch {epoch} step {step} took {took:.4f}")
    printed = printed_in(analysis_of(tmp_path, lines, "epoch {epoch} step {step} took {seconds}"))
    assert printed.period is None


@pytest.mark.parametrize("grows", [0.6, -0.4])
def test_steps_that_grow_within_each_epoch_are_a_finding(tmp_path: Path, grows: float) -> None:
    times = step_times(600, 0.4) * (1 + grows * (np.arange(600) % 100) / 100)
    lines = [
        f"epoch {step // 100} step {step % 100} took {took:.4f}" for step, took in enumerate(times)
    ]
    pattern = "epoch {epoch} step {step} took {seconds}"
    (finding,) = analysis_of(tmp_path, lines, pattern).findings
    assert (finding.code, finding.severity) == ("steps_change_within_epochs", "info")
    assert ("longer" if grows > 0 else "shorter") in finding.title
    # A rise over the whole job does not fall back.
    rising = [
        f"epoch {step // 100} step {step % 100} took {0.4 + step / 1e4 * (1 + step % 2):.4f}"
        for step in range(600)
    ]
    assert printed_in(analysis_of(tmp_path, rising, pattern)).growth is None


HEALTHY = {
    "white": lambda rng, n: np.exp(rng.normal(0, 0.05, n)),
    "wide": lambda rng, n: np.exp(rng.normal(0, 0.3, n)),
    "heavy tails": lambda rng, n: np.maximum(1 + 0.05 * rng.standard_t(3, n), 0.2),
    "exponential": lambda rng, n: 1 + rng.exponential(0.3, n),
    "drifting": lambda rng, n: np.exp(np.cumsum(rng.normal(0, 0.01, n))),
    "rising": lambda rng, n: np.linspace(1, 2, n) * np.exp(rng.normal(0, 0.05, n)),
    "in whole seconds": lambda rng, n: np.diff(np.floor(np.cumsum(rng.normal(24.3, 1, n + 1)))),
    "late lines": lambda rng, n: np.diff(np.arange(n + 1) + rng.normal(0, 0.1, n + 1)),
}


@pytest.mark.broad
@pytest.mark.any_versions
@pytest.mark.parametrize("kind", HEALTHY)
def test_healthy_series_have_no_patterns(kind: str) -> None:
    """Of a hundred healthy series, at most one has a period, growth, slow starts or bursts."""
    patterns = series = 0
    for length in (30, 60, 300, 1000):
        for seed in range(50):
            rng = np.random.default_rng([seed, length])
            ms = 1e2 * HEALTHY[kind](rng, length)
            epoch = np.arange(length) // max(length // int(rng.integers(3, 12)), 2)
            ones = np.ones(length, np.int64)
            windows = RankWindows(0, np.arange(length), ones, ms, None, epoch, 0 * ones)
            rounded_ms = 50.0 if kind == "in whole seconds" else 0.0
            slow = slow_windows([windows], np.arange(length) > 0, rounded_ms)
            costs = [windows.cost for windows in slow[:3] if windows is not None]
            patterns += any(cost >= WORTH for cost in costs) or growth_in(ms, epoch) is not None
            series += 1
    assert patterns <= series / 100


def test_the_rank_that_alone_waits_for_data_is_named(tmp_path: Path) -> None:
    rng, lines = np.random.default_rng(5), []
    for step in range(200):
        late = step in (40, 41, 90, 133, 170)
        took = 0.4 + rng.uniform(0, 0.01) + 3 * late
        for rank in range(4):
            wait = 0.01 + 3 * (late and rank == 2)
            lines.append(f"[{rank}]<stdout>:step {step} took {took:.3f} data {wait:.3f}")
    analysis = analysis_of(tmp_path, lines, "step {step} took {seconds} data {data}")
    bursts = printed_in(analysis).bursts
    assert bursts is not None
    assert bursts.waiting_share == pytest.approx(1, abs=0.05)
    assert bursts.alone == (WaitingAlone(2, 5),)
    assert "In 5 of these lines, only rank 2 waits for data." in analysis.findings[0].evidence


# Pauses between steps


def printed_job(
    line: Callable[[int], str], works: Sequence[str] = (), settings: str = "", last: int = 1000
) -> str:
    """Return lines of every tenth step; every 200th is preceded by lines about other work."""
    lines = [settings]
    for step in range(10, last + 10, 10):
        lines += [f"step {step}: {work}" for work in works if step % 200 == 0]
        lines.append(line(step))
    return "\n".join(lines)


def with_time(step: int) -> str:
    """Write a line whose time contains work of 30 s at every 200th step; steps take 200 ms."""
    rng = np.random.default_rng(step)
    took = 0.2 * rng.uniform(0.98, 1.02) + (30 if step % 200 == 0 else 0)
    return f"iter {step}: loss 2.{step:04}, time {1e3 * took:.2f}ms, mfu 31.40%"


def with_clock(step: int) -> str:
    """Write a line with a timestamp; work of 30 s is between lines, and not in their times."""
    rng = np.random.default_rng(step)
    now = START + timedelta(seconds=0.2 * step + 30 * (step // 200))
    took = 0.2 * rng.uniform(0.99, 1.01)
    stamp = f"{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03}"
    return f"{stamp} step {step} loss 2.{step:04} step_time: {took:.4f}s"


NAMED = {
    "validation": ["train loss 2.2, val loss 2.3"],
    "checkpoint": ["saving checkpoint to out"],
    "validation and checkpoint": ["Evaluating", "Saved model to out/model.pt"],
}


@pytest.mark.parametrize("kind", NAMED)
@pytest.mark.parametrize("line", [with_time, with_clock], ids=["in lines", "between lines"])
def test_named_pauses_are_apart_from_steps(
    tmp_path: Path, line: Callable[[int], str], kind: str
) -> None:
    log = tmp_path / "train.log"
    log.write_text(printed_job(line, NAMED[kind], "eval_interval = 200, save_model = True"))
    (run,) = read(str(log))
    analysis = analyse(run)
    (pauses,) = printed_in(analysis).pauses
    assert (pauses.kind, pauses.number) == (kind, 5)
    assert pauses.seconds == pytest.approx(150, rel=0.02)
    assert pauses.share == pytest.approx(150 / 350, abs=0.01)
    assert analysis.step is not None
    assert analysis.step.mean == pytest.approx(200, rel=0.02)
    (finding,) = analysis.findings
    assert finding.code == "pauses_between_steps"
    assert "150 s" in finding.evidence


def test_pauses_that_nothing_names_are_not_named(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(printed_job(with_clock))
    (run,) = read(str(log))
    (pauses,) = printed_in(analyse(run)).pauses
    assert (pauses.kind, pauses.number) == ("unnamed", 5)
    log.write_text(printed_job(with_time, last=2000))
    (run,) = read(str(log))
    analysis = analyse(run)
    (pauses,) = printed_in(analysis).pauses
    assert (pauses.kind, pauses.number) == ("unnamed", 10)
    assert printed_in(analysis).step.mean == pytest.approx(200, rel=0.02)
    assert "10 pauses took 5.00 min, every 200 steps: " in analysis.findings[0].evidence


def every_50th(pauses: Mapping[int, float], step_s: float = 0.036, stamp: str = "%f") -> str:
    """Return lines about every 50th of 3,000 steps, with pauses that nothing names."""
    now, lines, noise = START, [], np.random.default_rng(4)
    for step in range(50, 3001, 50):
        now += timedelta(seconds=50 * step_s * noise.uniform(0.97, 1.03) + pauses.get(step, 0.0))
        moment = f"{now:%H:%M:%S}" + (f".{now:%f}"[:4] if stamp else "")
        lines.append(f"[2026-09-06 {moment}] iter {step}/3000 loss {9 / step:.4f} lr 1.0e-4")
    return "\n".join(lines)


SILENT = {
    "seldom": {1000: 40.0, 2000: 44.0},
    "every fifth line": dict.fromkeys(range(250, 3001, 250), 25.0),
    "every second line": dict.fromkeys(range(200, 3001, 100), 9.0),
    "of unlike lengths": {400: 9.0, 850: 61.0, 1300: 33.0, 1350: 8.0, 2200: 17.0},
}


@pytest.mark.parametrize("stamp", ["%f", ""], ids=["milliseconds", "whole seconds"])
@pytest.mark.parametrize("name", SILENT)
def test_evaluations_without_a_word_are_no_steps(tmp_path: Path, name: str, stamp: str) -> None:
    (tmp_path / "train.log").write_text(every_50th(SILENT[name], stamp=stamp))
    (run,) = read(str(tmp_path / "train.log"))
    printed = printed_in(analyse(run))
    assert printed.step.mean == pytest.approx(36, rel=0.05 if stamp else 0.2)
    (pauses,) = printed.pauses
    assert (pauses.kind, pauses.number) == ("unnamed", len(SILENT[name]))
    assert pauses.seconds == pytest.approx(sum(SILENT[name].values()), rel=0.05 if stamp else 0.2)


def test_steps_that_are_slow_for_several_lines_are_no_pauses(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(every_50th(dict.fromkeys(range(1500, 1800, 50), 6.0)))
    (run,) = read(str(tmp_path / "train.log"))
    printed = printed_in(analyse(run))
    assert printed.pauses == ()
    assert printed.step.mean == pytest.approx(36 + 6 * 6000 / 3000, rel=0.05)


def estimators(pauses: Mapping[int, float], saves: Sequence[int] = ()) -> str:
    """Return what TensorFlow's estimators log about 1,500 steps of 125 ms: sums of 100 steps each."""
    lines, noise = [], np.random.default_rng(5)
    for step in range(100, 1501, 100):
        took = 12.5 * noise.uniform(0.99, 1.01) + pauses.get(step, 0.0)
        if step in saves:
            lines.append(
                f"INFO:tensorflow:Saving checkpoints for {step - 40} into /out/model.ckpt."
            )
        lines.append(f"INFO:tensorflow:global_step/sec: {100 / took:.5f}")
        lines.append(f"INFO:tensorflow:loss = {9 / step:.5f}, step = {step} ({took:.3f} sec)")
    return "\n".join(lines)


@pytest.mark.parametrize("kind", ["unnamed", "checkpoint"])
def test_sums_of_steps_are_told_without_pauses(tmp_path: Path, kind: str) -> None:
    """A pause that nothing names is as long as a line's steps; one that is named may be short."""
    took = 17.0 if kind == "unnamed" else 1.5
    saves = () if kind == "unnamed" else (600, 1200)
    (tmp_path / "train.log").write_text(estimators({600: took, 1200: took}, saves))
    (run,) = read(str(tmp_path / "train.log"))
    printed = printed_in(analyse(run))
    assert printed.step.mean == pytest.approx(125, rel=0.01)
    (pauses,) = printed.pauses
    assert (pauses.kind, pauses.number) == (kind, 2)
    assert pauses.seconds == pytest.approx(2 * took, rel=0.15)


@pytest.mark.parametrize("kind", ["validation", "unnamed"])
def test_pauses_are_told_where_timestamps_are_coarser_than_lines_are_apart(
    tmp_path: Path, kind: str
) -> None:
    lines = []
    for step in range(10, 6001, 10):
        now = START + timedelta(seconds=0.05 * step + 20 * ((step - 1) // 1000))
        lines.append(f"{now:%Y-%m-%d %H:%M:%S} iter {step} loss {9 / step:.4f} step_time: 0.0500s")
        if step % 1000 == 0 and kind == "validation":
            lines.append(f"{now:%Y-%m-%d %H:%M:%S} Evaluating on 500 images")
    (tmp_path / "train.log").write_text("\n".join(lines))
    (run,) = read(str(tmp_path / "train.log"))
    (pauses,) = printed_in(analyse(run)).pauses
    assert (pauses.kind, pauses.number) == (kind, 5)
    assert pauses.seconds == pytest.approx(100, rel=0.05)


def test_times_without_a_clock_are_said_to_be_unconfirmed(tmp_path: Path) -> None:
    lines = single_steps(step_times(100, 0.3))
    title = "Their times"
    printed = analysis_of(tmp_path, lines, TOOK).printed
    assert "nothing else in the log confirms them" in dict(printed_figures(printed))[title]
    stamps = stamped(step_times(100, 0.3), "%Y-%m-%d %H:%M:%S,%f")
    printed = analysis_of(tmp_path, stamps, "{time} step {step}").printed
    assert title not in dict(printed_figures(printed))


def test_long_waits_for_data_are_no_pauses(tmp_path: Path) -> None:
    lines = [
        f"step {step} took {0.1 + wait:.4f} s waited {0.01 + wait:.4f} s"
        for step in range(50, 3001, 50)
        for wait in (0.5 if step % 500 == 0 else 0.0,)
    ]
    pattern = "step {step} took {seconds} s waited {data}"
    (tmp_path / "train.log").write_text("\n".join(lines))
    (run,) = read(str(tmp_path / "train.log"), read_as=f"pattern:{pattern}")
    assert printed_in(analyse(run)).pauses == ()


def test_an_interval_that_answers_nothing_is_none(tmp_path: Path) -> None:
    noise = np.random.default_rng(6)
    times = np.repeat(np.exp(noise.normal(-3, 1.2, 40)), 20)
    analysis = analysis_of(tmp_path, means(times, 20), TOOK)
    text = dict(printed_figures(analysis.printed))["Steady step"]
    assert "±" not in text
    assert "in the median, at least" in text


@pytest.mark.parametrize("length", [350, 390], ids=["half a line", "most of a line"])
@pytest.mark.parametrize("knows", [True, False], ids=["known length", "unknown length"])
@pytest.mark.parametrize("pause_s", [0, 15])
def test_pauses_between_epochs(tmp_path: Path, length: int, knows: bool, pause_s: int) -> None:
    """Lines are about every 100th step: those after the last one of an epoch have no line."""
    lines, now = [], START
    for epoch in range(12):
        for step in range(length):
            now += timedelta(seconds=0.5)
            if step % 100 == 0:
                of = f"/{length}" if knows else ""
                stamp = f"{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03}"
                lines.append(f"{stamp} Epoch: {epoch} Step: {step}{of} loss: 2.{step:04}")
        now += timedelta(seconds=pause_s)
    (tmp_path / "train.log").write_text("\n".join(lines))
    (run,) = read(str(tmp_path / "train.log"))
    pauses = printed_in(analyse(run)).pauses
    assert len(pauses) == (pause_s > 0 and (knows or length == 390))
    if pauses:
        assert pauses[0].number == 11
        # Of an unknown length only what is longer than the steps of a line is a pause.
        hidden_s = 0 if knows else 0.5 * (400 - length)
        assert pauses[0].seconds == pytest.approx(11 * (pause_s - hidden_s), rel=0.05)


def test_evaluations_that_end_most_epochs_end_all(tmp_path: Path) -> None:
    """The lines do not tell that the first hundred steps of an epoch take 1.3 s longer."""
    now, lines, chance = START, [], np.random.default_rng(4)
    for epoch in range(80):
        for step in (100, 200, 300, 390):
            pace_s = 0.145 * float(np.exp(chance.normal(0, 0.04)))
            now += timedelta(seconds=pace_s * min(step, 100 if step < 390 else 90))
            now += timedelta(seconds=1.3 if step == 100 else 0)
            if step < 390:
                lines.append(f"{now} INFO: Epoch [{epoch}/80], Step [{step}/390], Loss: 2.5")
        now += timedelta(seconds=2)
        lines.append(f"{now} INFO: Epoch {epoch}: train loss 2.5, test acc 0.5")
    (tmp_path / "train.log").write_text("\n".join(lines))
    (run,) = read(str(tmp_path / "train.log"))
    (pauses,) = printed_in(analyse(run)).pauses
    assert (pauses.kind, pauses.number, pauses.with_first_steps) == ("validation", 79, True)
    assert pauses.seconds == pytest.approx(79 * 3.3, rel=0.1)
    evidence = analyse(run).bottleneck.evidence
    assert "with what the first steps of an epoch take longer than others" in evidence


def test_evaluations_in_most_lines_that_name_them_are_in_all(tmp_path: Path) -> None:
    """Steps of a line vary by as much as half an evaluation takes; a name alone takes no time."""
    now, lines, chance = START, [], np.random.default_rng(5)
    for step in range(100, 8001, 100):
        now += timedelta(seconds=100 * 0.5 * float(np.exp(chance.normal(0, 0.05))))
        lines += [f"{now} val batches come from a cache"] * (step == 1500)
        lines.append(f"{now}: Step [{step}] train Loss : 0.5")
        if step % 300 == 0:
            now += timedelta(seconds=18)
            lines.append(f"{now}: Step [{step}] val Loss : 0.6")
    (tmp_path / "train.log").write_text("\n".join(lines))
    (run,) = read(str(tmp_path / "train.log"))
    (pauses,) = printed_in(analyse(run)).pauses
    assert (pauses.kind, pauses.number) == ("validation", 26)
    assert pauses.seconds == pytest.approx(26 * 18, rel=0.1)


def test_other_lines_before_a_long_one_tell_of_a_pause(tmp_path: Path) -> None:
    """They name no work that is known."""
    now, lines, chance = START, ["loading data"], np.random.default_rng(6)
    for step in range(50, 6001, 50):
        now += timedelta(seconds=50 * 0.036 * float(chance.uniform(0.95, 1.05)))
        lines.append(f"{now} iter {step} loss {2 - step / 6000:.4f}")
        if step % 500 == 0:
            now += timedelta(seconds=60 * float(chance.uniform(0.9, 1.1)))
            lines.append(f"{now} [*] psnr {20 + step / 600:.2f}")
    (tmp_path / "train.log").write_text("\n".join(lines))
    (run,) = read(str(tmp_path / "train.log"))
    steps = printed_in(analyse(run))
    (pauses,) = steps.pauses
    assert (pauses.kind, pauses.number) == ("unnamed", 11)
    assert pauses.seconds == pytest.approx(11 * 60, rel=0.05)
    assert steps.step.mean == pytest.approx(36, rel=0.02)


def test_times_of_some_steps_leave_no_pauses(tmp_path: Path) -> None:
    rng, lines, now = np.random.default_rng(2), [], START
    for step in range(10, 2010, 10):
        took = 0.5 * rng.uniform(0.4, 1.6, 10)
        now += timedelta(seconds=float(took.sum()))
        stamp = f"{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03}"
        lines.append(f"{stamp} step {step} loss 2.{step:04} step_time: {took[-1]:.4f}s")
    (tmp_path / "train.log").write_text("\n".join(lines))
    (run,) = read(str(tmp_path / "train.log"))
    analysis = analyse(run)
    assert printed_in(analysis).pauses == ()
    assert analysis.findings == ()


def test_lines_about_work_that_takes_no_time_are_no_pauses(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    steady = [
        f"iter {step}: loss 2.{step:04}, time 200.{step % 7}0ms, mfu 31%" for step in range(300)
    ]
    for at in range(290, 0, -30):
        steady.insert(at, "step: val loss 2.1, saving checkpoint to out")
    log.write_text("\n".join(steady))
    (run,) = read(str(log))
    analysis = analyse(run)
    assert printed_in(analysis).pauses == ()
    assert analysis.findings == ()


def test_steps_trained_twice_cost_time(tmp_path: Path) -> None:
    lines, seconds = [], 0.0
    for steps in (range(10, 610, 10), range(510, 1010, 10)):
        for step in steps:
            seconds += 5.0
            now = START + timedelta(seconds=seconds)
            lines.append(f"{now:%Y-%m-%d %H:%M:%S} step: {step} loss: 2.{step:04} tps: 9,000")
        seconds += 300
    (tmp_path / "train.log").write_text("\n".join(lines))
    (run,) = read(str(tmp_path / "train.log"))
    analysis = analyse(run)
    repeated = printed_in(analysis).repeated
    assert repeated is not None
    assert (repeated.steps, repeated.restarts, repeated.with_restarts) == (100, 1, True)
    assert repeated.seconds == pytest.approx(350, abs=5)
    assert [finding.code for finding in analysis.findings] == ["steps_repeated"]
    assert printed_in(analysis).pauses == ()


def test_pages_show_pauses_and_the_source_of_steps(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(printed_job(with_time, NAMED["validation"]))
    (run,) = read(str(log))
    analysis = analyse(run)
    rows = [row[:2] for row in job_table(analysis).rows]
    assert [title for title, _ in rows][-3:] == ["Steps", "Evaluations", "Job"]
    parts = printed_job_parts(printed_in(analysis), analysis.job.total)
    assert sum(parts.values()) == pytest.approx(analysis.job.total, rel=0.01)
    title, text = health(analysis, rank_logs(run))
    assert title == "Steps are known from lines only"
    assert "100 lines with the mean of 10 steps" in text
    chart = step_time_chart(analysis)
    assert chart is not None
    assert [step for step, _ in chart.pauses] == [199, 399, 599, 799, 999]
    assert {label for _, label in chart.pauses} == {"evaluation 30.0 s"}


def test_the_jobs_time_has_the_steps_before_the_first_line(tmp_path: Path) -> None:
    lines = [
        f"2026-11-21 02:{number // 60:02}:{number % 60:02} iter {10 * number} time: "
        f"{9.0 if number == 1 else 0.1 + number % 3 / 1000:.4f}s loss: 2.{number}"
        for number in range(1, 100)
    ]
    log = tmp_path / "train.log"
    log.write_text("\n".join(lines) + "\n")
    (run,) = read(str(log))
    parts = printed_job_parts(printed_in(analyse(run)), analyse(run).job.total)
    assert [*parts] == ["First steps", "Steps"]
    # One long step and nine usual ones.
    assert parts["First steps"] == pytest.approx(9.9, rel=0.01)
    assert analyse(run).job.total == pytest.approx(sum(parts.values()), rel=0.01)


def test_lines_of_unlike_lengths_have_their_width_in_the_chart(tmp_path: Path) -> None:
    lines = []
    for step in range(0, 600, 25):
        lines += [f"step {step} took 3.0 s", f"step {step + 24} took 0.2 s"]
    chart = step_time_chart(analysis_of(tmp_path, lines, TOOK))
    assert chart is not None
    long, short = chart.x[2:4], chart.x[4:6]
    assert sorted(np.append(np.diff(long), np.diff(short)).tolist()) == [0, 23]


def test_printed_timers_are_the_stages_of_a_step(tmp_path: Path) -> None:
    timers = {
        "forward-compute": (400, 412),
        "backward-compute": (600, 810),
        "batch-generator": (20, 60),
        "grads-all-reduce": (50, 240),
        "optimizer": (60, 62),
    }
    table = "".join(
        f"    {name} ....: ({low}.0, {high}.0)\n" for name, (low, high) in timers.items()
    )
    lines = [
        f" iteration {10 * n}/ 600 | consumed samples: {n * 2560} | elapsed time per iteration (ms): "
        f"160{n % 7}.2 | learning rate: 2.9E-04 | lm loss: 8.9{n:02}E+00 |\n"
        f"(min, max) time across ranks (ms):\n{table}"
        for n in range(1, 61)
    ]
    (tmp_path / "train.log").write_text("".join(lines))
    analysis = analyse(read(str(tmp_path / "train.log"))[0])
    stages = json_content(analysis)["printed_steps"]["stages"]
    assert stages == {
        "input_ms": 60.0,
        "compute_ms": 1162.0,
        "other_ms": 62.0,
        "allreduce_ms": 50.0,
        "rest_ms": pytest.approx(269, abs=2),
        "by": "the slowest rank",
        "tables": 60,
        "spread": {"timer": "backward-compute", "least_ms": 600.0, "most_ms": 810.0},
    }
    printed = printed_in(analysis)
    assert printed.input_ms is not None
    assert printed.input_ms.value == 60.0
    assert "compute 1.16 s (72.5%)" in dict(printed_figures(printed))["Printed stages"]
    (finding,) = (each for each in analysis.findings if each.code == "uneven_timers")
    assert "600 ms on the fastest rank and 810 ms on the slowest one" in finding.evidence
    assert "13.1% of a step" in finding.evidence
    assert "mean stages of the slowest rank" in analysis.bottleneck.evidence


def test_lines_of_known_trainers_have_pauses_too(tmp_path: Path) -> None:
    lines, now = [], START
    for epoch in range(1, 9):
        for step in range(10, 110, 10):
            now += timedelta(seconds=5)
            place = f"Epoch(train)  [{epoch}][{step:4d}/100]"
            lines.append(
                f"{now:%Y/%m/%d %H:%M:%S} - mmengine - INFO - {place}  lr: 1e-3  eta: 0:10:00  "
                f"time: 0.5{step % 7}00  data_time: 0.0100  memory: 1371  loss: 2.1"
            )
        now += timedelta(seconds=60)
        lines.append(
            f"{now:%Y/%m/%d %H:%M:%S} - mmengine - INFO - Epoch(val) [{epoch}][50/50] acc: 0.4"
        )
    (tmp_path / "train.log").write_text("\n".join(lines))
    (run,) = read(str(tmp_path / "train.log"))
    (pauses,) = printed_in(analyse(run)).pauses
    assert (pauses.kind, pauses.number) == ("validation", 7)
    assert pauses.seconds == pytest.approx(7 * 60, rel=0.05)
