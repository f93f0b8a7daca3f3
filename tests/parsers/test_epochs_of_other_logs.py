"""Epochs and steps of HorovodRunner, TimeHistory, the eHealth benchmarks and a user's own lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.epoch_logs import epoch_times_of

from stallscope.errors import NotFoundError, UnreadableError, UsageError
from stallscope.parsers import read
from stallscope.parsers.registry import by_name
from stallscope.run import Run

EHEALTH = (
    "benchmark|PROD|CALTECH101|VGG16|6982|1695|HOROVOD_CLUSTER|p2.8xlarge|p2.8xlarge|2|16|2|3|0.001|32"
    ".log"
)


def run_of_text(path: Path, text: str, read_as: str | None = None) -> Run:
    """Write a text into a file and read it."""
    path.write_text(text)
    (run,) = read(str(path), read_as=read_as)
    return run


def epochs(run: Run) -> list[tuple[int, int, float]]:
    """Return rank, epoch and seconds."""
    return [(epoch.rank, epoch.epoch, round(epoch.s, 3)) for epoch in epoch_times_of(run).epochs]


# HorovodRunner


def test_log_callback_gives_epochs_and_steps_by_its_own_clock(tmp_path: Path) -> None:
    text = ""
    for epoch in range(3):
        begin = 1574985600.25 + 20 * epoch
        text += f"{begin}: begin epoch: {epoch} begin, logs: None\n"
        for batch in range(101):
            text += f"{begin + batch / 10}: epoch: {epoch}, batch: {batch}, logs: {{'loss': 1.9}}\n"
        text += f"{begin + 17.5}: end epoch: {epoch}, logs: {{'loss': 1.9}}\n"
    run = run_of_text(tmp_path / "driver.log", text)
    assert epochs(run) == [(0, 0, 17.5), (0, 1, 17.5), (0, 2, 17.5)]
    assert epoch_times_of(run).step_ms == pytest.approx(100)
    assert str(run.started_at) == "2019-11-29 00:00:00.250000+00:00"
    assert run.status == "completed"


def test_log_callback_of_an_unfinished_epoch_is_an_open_run(tmp_path: Path) -> None:
    lines = "1574985600.5: begin epoch: 0 begin, logs: None\n1574985617.5: end epoch: 0, logs: {}\n"
    begun = "1574985618.5: begin epoch: 1 begin, logs: None\n"
    run = run_of_text(tmp_path / "driver.log", lines + begun)
    assert epochs(run) == [(0, 0, 17.0)]
    assert run.status == "open"


def test_indistinguishable_ranks_of_log_callbacks_are_reported(tmp_path: Path) -> None:
    lines = "{0}.5: begin epoch: 0 begin, logs: None\n{0}.6: begin epoch: 0 begin, logs: None\n"
    run = run_of_text(
        tmp_path / "driver.log",
        lines.format(1574985600) + "1574985617.5: end epoch: 0, logs: {}\n",
    )
    assert "lines of several ranks are mixed" in str(run.problems[0])
    labelled = "[1,{}]<stdout>:1574985600.5: begin epoch: 0 begin, logs: None\n"
    labelled += "[1,{}]<stdout>:1574985617.5: end epoch: 0, logs: {{}}\n"
    run = run_of_text(tmp_path / "driver.log", labelled.format(0, 0) + labelled.format(1, 1))
    assert epochs(run) == [(0, 0, 17.0), (1, 0, 17.0)]
    assert run.problems == ()


# TimeHistory


@pytest.mark.parametrize(
    ("line", "precision_ms"),
    [
        ("TimeHistory: {:.2f} seconds, 829.82 examples/second between steps {} and {}\n", 0.05),
        (
            "BenchmarkMetric: {{'global step':{2}, 'time_taken': {0:.6f},"
            "'examples_per_second': 829.8}}\n",
            5e-6,
        ),
    ],
)
def test_time_history_gives_the_mean_of_steps_without_the_first_ones(
    tmp_path: Path, line: str, precision_ms: float
) -> None:
    turns = [(60.0, 0, 100), (12.0, 100, 200), (13.0, 200, 300)]
    text = "".join("I1121 12:00:00.1 1 keras_utils.py:1] " + line.format(*turn) for turn in turns)
    run = run_of_text(tmp_path / "log.txt", text)
    assert epoch_times_of(run).step_ms == pytest.approx(125)
    # Each of two figures is rounded to its last digit, over 200 steps.
    assert epoch_times_of(run).step_precision_ms == pytest.approx(precision_ms)
    assert epochs(run) == []


# eHealth


def repeats(line: str = " - 17s - loss: 1.0160") -> str:
    text = ""
    for repeat in (1, 2):
        stamp = "2019-11-06 0{}:{:02}:{:02} - STDOUT - INFO - "
        text += stamp.format(repeat, 0, 0) + f"HOROVOD_CLUSTER - REPEAT {repeat}\n"
        for epoch in range(3):
            for rank in (0, 1):
                begin = stamp.format(repeat, epoch + 1, 0) + f"[1,{rank}]<stdout>:"
                end = stamp.format(repeat, epoch + 1, 17) + f"[1,{rank}]<stdout>:"
                text += f"{begin}Epoch {epoch + 1}/3\n{end}{line}\n"
    return text


def test_each_repeat_of_a_benchmark_is_a_run_named_after_it(
    tmp_path: Path,
) -> None:
    (tmp_path / EHEALTH).write_text(repeats())
    runs = sorted(read(str(tmp_path)), key=lambda run: run.id)
    assert [run.name for run in runs] == [
        f"VGG16 on CALTECH101, np 16, repeat {repeat}" for repeat in (1, 2)
    ]
    assert len({run.id for run in runs}) == 2
    for run in runs:
        assert epochs(run) == [(rank, epoch, 17.0) for epoch in range(3) for rank in (0, 1)]
        assert (run.size, run.ranks) == (16, [0, 1])
        assert (run.fact("batch_size"), run.fact("learning_rate")) == (32, 0.001)
        assert (run.fact("dataset"), run.fact("training_samples")) == ("CALTECH101", 6982)
        # Whole seconds of an unknown zone.
        assert run.started_at is None
        assert epoch_times_of(run).precision == "epochs, to the second"
        assert epoch_times_of(run).precision_s == pytest.approx(0.5)
    assert [run.fact("began_local") for run in runs] == [
        "2019-11-06 01:01:00",
        "2019-11-06 02:01:00",
    ]


def test_without_keras_times_timestamps_give_epochs_to_a_second_either_way(
    tmp_path: Path,
) -> None:
    (tmp_path / EHEALTH).write_text(repeats("nothing of use"))
    run = min(read(str(tmp_path)), key=lambda run: run.id)
    # The end of the last one is unknown.
    assert epochs(run) == [(rank, epoch, 60.0) for epoch in range(2) for rank in (0, 1)]
    assert epoch_times_of(run).precision_s == pytest.approx(1.0)


def test_a_repeat_whose_lines_lack_the_drivers_timestamps_has_no_known_end(tmp_path: Path) -> None:
    text = "2019-11-06 01:00:00 - STDOUT - INFO - HOROVOD_CLUSTER - REPEAT 1\n"
    for epoch in range(3):
        for clock, line in ((0, f"Epoch {epoch + 1}/3"), (17, " - 17s - loss: 1.0160")):
            label = f"Wed Nov  6 01:0{epoch + 1}:{clock:02} 2019[1,0]<stdout>:"
            text += f"{label}{line}\n"
    (tmp_path / EHEALTH).write_text(text)
    (run,) = read(str(tmp_path))
    assert epochs(run) == [(0, epoch, 17.0) for epoch in range(3)]
    # The job began before its first epoch, and its last line has no timestamp of the driver.
    assert run.fact("whole_job") is True
    assert "end" not in run.intervals["kind"].to_pylist()


def test_a_repeat_without_epochs_is_reported_and_the_others_are_read(tmp_path: Path) -> None:
    first, _, second = repeats().partition("2019-11-06 02:00:00")
    name = EHEALTH.replace("6982", "many").replace("0.001", "")
    (tmp_path / name).write_text(first + "2019-11-06 02:00:00" + second.split("\n")[0] + "\n")
    (run,) = read(str(tmp_path))
    assert "repeat 2: no epoch has ended in it" in str(run.problems[0])
    assert run.fact("training_samples") is None
    assert run.fact("learning_rate") is None
    (tmp_path / name).write_text("nothing\n")
    with pytest.raises(UnreadableError, match="without a completed epoch"):
        read(str(tmp_path))


# Lines of a user's own


def test_epochs_last_from_line_to_line_and_steps_are_a_mean(tmp_path: Path) -> None:
    line = "2026-11-21 02:{:02}:{:02},250 INFO train: epoch={} step={} loss=0.2\n"
    text = "".join(line.format(*divmod(step, 60), step // 100 + 1, step) for step in range(600))
    run = run_of_text(tmp_path / "own.log", text, "pattern:{time} {}epoch={epoch} step={step}")
    assert epochs(run) == [(0, epoch, 100.0) for epoch in range(5)]
    assert epoch_times_of(run).step_ms == pytest.approx(1000)
    assert epoch_times_of(run).step_precision_ms == pytest.approx(1 / 599)
    assert run.status == "open"


def test_whole_seconds_have_their_uncertainty(tmp_path: Path) -> None:
    # 10 steps of 0.3 s, with timestamps in whole seconds.
    text = "".join(f"2026-11-21 02:00:{int(step * 0.3):02} step {step}\n" for step in range(11))
    run = run_of_text(tmp_path / "own.log", text, "pattern:{time} step {step}")
    times = epoch_times_of(run)
    assert times.step_precision_ms == pytest.approx(100)
    assert times.step_ms is not None
    assert abs(times.step_ms - 300) <= times.step_precision_ms
    text = "2026-11-21 02:00:00 epoch 1\n2026-11-21 02:00:10 epoch 2\n"
    run = run_of_text(tmp_path / "own.log", text, "pattern:{time} epoch {epoch}")
    assert epoch_times_of(run).epochs[0].precision_s == pytest.approx(1.0)


def test_numbers_may_be_padded_and_months_come_first(tmp_path: Path) -> None:
    text = "".join(
        f"11/21/2026 02:{at // 60:02d}:{at % 60:02d} - INFO - Epoch: [{at // 300}][{at % 300:5d}/300]\n"
        for at in range(0, 600, 50)
    )
    pattern = "pattern:{time} - INFO - Epoch: [{epoch}][{step}/300]"
    run = run_of_text(tmp_path / "own.log", text, pattern)
    assert epochs(run)[0] == (0, 0, 300.0)
    assert epoch_times_of(run).step_ms == pytest.approx(1000)


def test_ranks_timestamps_and_seconds_are_read_from_any_place(tmp_path: Path) -> None:
    pattern = "pattern:rank {rank} {} epoch {epoch} took {seconds}"
    text = "".join(
        f"rank {rank} of 2: epoch {epoch} took {5 + rank}.25 s\n"
        for epoch in (1, 2)
        for rank in (0, 1)
    )
    run = run_of_text(tmp_path / "own.log", text, pattern)
    assert epochs(run) == [(rank, epoch, 5.25 + rank) for epoch in (0, 1) for rank in (0, 1)]
    labelled = "".join(
        f"Sat Nov 21 02:00:{10 * epoch:02} 2026[{rank}]<stdout>:epoch {epoch} begins\n"
        for epoch in range(3)
        for rank in (0, 1)
    )
    run = run_of_text(tmp_path / "own.log", labelled, "pattern:epoch {epoch}")
    assert epochs(run) == [(rank, epoch, 10.0) for epoch in (0, 1) for rank in (0, 1)]
    unix = "".join(f"[{1790000000 + 2 * step}.5] step {step}\n" for step in range(5))
    run = run_of_text(tmp_path / "own.log", unix, "pattern:{time} step {step}")
    assert epoch_times_of(run).step_ms == pytest.approx(2000)
    run = run_of_text(
        tmp_path / "own.log",
        "step 1 took 0.25\nstep 2 took 0.75\n",
        "pattern:step {step} took {seconds}",
    )
    assert epoch_times_of(run).step_ms == pytest.approx(500)


def test_restarted_steps_and_changed_clocks_add_uncertainty(tmp_path: Path) -> None:
    seconds = [0, 10, 20, 30, 25, 35]
    steps = [0, 10, 0, 10, 20, 30]
    text = "".join(
        f"2026-11-21 02:00:{second:02} step {step}\n"
        for second, step in zip(seconds, steps, strict=True)
    )
    run = run_of_text(tmp_path / "own.log", text, "pattern:{time} step {step}")
    # 30 s of 30 steps in three pieces.
    assert epoch_times_of(run).step_ms == pytest.approx(1000)
    assert epoch_times_of(run).step_precision_ms == pytest.approx(100)


def test_missing_facts_of_lines_are_reported(tmp_path: Path) -> None:
    run = run_of_text(tmp_path / "own.log", "step 1\nstep 2\n", "pattern:step {step}")
    assert "have no times" in str(run.problems[0])
    with pytest.raises(UnreadableError, match="no line matches the pattern"):
        read(str(tmp_path / "own.log"), read_as="pattern:epoch {epoch}")
    (tmp_path / "own.log").unlink()
    with pytest.raises(NotFoundError):
        read(str(tmp_path), read_as="pattern:epoch {epoch}")


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("{when} {step}", "{when} is not a field; there are {time}, {rank}"),
        ("{step} {step}", "a field occurs twice"),
        ("{time}", "a pattern needs {epoch} or {step}"),
        ("", "a pattern needs {epoch} or {step}"),
        ("{}{step}", "text has to follow {}"),
        ("{}{}x {step}", "text has to follow {}"),
    ],
)
def test_an_invalid_pattern_is_an_error_of_one_sentence(pattern: str, says: str) -> None:
    with pytest.raises(UsageError) as error:
        by_name(f"pattern:{pattern}")
    assert says in str(error.value)


# What Keras prints on the way


@pytest.mark.parametrize(
    ("bar", "says"),
    [
        ("\r 31/78 [=======>......] - ETA: 14s - loss: 2.28", "at step 31 of 78, with 14s to go"),
        ("\r 31/78 [=======>......] - ETA: 1:02:03 - loss: 2.28", "with 1:02:03 to go"),
        ("\r    12/Unknown - 3s 33ms/step - loss: 2.28", "at step 12 of an unknown number"),
        (
            "\r\x1b[1m31/78\x1b[0m \x1b[32m━━━━━━━\x1b[0m\x1b[37m━━━━━━━━━━━━━\x1b[0m \x1b[1m14s\x1b[0m "
            "195ms/step - loss: 2.2",
            "at step 31 of 78, with 14s to go",
        ),
    ],
    ids=["eta", "hours", "unknown length", "keras 3"],
)
def test_an_unfinished_epoch_is_reported(tmp_path: Path, bar: str, says: str) -> None:
    text = "Epoch 1/3\n78/78 [==============] - 17s 195ms/step - loss: 2.0\nEpoch 2/3\n" + bar
    run = run_of_text(tmp_path / "out.txt", text)
    assert "epoch 2 broke off" in str(run.problems[0])
    assert says in str(run.problems[0])
    assert epochs(run) == [(0, 0, 17.0)]


def test_whether_validation_is_in_the_epochs_is_known(tmp_path: Path) -> None:
    line = "Epoch {0}/2\n5/5 - 3s - loss: 1.0 - 600ms/step{1}\n"
    text = line.format(1, "") + line.format(2, "")
    assert run_of_text(tmp_path / "out.txt", text).fact("validation_in_epochs") is False
    with_it = line.format(1, " - val_loss: 1.0") + line.format(2, " - val_loss: 1.0")
    assert run_of_text(tmp_path / "out.txt", with_it).fact("validation_in_epochs") is True
    some = line.format(1, "") + line.format(2, " - val_loss: 1.0")
    assert run_of_text(tmp_path / "out.txt", some).fact("validation_in_epochs") is None
