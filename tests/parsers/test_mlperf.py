"""Logs of MLPerf's loggers, in the forms of all versions."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.epoch_logs import epoch_times_of

from stallscope.errors import UnreadableError
from stallscope.parsers import read
from stallscope.parsers.formats.mlperf.mlperf_parser import MlperfParser
from stallscope.run import Run

HERE = Path(__file__).parent
#: What mlperf-logging 4.1.68 has printed: 4 epochs in 2 blocks, with an evaluation after each block.
REAL = (HERE / "mlperf" / "mlperf-logging-4.1.68.txt").read_text()
START_MS = 1_634_114_576_000


def mllog(at_ms: int, key: str, value: object = None, **metadata: object) -> str:
    """Return a line as versions from 0.7 on print it."""
    edge = {"start": "INTERVAL_START", "stop": "INTERVAL_END"}
    event = {
        "namespace": "",
        "time_ms": START_MS + at_ms,
        "event_type": edge.get(key.rpartition("_")[2], "POINT_IN_TIME"),
        "key": key,
        "value": value,
        "metadata": {"file": "train.py", "lineno": 12, **metadata},
    }
    return f":::MLLOG {json.dumps(event)}"


def job(*, points: bool = True, ranks: int | None = 8) -> list[str]:
    """Return the lines of a job: 3 epochs of 100 steps of 80 ms, and an evaluation of 2 s after each."""
    lines = [mllog(0, "global_batch_size", 256), mllog(0, "train_samples", 25_600)]
    lines += [] if ranks is None else [mllog(0, "number_of_ranks", ranks)]
    lines.append(mllog(500, "run_start"))
    at, step = 1_000, 0
    for epoch in (1, 2, 3):
        lines.append(mllog(at, "epoch_start", epoch_num=epoch, step_num=step))
        for _ in range(10):
            at, step = at + 800, step + 10
            lines += [mllog(at, "train_loss", 0.5, epoch_num=epoch, step_num=step)] * points
        lines += [
            mllog(at + 1, "epoch_stop", epoch_num=epoch),
            mllog(at + 2, "eval_start", epoch_num=epoch),
            mllog(at + 2_002, "eval_stop", epoch_num=epoch),
        ]
        at += 2_003
    return [*lines, mllog(at, "run_stop", status="success")]


def run_of(folder: Path, text: str, name: str = "result_0.txt") -> Run:
    (folder / name).write_text(text)
    (run,) = read(str(folder))
    return run


def rows(run: Run, kind: str) -> list[dict[str, int]]:
    return [row for row in run.intervals.to_pylist() if row["kind"] == kind]


def seconds(run: Run, kind: str) -> list[tuple[int, float]]:
    """Return the epochs of intervals, and how long these took."""
    return [(row["epoch"], (row["end"] - row["begin"]) / 1e9) for row in rows(run, kind)]


def test_the_real_logger_gives_epochs_evaluations_the_end_and_the_settings(tmp_path: Path) -> None:
    run = run_of(tmp_path, REAL)
    assert seconds(run, "epoch") == [(0, 25.0), (1, 20.0), (2, 20.0), (3, 20.0)]
    assert seconds(run, "validation") == [(1, 2.5), (3, 2.5)]
    assert str(run.started_at) == "2024-07-10 08:26:41+00:00"
    (end,) = rows(run, "end")
    assert end["end"] == 90_126_000_000
    assert run.status == "completed"
    assert (run.size, run.fact("size_from")) == (8, "MLPerf's metadata")
    assert (run.fact("batch_size"), run.fact("model")) == (32, "resnet")
    # 100 steps of 20 s, give or take a step; the first epoch does not count.
    known = epoch_times_of(run)
    assert (known.mean_s, known.step_ms, known.step_precision_ms) == (20.0, 200.0, 2.0)
    assert known.samples_per_second_per_rank == pytest.approx(25_600 / 8 / 20)


def test_seconds_are_times_as_well(tmp_path: Path) -> None:
    run = run_of(tmp_path, REAL)
    text = re.sub(
        r'"time_ms": (\d{10})(\d{3})', lambda match: f'"time_s": {match[1]}.{match[2]}', REAL
    )
    # Settings that a submission adds afterwards have none.
    settings = ':::MLLOG {"time_s": 0.0, "key": "global_batch_size", "value": 3328}\n'
    rewritten = run_of(tmp_path, settings + text)
    assert rows(rewritten, "epoch") == rows(run, "epoch")
    assert rewritten.fact("precision") == "epochs, to the millisecond"


def test_steps_without_times_of_day_lie_in_mlperfs_epochs(tmp_path: Path) -> None:
    meter = "Epoch: [{}][{}/100]\tTime 0.080 (0.080)\tData 0.001 (0.001)"
    lines = []
    for line in job(points=False):
        lines.append(line)
        if "epoch_start" in line:
            epoch = json.loads(line.partition(" ")[2])["metadata"]["epoch_num"] - 1
            lines += [meter.format(epoch, step) for step in range(0, 100, 10)]
    run = run_of(tmp_path, "\n".join(lines))
    assert run.fact("known_from") == "meters of PyTorch's examples"
    begins = {row["epoch"]: row["begin"] for row in rows(run, "epoch")}
    assert seconds(run, "epoch") == [(0, 8.001), (1, 8.001), (2, 8.001)]
    windows = rows(run, "window")
    assert len(windows) == 30
    for epoch, begin in begins.items():
        first = min(row["begin"] for row in windows if row["epoch"] == epoch)
        assert first == begin
    assert run.started_at is not None
    assert run.status == "completed"


def test_samples_that_contradict_the_throughput_are_not_those_of_steps(tmp_path: Path) -> None:
    meter = "Epoch: [{}][{}/100]\tTime 0.080 (0.080)"
    stats = mllog(9_000, "tracked_stats", {"throughput": 3_200.0 * 8}, step=1)
    text = "\n".join([*job(points=False), *(meter.format(0, n) for n in range(9))])
    assert run_of(tmp_path, text).fact("training_samples") == 25_600
    assert run_of(tmp_path, f"{stats}\n{text}").fact("training_samples") is None


def test_numbers_of_steps_make_windows_without_evaluations(tmp_path: Path) -> None:
    run = run_of(tmp_path, "\n".join(job()))
    windows = rows(run, "window")
    assert [row["step"] for row in windows] == list(range(10, 301, 10))
    assert {row["steps"] for row in windows} == {10}
    assert {row["end"] - row["begin"] for row in windows} == {800_000_000}
    assert run.fact("step_ms") == pytest.approx(80)


def test_numbers_of_samples_make_windows_where_they_are_whole_steps(tmp_path: Path) -> None:
    lines = [mllog(0, "global_batch_size", 8), mllog(5, "run_start")]
    at = 10
    for block in range(3):
        samples = 384 * block
        lines += [
            mllog(at, "block_start", samples_count=samples),
            mllog(at + 9_600, "tracked_stats", {"throughput": 40.0}, step=samples + 384),
            mllog(at + 9_600, "block_stop", samples_count=samples + 384),
            mllog(at + 9_600, "eval_start", samples_count=samples + 384),
            mllog(at + 9_900, "eval_stop", samples_count=samples + 384),
        ]
        at += 10_000
    run = run_of(tmp_path, "\n".join(lines))
    assert [(row["step"], row["steps"]) for row in rows(run, "window")] == [
        (48, 48),
        (96, 48),
        (144, 48),
    ]
    assert run.fact("step_ms") == pytest.approx(200)
    assert len(rows(run, "validation")) == 3
    # Not whole steps: of something else, and the throughput's unit is unknown.
    run = run_of(tmp_path, "\n".join(lines).replace('"value": 8,', '"value": 5,'))
    assert rows(run, "window") == []
    assert "throughput" in str(run.problems[0])


def test_a_block_of_several_epochs_is_not_divided(tmp_path: Path) -> None:
    lines = [mllog(0, "global_batch_size", 256), mllog(0, "train_samples", 25_600)]
    lines.append(mllog(0, "run_start"))
    for first in (1, 5):
        lines.append(mllog(first * 20_000, "block_start", first_epoch_num=first, epoch_count=4))
        lines.append(mllog(first * 20_000 + 60_000, "block_stop", first_epoch_num=first))
    run = run_of(tmp_path, "\n".join(lines))
    assert rows(run, "epoch") == []
    assert "blocks are logged, and not how long each epoch took" in str(run.problems[0])
    assert epoch_times_of(run).step_ms == pytest.approx(150)
    assert run.status == "open"
    one_each = "\n".join(lines).replace('"epoch_count": 4', '"epoch_count": 1')
    assert seconds(run_of(tmp_path, one_each), "epoch") == [(0, 60.0), (4, 60.0)]


def test_samples_that_are_called_epochs_are_none(tmp_path: Path) -> None:
    """Some programs count the samples of a block in ``epoch_count``."""
    lines = [mllog(0, "global_batch_size", 28), mllog(0, "train_samples", 168)]
    for first in (3_360, 6_720):
        lines.append(mllog(4 * first, "block_start", first_epoch_num=first, epoch_count=3_360))
        lines.append(mllog(4 * first + 12_000, "block_stop", first_epoch_num=first))
    run = run_of(tmp_path, "\n".join([mllog(0, "run_start"), *lines]))
    assert rows(run, "epoch") == []
    assert epoch_times_of(run).step_ms is None


@pytest.mark.parametrize(("rate", "agrees"), [(3_150.0, True), (400.0, False), (9e5, False)])
def test_a_throughput_confirms_the_samples_of_an_epoch(
    rate: float, agrees: bool, tmp_path: Path
) -> None:
    # 25,600 samples in 8 s.
    lines = [line.replace(', "step_num"', ', "other"') for line in job(points=False)]
    lines += [mllog(9_000 + at, "tracked_stats", {"throughput": rate}, step=at) for at in (1, 2)]
    run = run_of(tmp_path, "\n".join(lines))
    assert len(rows(run, "epoch")) == 3
    assert (epoch_times_of(run).step_ms is not None) == agrees
    assert (run.fact("training_samples") is not None) == agrees
    assert ["disagree" in str(problem) for problem in run.problems] == ([] if agrees else [True])


@pytest.mark.parametrize(
    "label",
    [
        "{}: ",
        "[1,{}]<stdout>:",
        "[{}] ",
        "2021-10-13 08:42:56,123 - STDOUT - INFO - [1,{}]<stdout>:",
    ],
)
def test_every_launchers_label_tells_the_rank(label: str, tmp_path: Path) -> None:
    labelled = [f"{label.format(rank)}{line}" for line in job() for rank in (0, 1)]
    run = run_of(tmp_path, "\n".join(labelled) + "\n")
    assert run.ranks == [0, 1]
    assert (run.size, run.fact("size_from")) == (2, "ranks of the lines")
    assert len(rows(run, "epoch")) == 6
    assert len(rows(run, "window")) == 60


def test_one_labelled_rank_leaves_the_number_of_ranks_to_the_metadata(tmp_path: Path) -> None:
    run = run_of(tmp_path, "".join(f"0: {line}\n" for line in job()))
    assert (run.ranks, run.size) == ([0], 8)
    assert run.fact("size_from") == "MLPerf's metadata"
    unknown = run_of(tmp_path, "".join(f"0: {line}\n" for line in job(ranks=None)))
    assert unknown.fact("size") is None
    words = run_of(tmp_path, "I am rank 0 of 16\n" + "\n".join(job()))
    assert (words.size, words.fact("size_from")) == (16, "what the log says")


def test_ranks_in_files_of_their_own_are_one_run(tmp_path: Path) -> None:
    for rank in (0, 1, 2):
        (tmp_path / f"rank.{rank}").mkdir()
        (tmp_path / f"rank.{rank}" / "stdout").write_text("\n".join(job()))
    (run,) = read(str(tmp_path))
    assert run.ranks == [0, 1, 2]


def test_unlabelled_ranks_are_one_log_from_the_first_to_the_last(tmp_path: Path) -> None:
    starts = [mllog(at, "epoch_start", epoch_num=1) for at in (100, 103, 107)]
    stops = [mllog(at, "epoch_stop", epoch_num=1) for at in (20_100, 20_104, 20_111)]
    run = run_of(tmp_path, "\n".join([mllog(0, "run_start"), *starts, *stops]))
    assert seconds(run, "epoch") == [(0, 20.011)]
    assert "several ranks print into this file" in str(run.problems[0])


def test_older_versions_and_what_a_logger_prints_twice(tmp_path: Path) -> None:
    v06 = [
        ':::MLL 1560881700.926 run_start: {"value": null, "metadata": {"lineno": 77, "file": "a.py"}}',
        ':::MLL 1560881701.000 epoch_start: {"value": null, "metadata": {"epoch_num": 0}}',
        ':::MLL 1560881721.500 epoch_stop: {"metadata": {"epoch_num": 0}, "value": null}',
        ':::MLL 1560881722.000 run_stop: {"value": null, "metadata": {"status": "success"}}',
    ]
    run = run_of(tmp_path, "\n".join(v06))
    assert seconds(run, "epoch") == [(0, 20.5)]
    v05 = [
        "NCF_RAW_:::MLPv0.5.0 ncf 1541688590.123456789 (ncf.py:12) run_start",
        "NCF_RAW_:::MLPv0.5.0 ncf 1541688591.0 (ncf.py:12) train_epoch: 1",
        "NCF_RAW_:::MLPv0.5.0 ncf 1541688691.0 (ncf.py:12) train_epoch: 2",
        "NCF_RAW_:::MLPv0.5.0 ncf 1541688790.0 (ncf.py:12) eval_start: 2",
        "NCF_RAW_:::MLPv0.5.0 ncf 1541688799.0 (ncf.py:12) eval_stop: 2",
        'NCF_RAW_:::MLPv0.5.0 ncf 1541688799.5 (ncf.py:12) run_stop: {"success": true}',
    ]
    twice = [f"{line}\nI1108 14:49:50.1 140 mlperf_log.py:134] {line}" for line in v05]
    for text in ("\n".join(v05), "\n".join(twice)):
        run = run_of(tmp_path, text)
        assert seconds(run, "epoch") == [(0, 100.0), (1, 108.5)]
        assert seconds(run, "validation") == [(1, 9.0)]
        assert (run.fact("model"), run.problems) == ("ncf", ())


def test_a_second_training_in_a_file_is_a_further_fit(tmp_path: Path) -> None:
    later = [line.replace(str(START_MS)[:6], str(START_MS + 10**7)[:6]) for line in job()]
    run = run_of(tmp_path, "\n".join(job() + later))
    assert [log.part for log in run.logs] == [0, 1]
    assert len(epoch_times_of(run).epochs) == 6


def test_settings_at_the_time_0_are_no_events(tmp_path: Path) -> None:
    clear = mllog(-START_MS, "cache_clear", True)
    added = mllog(-START_MS, "epoch_start", epoch_num=7)
    run = run_of(tmp_path, "\n".join([clear, added, *job()]))
    assert str(run.started_at) == "2021-10-13 08:42:56.500000+00:00"


def printed_by_a_trainer(hours: int, *, points: bool = True) -> str:
    """Return lines of steps in local time among MLPerf's lines."""
    lines: list[str] = []
    for line in job(points=True):
        event = json.loads(line.removeprefix(":::MLLOG "))
        if event["key"] != "train_loss":
            lines.append(line)
            continue
        stamp = datetime.fromtimestamp(event["time_ms"] / 1e3, UTC) + timedelta(hours=hours)
        step = (event["metadata"]["step_num"] - 1) % 100 + 1
        lines.append(
            f"{stamp:%Y-%m-%d %H:%M:%S},{stamp.microsecond // 1000:03d} "
            f"epoch={event['metadata']['epoch_num']} step={step} rate={3200:.1f}"
        )
    return "\n".join(lines)


@pytest.mark.parametrize("hours", [-7, 0, 9])
def test_steps_that_a_program_prints_get_mlperfs_settings_and_evaluations(
    hours: int, tmp_path: Path
) -> None:
    (tmp_path / "log.txt").write_text(printed_by_a_trainer(hours))
    (run,) = read(str(tmp_path), read_as="pattern:{time} epoch={epoch} step={step} rate={rate}")
    # 3,200 samples per second are those of all ranks: the batch is MLPerf's.
    assert run.fact("rate_of") == "all ranks"
    assert (run.size, run.fact("batch_size")) == (8, 32)
    assert len(rows(run, "window")) == 30
    assert seconds(run, "epoch") == [(0, 8.001), (1, 8.001), (2, 8.001)]
    assert seconds(run, "validation") == [(0, 2.0), (1, 2.0), (2, 2.0)]
    # MLPerf's clock tells the zone of the other lines.
    assert str(run.started_at) == "2021-10-13 08:42:57.800000+00:00"
    assert run.status == "completed"


def test_readings_of_power_are_no_training() -> None:
    data = "\n".join(mllog(at, "power_reading", 512.5) for at in range(9)).encode()
    assert not MlperfParser().recognises("node_0.txt", data)
    assert MlperfParser().recognises("node_0.txt", data + REAL.encode())


def test_lines_without_a_duration_are_reported() -> None:
    with pytest.raises(UnreadableError, match="no start and end of anything"):
        MlperfParser().parse("it", mllog(0, "global_batch_size", 256).encode())


@pytest.mark.parametrize(
    "line",
    [
        ":::MLLOG {" + '"a": [' * 5_000,
        ":::MLLOG {" + '"key": "epoch_start", "time_ms": 1e400}',
        ':::MLLOG {"key": ["run_start"], "time_ms": 1634114576000}',
        ':::MLLOG {"key": "run_start", "time_ms": 99999999999999999}',
        ':::MLLOG {"key": "epoch_start", "time_ms": 1634114576000, "metadata": 7, "value": -3}',
        ":::MLL 1560881700.926 run_start: {" + "9" * 5_000,
        ":::MLPv0.5.0 x 1541688590.1 (" + "(" * 5_000 + ") run_start",
    ],
)
def test_damaged_lines_change_nothing(line: str, tmp_path: Path) -> None:
    whole, damaged = run_of(tmp_path, "\n".join(job())), run_of(tmp_path, "\n".join([line, *job()]))
    assert damaged.intervals == whole.intervals
