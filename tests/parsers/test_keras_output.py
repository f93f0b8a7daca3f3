"""Keras's output is read as epochs, as far as possible: real bytes of TF-Keras 2 and Keras 3."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.epoch_logs import epoch_times_of
from support.step_logs import Job, write_job

from stallscope.analysis import analyse
from stallscope.collector.recorder.step_log.sinks import key_of, records
from stallscope.collector.store.loading import load_run
from stallscope.collector.store.run_folders import save_run
from stallscope.errors import NotFoundError, StallscopeError, UnreadableError
from stallscope.parsers import read
from stallscope.parsers.formats.keras_output import KerasOutputParser
from stallscope.parsers.registry import recognise
from stallscope.parsers.runs.epoch_runs import as_runs
from stallscope.parsers.runs.grouping import group
from stallscope.run import Run

#: Printed by TensorFlow 2.15.1 and Keras 3.15.1; by horovodrun 0.28.1 over Gloo on two ranks.
PRINTED = Path(__file__).parent / "printed"
BAR = "=" * 30
PARSER = KerasOutputParser()


def printed(name: str) -> Run:
    (run,) = read(str(PRINTED / f"{name}.txt"))
    return run


def run_of_output(text: str | bytes) -> Run:
    """Parse a program's output, without a file."""
    data = text.encode() if isinstance(text, str) else text
    parsed = PARSER.parse("out.txt", data)
    (run,) = group(
        "out.txt", as_runs([("/logs/out.txt", log) for log in (parsed, *parsed.more)]), []
    )
    return run


def seconds(run: Run) -> list[float]:
    return [round(epoch.s, 3) for epoch in epoch_times_of(run).epochs]


def intervals(run: Run) -> list[tuple[int, int, int, int]]:
    """Return rank, epoch, and start and end in whole seconds."""
    return [
        (row["rank"], row["epoch"], row["begin"] // 10**9, row["end"] // 10**9)
        for row in run.intervals.to_pylist()
    ]


@pytest.mark.parametrize(
    ("name", "took", "step_ms", "precision"),
    [
        ("tf-2.15-verbose-1", [1, 1, 1], 34.5, "epochs, to the second"),
        ("tf-2.15-verbose-2", [0.999, 0.677, 0.682], 33.975, "epochs, to the millisecond"),
        ("tf-2.15-no-length", [2, 1], 40, "epochs, to the second"),
        ("keras-3.15-verbose-1", [3, 1, 1], 33, "epochs, to the second"),
        ("keras-3.15-verbose-2", [2.78, 0.68, 0.66], 33.5, "epochs, to 20 ms"),
    ],
)
def test_epochs_of_a_fit_are_read(
    name: str, took: list[float], step_ms: float, precision: str
) -> None:
    run = printed(name)
    assert seconds(run) == took
    assert run.steps.num_rows == 0
    assert run.intervals["kind"].to_pylist() == ["epoch"] * len(took)
    assert run.status == "completed"
    assert run.problems == ()
    assert epoch_times_of(run).step_ms == pytest.approx(step_ms)
    assert epoch_times_of(run).precision == precision
    assert run.fact("steps_per_epoch") == (12 if "no-length" in name else 20)
    assert run.fact("framework") == "keras"


def test_an_evaluation_after_the_fit_is_not_an_epoch() -> None:
    for name in ("tf-2.15-verbose-1", "tf-2.15-verbose-2", "keras-3.15-verbose-1"):
        assert (PRINTED / f"{name}.txt").read_text().count("loss: ") > 3
        assert len(seconds(printed(name))) == 3


def test_the_verdict_states_what_is_known_and_what_to_do() -> None:
    analysis = analyse(printed("tf-2.15-verbose-1"))
    assert analysis.bottleneck.kind == "insufficient_data"
    assert "how long epochs took, but not the stages of a step" in analysis.bottleneck.evidence
    assert "what Keras printed (epochs, to the second)" in analysis.bottleneck.evidence
    assert "StepLogger" in str(analysis.bottleneck.advice[0])
    assert (analysis.findings, analysis.what_if, analysis.step) == ((), (), None)
    assert (analysis.epochs, analysis.steps) == (3, 0)
    assert analysis.samples_per_second is None


def test_the_first_epoch_is_left_out_of_means() -> None:
    times = epoch_times_of(printed("tf-2.15-verbose-2"))
    assert times.mean_s == pytest.approx((0.677 + 0.682) / 2)
    assert times.precision_s == pytest.approx(0.0005)
    assert [epoch.precision_s for epoch in times.epochs] == [0.0005] * 3


def test_another_fit_is_a_separate_log() -> None:
    run = printed("tf-2.15-two-fits")
    assert [(log.rank, log.part) for log in run.logs] == [(0, 0), (0, 1)]
    assert [(epoch.fit, epoch.epoch) for epoch in epoch_times_of(run).epochs] == [
        (0, 0),
        (0, 1),
        (1, 2),
        (1, 3),
    ]
    assert [log.facts["steps_per_epoch"] for log in run.logs] == [20, 10]
    assert epoch_times_of(run).mean_s == pytest.approx(0.341)
    # One after the other: the pause between them is unknown.
    assert intervals(run)[-1][3] == int(1.66 + 1.04 + 0.678 + 0.341)


def test_fits_of_one_epoch_are_epochs_with_a_note_that_they_may_be_evaluations() -> None:
    run = printed("tf-2.15-fits-of-one-epoch")
    assert seconds(run) == [1.02, 0.983, 0.712]
    assert [epoch.epoch for epoch in epoch_times_of(run).epochs] == [0, 1, 2]
    assert "evaluate prints the same" in str(run.problems[0])
    # An evaluation with another number of batches is distinguished.
    assert seconds(printed("keras-3.15-one-epoch")) == [1]


def test_ranks_and_timestamps_of_a_launcher_are_read() -> None:
    run = printed("horovodrun-stamped")
    assert (run.ranks, run.size, run.fact("size")) == ([0, 1], 2, 2)
    assert intervals(run) == [
        (0, 0, 1, 12),
        (0, 1, 12, 13),
        (0, 2, 13, 14),
        (1, 0, 0, 12),
        (1, 1, 12, 13),
        (1, 2, 13, 14),
    ]
    assert run.fact("clock") == "stamps of the lines, from 2026-11-21 16:31:04 of an unknown zone"
    # A time of unknown zone is not shown as UTC.
    assert run.started_at is None


OLD = (
    "Epoch 1/2\n\n 1/78 [..............................] - ETA: 2:34 - loss: 2.2900\n"
    " 3/78 [>.............................] - ETA: 59s - loss: 2.2800 \n"
    f"78/78 [{BAR}] - 17s 218ms/step - loss: 1.9146 - accuracy: 0.3885\n"
    f"Epoch 2/2\n78/78 [{BAR}] - 16s 205ms/step - loss: 1.9\n"
)


@pytest.mark.parametrize(
    ("text", "took", "per_epoch"),
    [
        (OLD, [17, 16], {"steps_per_epoch": 78}),
        (OLD.replace("\n", "\r\n"), [17, 16], {"steps_per_epoch": 78}),
        ("Epoch 1/2\n - 17s - loss: 1.9\nEpoch 2/2\n - 16s - loss: 1.0\n", [17, 16], {}),
        (
            "Train on 60000 samples, validate on 10000 samples\nEpoch 1/1\n"
            f"60000/60000 [{BAR}] - 12s 207us/step - loss: 0.2 - val_loss: 0.1\n",
            [12],
            {"samples_per_epoch": 60000},
        ),
        (
            f"Epoch 1/1\n60000/60000 [{BAR}] - 4s 70us/sample - loss: 0.5\n",
            [4],
            {"samples_per_epoch": 60000},
        ),
        (
            f"Epoch 1/1\n78/78 [{BAR}] - 9s 99ms/step - d_loss: 0.5 - g_loss: 1.5\n",
            [9],
            {"steps_per_epoch": 78},
        ),
        ("Epoch 1/1\n78/78 - 17s - loss: 1.9000 - accuracy: 0.4\n", [17], {"steps_per_epoch": 78}),
    ],
)
def test_older_versions_are_read(text: str, took: list[float], per_epoch: dict[str, int]) -> None:
    assert recognise("stdout", text.encode()) is not None
    run = run_of_output(text)
    assert seconds(run) == took
    facts = {name: run.fact(name) for name in ("steps_per_epoch", "samples_per_epoch")}
    assert {name: value for name, value in facts.items() if value is not None} == per_epoch


def test_samples_give_the_throughput_of_one_rank() -> None:
    # A time of 4 s may be an eighth longer.
    for seconds_of_epoch, throughput in ((40, 1500), (4, None)):
        text = f"60000/60000 [{BAR}] - {seconds_of_epoch}s 70us/sample - loss: 0.5\n"
        times = epoch_times_of(run_of_output(f"Epoch 1/2\n{text}Epoch 2/2\n{text}"))
        assert times.samples_per_second_per_rank == throughput
        assert times.step_ms is None


def test_updates_on_separate_lines_end_an_epoch_once() -> None:
    data = (PRINTED / "keras-3.15-verbose-1.txt").read_bytes()
    apart = data.replace(b"\b", b"").replace(b"\r", b"\n")
    assert seconds(run_of_output(apart)) == seconds(run_of_output(data))


def test_timestamps_of_lines_are_wall_time_if_their_zone_is_known() -> None:
    lines = "".join(
        f"2026-11-21T10:00:{second:02d}.000Z stdout F {text}\n"
        for second, text in (
            (1, "Epoch 1/2"),
            (11, "78/78 - 10s - 128ms/step - loss: 1.9"),
            (15, "Epoch 2/2"),
            (25, "78/78 - 10s - 128ms/step - loss: 1.8"),
        )
    )
    run = run_of_output(lines)
    assert run.started_at is not None
    assert f"{run.started_at:%Y-%m-%d %H:%M:%S}" == "2026-11-21 10:00:01"
    # The pause between the epochs is there.
    begins = run.intervals["begin"].to_pylist()
    assert [round(begin / 1e9, 1) for begin in begins] == [0, 14]


def test_timestamps_that_contradict_the_durations_are_not_used() -> None:
    stamp = "2026-11-21 10:00:01 INFO "
    text = "".join(
        f"{stamp}Epoch {epoch}/3\n{stamp}78/78 - 10s - loss: 1.9\n" for epoch in (1, 2, 3)
    )
    run = run_of_output(text)
    assert run.fact("clock") == "none: durations one after another"
    assert intervals(run) == [(0, 0, 0, 10), (0, 1, 10, 20), (0, 2, 20, 30)]


def test_logs_with_a_loggers_prefix_around_the_launchers_are_read() -> None:
    """As a notebook printed them whose streams went through logging."""
    printed = (
        (6, "Epoch 1/2"),
        (7, " - 58s - loss: 3.1"),
        (7, "Epoch 2/2"),
        (8, " - 60s - loss: 2.1"),
    )
    lines = "".join(
        f"2019-11-06 00:{minute:02d}:52 - STDOUT - INFO - [1,{rank}]<stdout>:{text}\n"
        for minute, text in printed
        for rank in (0, 1)
    )
    assert recognise("benchmark.log", lines.encode()) is not None
    run = run_of_output(lines)
    assert run.ranks == [0, 1]
    assert seconds(run) == [58, 58, 60, 60]
    assert run.fact("clock").startswith("stamps of the lines")


def test_files_of_ranks_are_one_run(tmp_path: Path) -> None:
    for rank in range(2):
        folder = tmp_path / f"rank.{rank}"
        folder.mkdir()
        (folder / "stdout").write_text(
            f"[{rank}]<stdout>:Epoch 1/1\n[{rank}]<stdout>:9/9 - {rank + 3}s - loss: 1.0\n"
        )
        (folder / "stderr").write_text("")
    (run,) = read(str(tmp_path))
    assert run.ranks == [0, 1]
    assert seconds(run) == [3, 4]
    for rank in range(2):
        (tmp_path / f"out.prterun-host-17@1.{rank}.out").write_text(OLD)
    runs = read(str(tmp_path))
    assert sorted(len(run.ranks) for run in runs) == [2, 2]


def test_jobs_of_the_same_file_name_are_different_runs(tmp_path: Path) -> None:
    for job in ("job-1", "job-2"):
        (tmp_path / job).mkdir()
        (tmp_path / job / "stdout.txt").write_text(OLD)
    runs = read(str(tmp_path))
    assert sorted(run.name for run in runs) == ["job-1/stdout.txt", "job-2/stdout.txt"]
    assert len({run.id for run in runs}) == 2
    alone = read(str(tmp_path / "job-1"))[0]
    assert alone.id in {run.id for run in runs}


@pytest.mark.broad
def test_a_killed_job_is_open_and_has_the_epochs_that_ended(tmp_path: Path) -> None:
    data = (PRINTED / "tf-2.15-verbose-1.txt").read_bytes()
    cut = data[: data.index(b"Epoch 3/3")]
    assert run_of_output(cut).status == "open"
    assert len(seconds(run_of_output(cut))) == 2
    for end in range(len(cut), len(cut) + 1200, 7):
        assert 2 <= len(seconds(run_of_output(data[:end]))) <= 3


def test_step_logs_and_their_records_are_preferred(tmp_path: Path) -> None:
    job = Job(ranks=1, steps=20, epochs=2)
    (path,) = write_job(tmp_path / "logs", job)
    (tmp_path / "logs" / "stdout.txt").write_text(OLD)
    (run,) = read(str(tmp_path / "logs"))
    assert run.steps.num_rows == 20
    assert "stdout.txt: knows how long epochs took; left alone" in str(run.problems[0])
    data = path.read_bytes()
    key, name = key_of(data.split(b"\n", 1)[0]), path.name.removesuffix(".steps.csv")
    lines = "".join(f"INFO {record}\n" for record in records(key, name, 0, data))
    (tmp_path / "stderr").write_text(f"{OLD}{lines}{OLD}")
    (same,) = read(str(tmp_path / "stderr"))
    assert same.steps.equals(run.steps)
    assert same.problems == ()


def test_compressed_and_collected_they_are_the_same(tmp_path: Path) -> None:
    (tmp_path / "stdout.gz").write_bytes(gzip.compress(OLD.encode()))
    (run,) = read(str(tmp_path))
    assert seconds(run) == [17, 16]
    back = load_run(save_run(run, tmp_path / "store"))
    assert back.intervals.equals(run.intervals)
    assert analyse(back).epoch_times == analyse(run).epoch_times
    assert back.logs == run.logs


NO_KERAS = {
    "epochs of another framework": "Epoch 1/10\nloss 0.5\nEpoch 2/10\nloss 0.4\n",
    "tqdm": "Epoch 1/3\n100%|██████████| 78/78 [00:17<00:00, 4.50it/s, loss=1.9]\n",
    "pip": "Downloading\n   ━━━━━━━━━━━━━━━━━━━━ 45.6/45.6 MB 10.1 MB/s eta 0:00:00\n",
    "pytest": "tests/a.py ......... [ 10%]\n===== 78 passed in 17s =====\n",
    "a prediction": f"1/1 [{BAR}] - 0s 45ms/step\n",
    "an epoch that has begun": "Epoch 1/2\n",
    "a timeline": '[\n{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 1, "pid": 1},\n',
    "a table": "kind,step\nstep,1\n",
    "nothing": "",
}


@pytest.mark.parametrize("text", NO_KERAS.values(), ids=NO_KERAS)
def test_other_texts_are_not_recognised(text: str) -> None:
    assert not PARSER.recognises("stdout.txt", text.encode())


@pytest.mark.broad
def test_every_printed_file_is_recognised_also_after_a_long_start() -> None:
    for path in PRINTED.iterdir():
        data = path.read_bytes()
        assert recognise(path.name, data) is not None
        assert isinstance(recognise(path.name, b"x: y\n" * 40_000 + data), KerasOutputParser)


def test_durations_of_centuries_are_damage() -> None:
    line = "Epoch {}/99999999\n9/9 - 999999999s - loss: 1\n"
    with pytest.raises(UnreadableError, match="take a century"):
        run_of_output("".join(line.format(epoch) for epoch in range(1, 11)))


def test_without_an_end_of_an_epoch_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "stdout.txt").write_text(OLD[:90])
    with pytest.raises(UnreadableError, match="what Keras prints, and no epoch has ended"):
        read(str(tmp_path))
    (tmp_path / "stdout.txt").write_text("nothing\n")
    with pytest.raises(NotFoundError, match=r"no logs in 1 file; looked for: step logs"):
        read(str(tmp_path))


_PIECES = [
    b"Epoch 1/2\n",
    b"Epoch 999999999/1\r\n",
    b"Train on 78 samples\n",
    b"\r1/78 [>.............................] - ETA: 2:34 - loss: 2.2900",
    b"\r78/78 [==============================] - 17s 195ms/step - loss: 1.9146\n",
    b"999999999999/999999999999 [=] - 999999999s 999999999s/sample - loss: nan\n",
    "\r\x1b[1m78/78\x1b[0m \x1b[32m━━━━━━━━━━\x1b[0m\x1b[37m\x1b[0m \x1b[1m0s\x1b[0m 5ms/step - loss: 1\n".encode(),  # noqa: E501
    b"0/0 - 0s - 0s/step - loss: 1\n",
    b" - 17s - loss: 1.9\n",
    b"9/9 - 17s - loss: 1.9 - 3us/epoch - 1us/step\n",
    b"[1,0]<stdout>:",
    b"[0]<stderr>:",
    b"2026-11-21 02:39:23 ",
    b"9999-12-31T23:59:59-23:59 ",
]


@given(
    st.lists(st.one_of(st.sampled_from(_PIECES), st.binary(max_size=12)), max_size=20),
    st.sampled_from(["out.txt", "rank.7/stdout", ""]),
)
def test_no_bytes_crash_the_parser(pieces: list[bytes], path: str) -> None:
    data = b"".join(pieces)
    PARSER.recognises(path, data)
    try:
        parsed = PARSER.parse(path, data)
    except StallscopeError:
        return
    logs = as_runs([(f"/logs/{path}", log) for log in (parsed, *parsed.more)])
    (run,) = group("logs", logs, [])
    analysis = analyse(replace(run, source="x"))
    assert analysis.bottleneck.kind == "insufficient_data"
    assert analysis.epochs > 0


@pytest.mark.parametrize(
    ("bar", "last"),
    [
        (
            "{}/90 [=====>....................] - ETA: 3s - loss: 2.28",
            f"90/90 [{BAR}] - 9s 95ms/step",
        ),
        (
            "\x1b[1m{}/90\x1b[0m \x1b[32m━\x1b[0m\x1b[37m━━━━━━━━━━━━━━━━━━━\x1b[0m \x1b[1m3s\x1b[0m "
            "95ms/step - loss: 2.28 ",
            "\x1b[1m90/90\x1b[0m \x1b[32m━━━━━━━━━━━━━━━━━━━━\x1b[0m\x1b[37m\x1b[0m \x1b[1m9s\x1b[0m "
            "95ms/step - loss: 2.2",
        ),
    ],
    ids=["tf-keras", "keras 3"],
)
def test_bars_whose_updates_are_lines_are_left_out_of_long_output(bar: str, last: str) -> None:
    """Without a terminal, every update is a line."""
    updates = [bar.format(step) for step in range(1, 90)]
    texts = [text for n in range(1, 9) for text in (f"Epoch {n}/9", *updates, last)]
    texts += ["Epoch 9/9", *updates[:40]]
    data = "".join(f"[{rank}]<stdout>:{text}\n" for text in texts for rank in range(12))
    assert len(data) > 500_000
    run = run_of_output(data)
    assert [row[:2] for row in intervals(run)] == [(r, e) for r in range(12) for e in range(8)]
    assert {row[3] - row[2] for row in intervals(run)} == {9}
    broken = [str(problem) for problem in run.problems if "broke off" in str(problem)]
    assert len(broken) == 12
    assert all("epoch 9 broke off at step 40 of 90, with 3s to go" in text for text in broken)


def test_an_epoch_is_announced_after_a_bar_that_has_lost_its_end() -> None:
    bar = "\x1b[1m7/9\x1b[0m \x1b[32m━\x1b[0m\x1b[37m━━━━━━━━━━\x1b[0m \x1b[1m3s\x1b[0m 9ms/step "
    end = f"[0]<stdout>:9/9 [{BAR}] - 2s 90ms/step\n"
    bars = f"[0]<stdout>:{bar}\n" * 5000
    again = f"[0]<stdout>:{bar}Epoch 1/1\n"
    assert seconds(run_of_output(f"[0]<stdout>:Epoch 1/1\n{end}{bars}{again}{bars}{end}")) == [2, 2]
