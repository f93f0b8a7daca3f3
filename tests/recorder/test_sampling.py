"""Very long runs: some steps in full and the others as sums, and logs that continue in another file."""

from __future__ import annotations

import logging
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from recorder.processes import leave_outer_training

from stallscope.analysis import analyse
from stallscope.analysis.ledger.sampled import Sampling as Sampled
from stallscope.analysis.ledger.sampled import sampling_of
from stallscope.collector.recorder.job.world import World
from stallscope.collector.recorder.options import Options
from stallscope.collector.recorder.session import Session
from stallscope.collector.recorder.step_log import run_identity
from stallscope.collector.recorder.step_log.line_format import (
    BLOCK,
    IntervalRow,
    Sampler,
    Sampling,
    StepRow,
    is_kept,
)
from stallscope.collector.recorder.step_log.sinks import FileSink
from stallscope.parsers import read
from stallscope.run import Run
from stallscope.text.figure_words import coverage
from stallscope.text.verdicts import basis

MS = 1_000_000
SAMPLED = {"sample_after": 100, "sample_one_in": 5}
small_files = partial(Options, flush_seconds=3600, max_file_mb=1e-6)
ALONE = World(0, 1, None)
STEPS = 4000
EPOCH = 1000


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_outer_training(monkeypatch)


def trained(folder: Path, rank: int, size: int = 2, **options: Any) -> Session:
    """Train four epochs of 1,000 steps on a rank; every 50th batch is 40 ms late."""
    run_identity._last_sessions.clear()  # every rank is a separate process
    session = Session(
        Options(folder, flush_seconds=3600, **options), World(rank, size, None), {"model": "m"}, 0
    )
    for row in rows():
        if isinstance(row, StepRow):
            session.step(row)
        else:
            session.interval(row.kind, row.epoch, row.begin, row.end)
        if row.step % 250 == 0:
            session.flush()
    session.close()
    return session


def rows() -> list[StepRow | IntervalRow]:
    """Make the same rows for every rank: 2 ms of input, 10 of compute, 3 of allreduce, 1 of other."""
    all_rows: list[StepRow | IntervalRow] = []
    now = 10_000 * MS
    for number in range(STEPS):
        epoch = number // EPOCH
        data = now + (42 if number % 50 == 0 else 2) * MS
        ready, reduced = data + 10 * MS, data + 13 * MS
        all_rows.append(StepRow(number, epoch, now, data, ready, reduced, reduced, 1, 8, 0))
        now = reduced + 1 * MS
        if (number + 1) % EPOCH == 0:
            all_rows.append(IntervalRow("epoch", number + 1, epoch, now - MS, now, 0))
    return all_rows


def the_run(folder: Path) -> Run:
    (run,) = read(str(folder))
    assert run.problems == ()
    return run


def test_the_recorder_and_the_analysis_keep_the_same_steps() -> None:
    for sampling in (Sampling(100, 5), Sampling(0, 20, seed=7), Sampling(3, 1)):
        sampled = Sampled(sampling.full_steps, sampling.one_in, BLOCK, sampling.seed)
        steps = np.arange(3000)
        expected = [
            step < sampling.full_steps or is_kept(step // BLOCK, sampling) for step in range(3000)
        ]
        assert sampled.keeps(steps).tolist() == expected


def test_blocks_are_kept_at_the_requested_rate_and_without_a_period() -> None:
    kept = np.array([is_kept(block, Sampling(0, 10)) for block in range(50_000)])
    assert 4600 < kept.sum() < 5400
    for period in (2, 3, 4, 5, 10, 25, 64):
        for phase in range(0, period, max(1, period // 4)):
            sample = kept[phase::period]
            # Five standard errors of as many draws.
            assert abs(sample.mean() - 0.1) < 5 * np.sqrt(0.09 / len(sample))


def test_all_ranks_write_the_same_steps_and_everything_is_counted(tmp_path: Path) -> None:
    for rank in (0, 1):
        trained(tmp_path, rank, **SAMPLED)
    run = the_run(tmp_path)
    steps_of_ranks = [
        run.steps.filter(pc.equal(run.steps["rank"], rank))["step"].to_pylist() for rank in (0, 1)
    ]
    assert steps_of_ranks[0] == steps_of_ranks[1]
    assert steps_of_ranks[0][:100] == list(range(100))
    assert len(steps_of_ranks[0]) < STEPS / 2
    analysis = analyse(run)
    assert analysis.steps == STEPS
    assert analysis.coverage.unused == 0
    assert analysis.coverage.complete + analysis.coverage.sampled_out == STEPS
    assert analysis.warnings == ()
    assert basis(analysis).endswith(" steady steps of 2 ranks, standing for 4,000")
    assert "recorded as sums" in coverage(analysis)


def test_the_ledger_of_some_steps_is_that_of_all(tmp_path: Path) -> None:
    for rank in (0, 1):
        trained(tmp_path / "all", rank)
        trained(tmp_path / "some", rank, **SAMPLED)
    whole, some = analyse(the_run(tmp_path / "all")), analyse(the_run(tmp_path / "some"))
    for name in ("input", "compute", "allreduce", "imbalance"):
        exact, estimate = whole.entry(name), some.entry(name)
        assert exact is not None
        assert estimate is not None
        low, high = estimate.ci95_ms or (estimate.ms, estimate.ms)
        assert low - 0.01 <= exact.ms <= high + 0.01
    # The time spent on steps is known of all of them.
    assert some.job.steps + some.job.warmup == pytest.approx(
        whole.job.steps + whole.job.warmup, 0.01
    )
    assert some.job.startup == pytest.approx(whole.job.startup, abs=0.5)
    assert some.job.total == pytest.approx(whole.job.total, 0.01)


def test_sums_are_those_of_the_missing_steps(tmp_path: Path) -> None:
    trained(tmp_path / "all", 0, 1)
    trained(tmp_path / "some", 0, 1, **SAMPLED)
    whole, some = the_run(tmp_path / "all"), the_run(tmp_path / "some")
    skipped = some.intervals.filter(pc.equal(some.intervals["kind"], "skipped"))
    assert set(skipped["epoch"].to_pylist()) == {0, 1, 2, 3}
    left_out = whole.steps.filter(pc.invert(pc.is_in(whole.steps["step"], some.steps["step"])))
    assert pc.sum(skipped["steps"]).as_py() == left_out.num_rows
    assert pc.sum(skipped["samples"]).as_py() == pc.sum(left_out["samples"]).as_py()
    for name in ("data", "ready", "reduced"):
        sums = pc.sum(pc.subtract(left_out[name], left_out["begin"])).as_py()
        assert pc.sum(skipped[name]).as_py() == sums


def test_a_timestamp_that_one_step_lacks_has_no_sum() -> None:
    sampler = Sampler(Sampling(0, 10**9))
    full = StepRow(1, 0, 0, 1, 2, 3, 4, 1, 8, 0)
    for row in (full, full._replace(step=2, ready=None), full._replace(step=3)):
        assert sampler.rows(row) == []
    (sums,) = sampler.rest()
    assert (sums.steps, sums.samples, sums.data, sums.ready, sums.reduced) == (3, 24, 3, None, 9)
    assert sampler.rest() == []


def test_unrepresentative_steps_are_reported(tmp_path: Path) -> None:
    for rank in (0, 1):
        trained(tmp_path, rank, **SAMPLED)
    run = the_run(tmp_path)
    at = run.intervals.schema.get_field_index("data")
    doubled = pc.multiply(run.intervals["data"], 2)
    wrong = Run(
        run.id,
        run.source,
        run.logs,
        run.steps,
        run.intervals.set_column(at, pa.field("data", pa.int64()), doubled),
    )
    (warning,) = analyse(wrong).warnings
    assert warning.startswith("input took ")


def test_a_large_log_continues_in_another_file(tmp_path: Path) -> None:
    session = trained(tmp_path / "some", 0, 1, max_file_mb=0.04)
    trained(tmp_path / "one", 0, 1)
    files = sorted((tmp_path / "some").glob("*.steps.csv"))
    assert len(files) > 3
    assert session.path == files[-1]
    # A flush of 250 rows may exceed the limit.
    assert max(file.stat().st_size for file in files) < 40_000 + 250 * 64
    several, single = the_run(tmp_path / "some"), the_run(tmp_path / "one")
    assert several.sessions == [0] * len(files)
    assert several.status == "completed"
    assert several.fact("model") == "m"
    for name in ("step", "epoch", "samples"):
        assert several.steps[name].to_pylist() == single.steps[name].to_pylist()
    for name in ("begin", "data", "ready", "reduced", "end"):
        gone = np.diff(several.steps[name].to_numpy()) - np.diff(single.steps[name].to_numpy())
        # Timestamps are whole microseconds from their file's own zero.
        assert np.abs(gone).max() <= 1000
    whole = analyse(several)
    assert whole.coverage.complete == STEPS
    assert whole.warm_up.sum() == analyse(single).warm_up.sum()
    assert not {finding.code for finding in whole.findings} - {
        finding.code for finding in analyse(single).findings
    }


def test_training_never_finds_the_recording_at_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(small_files(tmp_path), ALONE, {}, 0)
    seen = []
    close = FileSink.close

    def noted(sink: FileSink) -> None:
        seen.append(session.recording)
        close(sink)

    monkeypatch.setattr(FileSink, "close", noted)
    for row in rows()[:3]:
        session.step(row)
        session.flush()
    assert seen == [True] * len(seen)
    assert len(seen) >= 3
    session.close()


def test_facts_of_the_first_file_are_in_all(tmp_path: Path) -> None:
    session = Session(small_files(tmp_path), ALONE, {"model": "m"}, 0)
    session.facts({"gradient_bytes": 7})
    for row in rows()[:3]:
        session.step(row)
        session.flush()
    session.close()
    run = the_run(tmp_path)
    assert len(run.logs) == 4
    assert [log.facts["gradient_bytes"] for log in run.logs[1:]] == [7] * 3
    assert [log.facts["first_step"] for log in run.logs] == [0, 1, 2, 3]
    assert [log.continues for log in run.logs] == [False, True, True, True]
    assert [log.ended for log in run.logs] == [False, False, False, True]


def test_records_continue_as_another_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "stallscope.steps"):
        options = Options(tmp_path, flush_seconds=3600, sink="logging", max_file_mb=0.02)
        session = Session(options, ALONE, {}, 0)
        for row in rows()[:900]:
            session.step(row)
            if row.step % 100 == 0:
                session.flush()
        session.close()
    text = "\n".join(record.getMessage() for record in caplog.records)
    (tmp_path / "driver.log").write_text(text)
    (run,) = read(str(tmp_path / "driver.log"))
    assert run.steps.num_rows == 900
    assert len(run.logs) > 1
    assert set(run.sessions) == {0}


def test_a_further_file_that_cannot_be_made_ends_the_recording_and_not_the_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    session = Session(small_files(tmp_path), ALONE, {}, 0)
    (first,) = tmp_path.glob("*.steps.csv")
    for part in range(1, 200):
        (tmp_path / first.name.replace(".0.steps", f".{part}.steps")).mkdir()
    tmp_path.chmod(0o555)
    monkey = rows()[:2]
    assert session._files is not None
    session._files._new_file = _full  # type: ignore[method-assign]
    for row in monkey:
        session.step(row)
        session.flush()
    session.close()
    tmp_path.chmod(0o755)
    (message,) = [record.getMessage() for record in caplog.records if record.levelno > logging.INFO]
    assert "no space" in message
    assert "training goes on" in message
    assert Counter(line.split(",")[0] for line in first.read_text().splitlines())["step"] == 1


def _full(*_: object) -> Any:
    raise OSError("no space left on the device")


def test_invalid_options_are_refused_with_a_sentence() -> None:
    given: dict[str, Any] = {
        "run_name": None,
        "synthetic": False,
        "batch_size": None,
        "mlflow_run_id": None,
        "sink": "file",
        "flush_seconds": 1,
        "stages": True,
    }
    assert Options("logs", **given).sampling is None
    options = Options("logs", sample_after=10, sample_one_in=3, max_file_mb=0.5, **given)
    assert (options.sampling, options.max_file_bytes) == (Sampling(10, 3), 500_000)
    for wrong in ({"sample_after": -1}, {"sample_one_in": 0}, {"max_file_mb": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Options("logs", **wrong, **given)


@pytest.mark.parametrize(
    "fact",
    [None, 3, [], {}, {"full_steps": 1}, {"full_steps": 0, "one_in": 0, "block": 1, "seed": 0}],
)
def test_an_invalid_fact_means_no_sampling(fact: object, tmp_path: Path) -> None:
    session = Session(Options(tmp_path, flush_seconds=3600), ALONE, {"sampling": fact}, 0)
    session.close()
    assert sampling_of(the_run(tmp_path)) is None
