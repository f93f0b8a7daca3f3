"""Printed step times equal the true ones, alone and with the labels of every launcher."""

from __future__ import annotations

import gzip
import re
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.parser_contract import holds
from support.printed_steps import BATCH, LABELS, PROGRAMS, SIZE, Program, Truth, labelled

from stallscope.errors import UnreadableError
from stallscope.parsers import PARSERS, Parsed, read
from stallscope.parsers.formats.printed_steps.rates import printed_settings
from stallscope.parsers.launcher_output import output_by_rank
from stallscope.parsers.lines.timestamps import written_at
from stallscope.parsers.registry import START_BYTES, by_name, recognise

# The last line of an epoch counts twice as many steps as a line in the middle.
_MOST_TIMES_THE_TYPICAL = 3
_NS = 1e-9


def parsed(program: Program, data: bytes, path: str = "run.log") -> list[Parsed]:
    first = by_name(program.parser).parse(path, data)
    return [first, *first.more]


@cache
def unlabelled(name: str, seed: int = 1, rank: int = 0) -> tuple[dict[str, Any], list[int]]:
    """Return the facts of a program's log, and how many steps each window has."""
    program = PROGRAMS[name]
    (log,) = parsed(program, program.text(seed, rank))
    return log.log.facts, [row["steps"] for row in windows(log)]


def windows(log: Parsed) -> list[dict[str, int]]:
    return [row for row in log.intervals.to_pylist() if row["kind"] == "window"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_its_lines_are_recognised(name: str) -> None:
    program = PROGRAMS[name]
    data = program.text()
    assert (
        next(parser for parser in PARSERS if parser.recognises("log", data)).name == program.parser
    )
    assert holds(by_name(program.parser), data)


@pytest.mark.parametrize("name", PROGRAMS)
def test_steps_take_what_they_took(name: str) -> None:
    program = PROGRAMS[name]
    truth = program.truth()
    (log,) = parsed(program, program.text())
    facts = log.log.facts
    step_s, data_s = program.timed(truth)
    half_ms = facts["step_precision_ms"]
    assert facts["step_ms"] == pytest.approx(1e3 * step_s.mean(), abs=half_ms + 1e-6)
    # Rounding is all that is lost.
    assert half_ms < 0.002 * facts["step_ms"]
    assert ("data_ms" in facts) == program.has_data
    if program.has_data:
        share = data_s.sum() / step_s.sum()
        assert facts["data_ms"] / facts["step_ms"] == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize("name", PROGRAMS)
def test_windows_are_those_of_their_steps(name: str) -> None:
    program = PROGRAMS[name]
    truth = program.truth()
    (log,) = parsed(program, program.text())
    half_s = _MOST_TIMES_THE_TYPICAL * log.log.facts["window_precision_ms"] / 1e3
    rows = windows(log)
    assert len(rows) >= 8
    for row in rows:
        index = steps_of(program, truth, row)
        step_s, data_s = truth.step_s[index], truth.data_s[index]
        assert (row["end"] - row["begin"]) * _NS == pytest.approx(
            step_s.sum(), abs=half_s * len(step_s) + 1e-6
        )
        # Waits of the first window may be means over steps that are not timed, too.
        if program.has_data and not (program.untimed and index[1].start == program.untimed):
            assert row["data"] * _NS == pytest.approx(data_s.sum(), abs=half_s * len(step_s) + 1e-6)
    assert sum(row["steps"] for row in rows) <= program.timed(truth)[0].size


@pytest.mark.parametrize("name", PROGRAMS)
def test_how_its_steps_are_counted_is_known_or_not_said(name: str) -> None:
    program = PROGRAMS[name]
    (log,) = parsed(program, program.text())
    known = (program.first or program.every) == 1 or program.parser == "detectron2"
    numbers = f"from {1 + program.number}{'' if program.one_epoch else ' in each epoch'}"
    assert log.log.facts.get("step_numbers") == (numbers if known else None)


def steps_of(program: Program, truth: Truth, row: dict[str, int]) -> tuple[int, slice]:
    """Return which steps a window has, by its number and its count of steps."""
    length, before = truth.step_s.shape[1], 0
    if program.parser == "mxnet-speedometer":
        # It does not say how many steps an epoch has, and leaves the first one out.
        length, before = program.printed_at(truth)[-1] - program.untimed, program.untimed
    epoch, done = divmod(row["step"] - 1, length)
    done += 1 + before
    return epoch, slice(done - row["steps"], done)


def launched() -> list[tuple[str, str]]:
    """Return every program with two launchers, and every launcher with several programs."""
    labels = list(LABELS)
    return [
        (name, labels[(at + offset) % len(labels)])
        for at, name in enumerate(PROGRAMS)
        for offset in (0, len(labels) // 2)
    ]


@pytest.mark.parametrize(("name", "label"), launched())
def test_ranks_are_those_of_the_launcher(name: str, label: str) -> None:
    program = PROGRAMS[name]
    logs = parsed(program, labelled(program, LABELS[label]))
    assert [log.log.rank for log in logs] == list(range(SIZE))
    for log in logs:
        facts, steps = unlabelled(name, 1 + log.log.rank, log.log.rank)
        assert log.log.facts["step_ms"] == pytest.approx(facts["step_ms"], rel=0.02)
        assert log.log.facts.get("data_ms") == facts.get("data_ms")
        assert [row["steps"] for row in windows(log)] == steps


@pytest.mark.parametrize("name", PROGRAMS)
def test_files_of_ranks_are_one_run(name: str, tmp_path: Path) -> None:
    program = PROGRAMS[name]
    for rank in range(SIZE):
        folder = tmp_path / f"rank.{rank}"
        folder.mkdir()
        # Programs that do not know of each other call themselves 0.
        (folder / "stdout").write_bytes(gzip.compress(program.text(1 + rank, rank=0)))
    (run,) = read(str(tmp_path))
    assert sorted(log.rank for log in run.logs) == list(range(SIZE))
    by_rank = {log.rank: log for log in run.logs}
    for rank in range(SIZE):
        step_s, _ = program.timed(program.truth(1 + rank))
        facts = by_rank[rank].facts
        assert facts["step_ms"] == pytest.approx(1e3 * step_s.mean(), rel=0.002)


@pytest.mark.parametrize(
    "text",
    [
        # Validations.
        "Test: [ 10/98]\tTime  0.353 ( 0.623)\tLoss 6.9e+00 (7.0e+00)\tAcc@1   0.10 (  0.11)",
        "0: VALIDATION [0][10/320]\tTime 0.120 (0.153)\tData 1.76e-04 (1.20e-03)\tTok/s 9 (9)",
        "0: TRAIN [0][10/1938]\tBLEU: 21.05",
        "Epoch(val) [1][50/5000]  eta: 0:01:11  time: 0.0532  data_time: 0.0054  memory: 3820",
        "Epoch[0] Validation-accuracy=0.4009",
        "10\t123.4 examples/sec",
        # Other programs.
        "Epoch[0] Rank[1] Batch[20]\taccuracy=0.000906\tlr=0.1",
        "Iter #0: 213.4 img/sec per GPU",
        "total images/sec: 323.20",
        "Epoch: [0][10/5005]\tData Time 0.353 (0.623)\tLoss 6.9 (7.0)",
        "Epoch [1/90], Step [100/600], Loss: 0.2184",
        "iter: 20  loss: 1.7  lr: 0.007173",
        "TimeHistory: 12.34 seconds, 829.82 examples/second between steps 0 and 100",
        "step = 35, loss = 6.9 (0.353 sec)",
        "{'training_steps': 20, 'final_loss': 2.1}",
        "Speed: 1284.10 samples/sec",
        # Numbers that are none.
        "Epoch[0] Batch [20]\tSpeed: inf samples/sec\taccuracy=0.4009",
        "Epoch: [0][1/5]\tTime nan (nan)\tData nan (nan)",
    ],
)
def test_similar_lines_are_not_read(text: str) -> None:
    names = {program.parser for program in PROGRAMS.values()}
    data = f"{text}\n".encode() * 3
    assert not [
        parser.name for parser in PARSERS if parser.name in names and parser.recognises("log", data)
    ]


def test_lines_late_in_a_log_are_found() -> None:
    program = PROGRAMS["GNMT's file"]
    # As on a thousand nodes, whose programs say a lot.
    said = b"rank %d: arguments Namespace(gpu='%d', num_layers=50" + b", x=0.1" * 200
    start = b"".join(said % (n, n) + b")\n" for n in range(1000))
    data = start + program.text().replace(b"\n", b"\nskipping a step\n")
    assert len(start) > START_BYTES
    parser = recognise("log", data)
    assert parser is not None
    assert parser.name == program.parser
    (log,) = parsed(program, data)
    (alone,) = parsed(program, program.text())
    assert windows(log) == windows(alone)


def test_steps_after_mlperfs_first_events_are_found() -> None:
    program = PROGRAMS["maskrcnn-benchmark"]
    event = b':::MLLOG {"time_ms": 1593140782282, "key": "init_start", "value": null}\n'
    # Hundreds of nodes trace their shell scripts.
    data = event + b"+ DATASET_DIR=/data\n" * 20_000 + program.text()
    assert data.index(b"iter: ") > START_BYTES
    parser = recognise("log", data)
    assert parser is not None
    assert parser.name == program.parser
    alone = recognise("log", event + b"+ DATASET_DIR=/data\n" * 20_000)
    assert alone is not None
    assert alone.name == "mlperf"
    late = recognise("log", b"+ DATASET_DIR=/data\n" * 20_000 + event)
    assert late is not None
    assert late.name == "mlperf"


@pytest.mark.parametrize("name", ["speedometer of a node", "speedometer"])
def test_epochs_take_what_the_speedometer_says(name: str) -> None:
    program = PROGRAMS[name]
    truth = program.truth()
    (log,) = parsed(program, program.text())
    epochs = [row for row in log.intervals.to_pylist() if row["kind"] == "epoch"]
    assert [row["epoch"] for row in epochs] == [0, 1]
    for row in epochs:
        took = truth.step_s[row["epoch"]].sum()
        assert (row["end"] - row["begin"]) * _NS == pytest.approx(took, abs=0.0005)


def test_epochs_confirm_the_rates_of_speedometers_on_several_devices() -> None:
    lines = ["Namespace(batch_size=64, log_interval=50, num_gpus=4, num_epochs=3)"]
    for epoch in range(3):
        step_s = 0.2 + 0.01 * epoch
        lines += [
            f"Epoch[{epoch}] Batch [{n}]\tSpeed: {256 / step_s:.6f} samples/sec\taccuracy=0.1{n}"
            for n in range(49, 400, 50)
        ]
        rate, took = 256 / step_s, 400 * step_s
        lines.append(f"[Epoch {epoch}] training: accuracy=0.2{epoch}")
        lines.append(f"[Epoch {epoch}] speed: {rate:.0f} samples/sec\ttime cost: {took:.6f}")
    data = "\n".join(lines).encode()
    parser = recognise("log", data)
    assert parser is not None
    rows = parser.parse("log", data).intervals.to_pylist()
    took = [(row["end"] - row["begin"]) * _NS for row in rows if row["kind"] == "epoch"]
    assert took == pytest.approx([80, 84, 88], abs=0.001)
    of_steps = [(row["end"] - row["begin"]) * _NS / row["steps"] for row in rows if row["steps"]]
    assert of_steps == pytest.approx(np.repeat([0.2, 0.21, 0.22], 8), rel=0.01)


@pytest.mark.parametrize(
    ("name", "samples", "whose"),
    [
        ("speedometer of a node", SIZE * BATCH, "all ranks"),
        ("tf_cnn_benchmarks", BATCH, "one rank"),
    ],
)
def test_it_is_known_whose_rates_are_printed(name: str, samples: int, whose: str) -> None:
    program = PROGRAMS[name]
    (log,) = parsed(program, program.text())
    assert (log.log.facts["rate_samples"], log.log.facts["rate_of"]) == (samples, whose)
    assert log.log.facts["batch_size"] == BATCH


@pytest.mark.parametrize(
    "before",
    [
        "{:%Y-%m-%dT%H:%M:%S.%f}000Z ",
        "{:%Y-%m-%dT%H:%M:%S.%f}000Z stdout F ",
        "{:%Y-%m-%dT%H:%M:%S.%f}000Z stderr F ",
        "\x1b[32m",
        "  \x1b[0m\x1b[1;32m ",
    ],
)
@pytest.mark.parametrize("name", ["tf_cnn_benchmarks", "ImageNet", "speedometer of a node", "GNMT"])
def test_stamps_of_services_and_colours_precede_lines(name: str, before: str) -> None:
    holds_before(name, before)


@pytest.mark.parametrize(
    "before",
    [
        "{:%b %d %H:%M:%S} node-1 train[71]: ",
        "I{:%m%d %H:%M:%S.%f} 47580 train.py:93] ",
        "I{:%Y%m%d %H:%M:%S.%f} 47580 train.py:93] ",
        "INFO|{:%Y-%m-%dT%H:%M:%S}|/opt/launcher.py|27| ",
        "{:%s.%f} ",
    ],
    ids=["syslog", "glog", "newer glog", "Kubeflow", "ts %.s"],
)
@pytest.mark.parametrize("name", PROGRAMS)
def test_stamps_of_loggers_before_lines_are_those_of_all_programs(name: str, before: str) -> None:
    holds_before(name, before)


def holds_before(name: str, before: str) -> None:
    """Check that a text before each line about steps changes nothing but the clock."""
    program = PROGRAMS[name]
    lines = program.lines(program.truth())
    settings = len(program.header.splitlines())
    text = "".join(line.text + "\n" for line in lines[:settings])
    text += "".join(before.format(line.at) + line.text + "\n" for line in lines[settings:])
    parser = recognise("log", text.encode())
    assert parser is not None
    assert parser.name == program.parser
    (log,) = parsed(program, text.encode())
    facts, steps = unlabelled(name)
    assert [row["steps"] for row in windows(log)] == steps
    assert log.log.facts["step_ms"] == pytest.approx(facts["step_ms"], rel=0.001)
    assert log.log.facts.get("data_ms") == facts.get("data_ms")
    if "{" in before:
        assert log.log.facts["clock"].startswith("stamps of the lines")


def test_a_line_that_two_loggers_print_counts_once_with_its_time() -> None:
    program = PROGRAMS["maskrcnn-benchmark"]
    twice = re.sub(
        rb"(?m)^(.{23} )maskrcnn_benchmark.trainer INFO: (.*)$",
        rb"INFO:maskrcnn_benchmark.trainer:\2\n\g<0>",
        program.text(),
    )
    (log,) = parsed(program, twice)
    (alone,) = parsed(program, program.text())
    assert windows(log) == windows(alone)
    assert log.log.facts["clock"] == alone.log.facts["clock"]
    assert not [problem for problem in log.problems if "several ranks" in problem.what]


@pytest.mark.parametrize(("batch", "whose"), [(BATCH, "one rank"), (BATCH // SIZE, "all ranks")])
def test_times_of_epochs_tell_whose_rates_they_are(batch: int, whose: str) -> None:
    program = PROGRAMS["speedometer"]
    said = f"I am rank 0 of {SIZE}\n+ python train.py --batch-size {batch} --eval-batch-size 7\n"
    lines = program.text().partition(b"\n")[2]
    (log,) = parsed(program, said.encode() + lines)
    assert (log.log.facts["rate_samples"], log.log.facts["rate_of"]) == (BATCH, whose)
    assert log.log.facts["rate_why"].startswith("rates and times of epochs agree on")
    step_s, _ = program.timed(program.truth())
    assert log.log.facts["step_ms"] == pytest.approx(1e3 * step_s.mean(), rel=0.002)


@pytest.mark.parametrize("cut", [0, 7, 17])
def test_a_line_whose_timestamp_is_cut_off_is_placed_between_others(cut: int) -> None:
    program = PROGRAMS["speedometer of a node"]
    lines = program.text().splitlines(keepends=True)
    at = [at for at, line in enumerate(lines) if b"Speed" in line][cut]
    lines[at] = b"loading " + lines[at][24:]
    (log,) = parsed(program, b"".join(lines))
    (alone,) = parsed(program, program.text())
    assert log.log.facts["rate_of"] == "all ranks"
    for row, whole in zip(windows(log), windows(alone), strict=True):
        assert row["end"] - row["begin"] == whole["end"] - whole["begin"]
    assert "began_local" in log.log.facts


def test_a_process_with_several_devices_has_the_batches_of_all_of_them() -> None:
    program = PROGRAMS["tf_cnn_benchmarks"]
    text = program.text().replace(b"horovod/gpu", b"/gpu").replace(b"64 per", b"32 per")
    (log,) = parsed(program, text)
    assert log.log.facts["batch_size"] == BATCH
    assert log.log.facts["step_ms"] == pytest.approx(1e3 * program.truth().step_s.mean(), rel=0.002)


def test_rates_without_a_batch_size_and_timestamps_are_no_times() -> None:
    program = PROGRAMS["tf_cnn_benchmarks"]
    text = program.text().replace(b"per device", b"")
    with pytest.raises(UnreadableError, match="no two of its lines tell how long steps took"):
        parsed(program, text)


def test_ranks_that_call_themselves_0_are_those_of_the_launcher() -> None:
    program = PROGRAMS["GNMT"]
    logs = parsed(program, labelled(program, LABELS["openmpi4"], rank_zero=True))
    assert [log.log.rank for log in logs] == list(range(SIZE))


def test_nodes_are_ranks_where_no_launcher_says_more() -> None:
    program = PROGRAMS["speedometer of a node"]
    logs = parsed(program, labelled(program, lambda *_: ""))
    assert [log.log.rank for log in logs] == list(range(SIZE))
    # Numbers within a host say less.
    local = labelled(program, lambda *_: "[default0]:")
    assert [log.log.rank for log in parsed(program, local)] == list(range(SIZE))


def test_a_number_after_a_word_is_no_label_of_mpich() -> None:
    line = b"Node[1] Epoch[0] Batch [20]\tSpeed\n"
    text = b"".join(b"[%d] " % rank + line for rank in (0, 1, 0, 1))
    assert output_by_rank(text) == {(0, ""): line * 2, (1, ""): line * 2}


@pytest.mark.parametrize("start", ["", "\x1b[32m"])
@pytest.mark.parametrize(
    ("name", "unit_ms"),
    [
        ("steps of TensorFlow", 0.001),
        ("detectron2", 1000),
        ("detectron2 in newer versions", 1000),
        ("mmengine", 1000),
        ("mmengine by iterations", 1000),
    ],
)
def test_timestamps_without_a_year_have_the_latest_one(
    name: str, unit_ms: float, start: str
) -> None:
    program = PROGRAMS[name]
    truth = program.truth()
    if program.parser == "detectron2":
        program = replace(program, line=start + program.line)
    text = "".join(line.text + "\n" for line in program.lines(truth)).encode()
    with written_at(int(truth.ended(0, 0).timestamp() * 1e9) + 7 * 86_400 * 10**9):
        (log,) = parsed(program, text)
    facts = log.log.facts
    assert (facts["year_assumed"], facts["stamp_precision_ms"]) == (True, unit_ms)
    assert facts["began_local"].startswith("2026-11-21 02:28:")
    assert "assumed to be of 2026" in "".join(problem.what for problem in log.problems)
    # Windows end when their lines were printed.
    first, last = windows(log)[0], windows(log)[-1]
    took = sum(truth.step_s.flat[first["step"] : last["step"]]) + 7.5 * (len(truth.step_s) - 1)
    assert (last["end"] - first["end"]) * _NS == pytest.approx(took, abs=1.01)


def test_timestamps_without_their_last_zeros_do_not_make_others_coarse() -> None:
    program = PROGRAMS["BERT"]
    lines = program.text().splitlines()
    lines[7] = lines[7].partition(b"'timestamp': ")[0] + b"'timestamp': 1795228133.0}"
    (log,) = parsed(program, b"\n".join(lines))
    assert log.log.facts["stamp_precision_ms"] <= 0.001


def test_a_job_that_goes_on_from_a_checkpoint_has_the_steps_that_it_made() -> None:
    program = PROGRAMS["detectron2"]
    truth = program.truth()
    text = re.sub(
        rb"iter: (\d+)", lambda match: b"iter: %d" % (5000 + int(match[1])), program.text()
    )
    (log,) = parsed(program, text)
    assert sum(row["steps"] for row in windows(log)) == program.timed(truth)[0].size
    assert log.log.facts["step_ms"] == pytest.approx(
        1e3 * program.timed(truth)[0].mean(), abs=log.log.facts["step_precision_ms"]
    )


def test_times_that_no_step_takes_are_an_error_in_words() -> None:
    text = PROGRAMS["mmcv"].text().replace(b"time: 0.", b"time: 99999999.")
    with pytest.raises(UnreadableError, match="its steps take a century"):
        parsed(PROGRAMS["mmcv"], text * 9)


def test_steps_beyond_all_counting_are_an_error_in_words() -> None:
    text = re.sub(rb"\]\[ *(\d+)/", rb"][9999999999999\1/", PROGRAMS["ImageNet"].text())
    with pytest.raises(UnreadableError, match="no two of its lines tell how long steps took"):
        parsed(PROGRAMS["ImageNet"], text)


def test_nodes_that_log_their_settings_tell_the_number_of_ranks() -> None:
    program = PROGRAMS["speedometer of a node"]
    nodes = b"".join(b"Node[%d] start with batch_size=%d\n" % (n, BATCH) for n in range(SIZE))
    (log,) = parsed(program, nodes + program.text().replace(b"I am rank 0 of 2", b""))
    assert log.log.facts["size"] == SIZE
    assert log.log.facts["rate_of"] == "all ranks"


def test_rates_of_many_batches_are_those_of_all_ranks() -> None:
    program = PROGRAMS["speedometer of a node"]
    text = program.text().replace(b"I am rank 0 of 2", b"")
    (log,) = parsed(program, text)
    assert "size" not in log.log.facts
    assert (log.log.facts["rate_samples"], log.log.facts["rate_of"]) == (SIZE * BATCH, "all ranks")
    # Not of a number of ranks.
    (uneven_log,) = parsed(program, text.replace(b"batch_size=64", b"batch_size=50"))
    assert "rate_of" not in uneven_log.log.facts


def test_timestamps_count_where_batches_vary() -> None:
    """A batch has a number of words, and the rate counts sentences."""
    drawn = [(step, 40 + 7 * (step // 50 % 5)) for step in range(50, 1050, 50)]
    lines = [
        f"[2026-11-21:02:{step // 60:02}:{step % 60:02}:INFO:training] Epoch[0] Batch [{step}]\t"
        f"Speed: {sentences:.2f} samples/sec {1956 + sentences:.2f} tokens/sec\tperplexity=4.{step}\n"
        for step, sentences in drawn
    ]
    (log,) = parsed(PROGRAMS["speedometer of a node"], "".join(lines).encode())
    assert {row["end"] - row["begin"] for row in windows(log)} == {50_000_000_000}
    assert "rate_samples" not in log.log.facts


def test_the_batch_of_a_step_is_the_micro_batch() -> None:
    program = PROGRAMS["BERT"]
    said = (
        b"0: Namespace(gradient_accumulation_steps=6, train_batch_size=6)\nglobal_batch_size: 288\n"
    )
    (log,) = parsed(program, said + program.text())
    assert log.log.facts["batch_size"] == 6


@pytest.mark.parametrize(
    ("said", "batch"),
    [
        (
            b'  elasticity_config ............ {\n    "min_train_micro_batch_size_per_gpu": 1,\n}\n'
            b"  train_batch_size ............. 48\n  train_micro_batch_size_per_gpu  6\n",
            6,
        ),
        (b"use it like this:\n    loader = Loader(data, batch_size=1)\n", None),
        (b"args = Namespace(data='x', batch_size=6)\n", 6),
        # A step has several micro-batches.
        (b"Config(global_batch_size=96, device_batch_size=24, micro_batch_size=6)\n", 24),
        (b"micro-batch-size: 6\n", 6),
    ],
)
def test_a_batch_size_is_one_that_training_has(said: bytes, batch: int | None) -> None:
    assert printed_settings(said, ranks=None).rank_batch == batch


def test_the_batch_beside_that_of_micro_batches_is_that_of_all_ranks() -> None:
    said = b"train_batch_size ............. 48\ntrain_micro_batch_size_per_gpu ... 3\n"
    settings = printed_settings(said, ranks=8)
    # Each step has two micro-batches.
    assert (settings.rank_batch, settings.whole_batch) == (6, 48)


def test_means_of_long_jobs_are_joined_until_they_are_precise() -> None:
    program = replace(PROGRAMS["maskrcnn-benchmark"], header="")
    drawn = Truth.drawn(epochs=1, steps=20_000)
    text = "".join(line.text + "\n" for line in program.lines(drawn)).encode()
    (log,) = parsed(program, text)
    assert log.log.facts["windows"] == "differences"
    rows = windows(log)
    assert sum(row["steps"] for row in rows) > 19_000
    took = sum(row["end"] - row["begin"] for row in rows) * _NS
    last = rows[-1]["step"]
    # The last mean so far times its steps is what the windows sum to.
    assert took == pytest.approx(drawn.step_s[0, :last].sum(), abs=5e-5 * last)


def test_epochs_of_one_line_tell_whose_rates_they_are() -> None:
    program = PROGRAMS["speedometer of a node"]
    # Their batches are far apart where ranks are many.
    program = replace(program, header="batch_size={batch}\nI am rank {rank} of 2")
    drawn = Truth.drawn(epochs=12, steps=24)
    text = "".join(line.text + "\n" for line in program.lines(drawn)).encode()
    (log,) = parsed(
        program, text.replace(b"batch_size=64", b"batch_size=4").replace(b"of 2", b"of 32")
    )
    assert (log.log.facts["rate_samples"], log.log.facts["rate_of"]) == (SIZE * BATCH, "all ranks")
    step_s, _ = program.timed(drawn)
    assert log.log.facts["step_ms"] == pytest.approx(1e3 * step_s.mean(), rel=0.001)


def test_a_mean_over_the_whole_job_is_no_mean_of_the_epoch() -> None:
    lines = [
        f"Epoch: [11][{step}/48]\tTime {0.66 + step % 5 / 100:.3f} ({1.309 - step / 1000:.3f})\t"
        f"Data 0.007 (0.009)\tLoss 1.0 (2.0)"
        for step in range(1, 49)
    ]
    log = by_name("pytorch-meters").parse("run.log", "\n".join(lines).encode())
    facts = log.log.facts
    assert facts["step_ms"] == pytest.approx(680, abs=1)
    assert facts["data_ms"] == pytest.approx(7)
    assert facts["precision"].startswith("times of single steps, ")
    assert "means_of_all_steps" not in facts


def test_times_of_every_step_are_read_as_printed_and_not_from_rounded_means() -> None:
    lines, took, waited = [], [], []
    for epoch in range(2):
        times = [0.5 + step * 7 % 20 / 1000 + 5 * (step == 0) for step in range(200)]
        waits = [step_s - 0.2 for step_s in times]
        took, waited = took + times, waited + waits
        lines += [
            f"Epoch: [{epoch}][{step}/200]\tTime {times[step]:.3f} ({np.mean(times[: step + 1]):.3f})\t"
            f"Data {waits[step]:.3f} ({np.mean(waits[: step + 1]):.3f})\tLoss 1.0 (1.0)"
            for step in range(200)
        ]
    log = by_name("pytorch-meters").parse("run.log", "\n".join(lines).encode())
    steps = windows(log)
    assert [row["steps"] for row in steps] == [1] * 400
    assert [row["end"] - row["begin"] for row in steps] == pytest.approx(np.array(took) / _NS)
    assert [row["data"] for row in steps] == pytest.approx(np.array(waited) / _NS)
    assert log.log.facts["precision"] == "times of single steps, to the millisecond"


@pytest.mark.parametrize("window", [7, 1000])
def test_running_means_are_undone_where_the_clock_agrees(window: int) -> None:
    waits = [4.1 if step % 8 == 0 else 0.01 for step in range(60)]
    took = [0.6 + wait for wait in waits]
    lines, at = [], datetime(2026, 3, 9, 7, 41, 4)
    for step in range(60):
        at += timedelta(seconds=took[step])
        over = slice(max(step + 1 - window, 0), step + 1)
        lines.append(
            f"{at:%Y/%m/%d %H:%M:%S} - mmengine - INFO - Epoch(train)  [1][{step + 1:4}/1051]  "
            f"lr: 6.1e-06  time: {np.mean(took[over]):.4f}  data_time: {np.mean(waits[over]):.4f}  "
            "loss: 8.0"
        )
    log = by_name("openmmlab").parse("run.log", "\n".join(lines).encode())
    steps = windows(log)
    assert log.log.facts["windows"] == "running"
    # Rounding to a ten-thousandth of a second grows with the number of steps in a mean.
    rounded_ns = 60 * 1e-4 / _NS
    for row, step_s, wait_s in zip(steps, took, waits, strict=True):
        assert row["end"] - row["begin"] == pytest.approx(step_s / _NS, abs=rounded_ns)
        assert row["data"] == pytest.approx(wait_s / _NS, abs=rounded_ns)


def logged_every(steps: int, epochs: int = 3) -> tuple[Truth, bytes]:
    """Return the lines of torchvision's logger about every so many steps, and the true times."""
    truth = Truth.drawn(epochs=epochs, steps=403)
    truth.step_s[:, 0] += 6
    lines = []
    for epoch, (took, waited) in enumerate(zip(truth.step_s, truth.data_s, strict=True)):
        for step in range(403):
            if step % steps and step < 402:
                continue
            over = slice(max(step - 19, 0), step + 1)
            lines.append(
                f"Epoch: [{epoch}]  [{step:3}/403]  eta: 0:02:03  lr: 0.02  loss: 1.7 (1.9)  "
                f"time: {took[over].mean():.4f}  data: {waited[over].mean():.4f}  max mem: 40771"
            )
    return truth, "\n".join(lines).encode()


@pytest.mark.parametrize("every", [1, 2, 4, 5, 10])
def test_times_between_lines_are_found_behind_means_over_the_last_20_steps(every: int) -> None:
    truth, text = logged_every(every)
    log = by_name("torchvision").parse("run.log", text)
    facts, took, waited = log.log.facts, truth.step_s.ravel(), truth.data_s.ravel()
    assert facts["step_ms"] == pytest.approx(1e3 * took.mean(), rel=0.005)
    assert facts["data_ms"] == pytest.approx(1e3 * waited.mean(), rel=0.02)
    assert facts["precision"].startswith(
        f"{'times of single' if every == 1 else f'means of {every}'} steps, from running means, to "
    )
    rows = windows(log)
    assert sum(row["steps"] for row in rows) == took.size
    # Rounding to a ten-thousandth of a second adds up over an epoch's 20 means that share no steps.
    rounded_s = 5 * np.sqrt(2 * 20) * 20 * 1e-4 / np.sqrt(12)
    for row in rows:
        if row["steps"] == every:
            steps = slice(row["step"] - every, row["step"])
            assert (row["end"] - row["begin"]) * _NS == pytest.approx(
                took[steps].sum(), abs=rounded_s
            )
            assert row["data"] * _NS == pytest.approx(waited[steps].sum(), abs=rounded_s)


@pytest.mark.parametrize("every", [3, 7, 15])
def test_lines_are_joined_where_their_means_share_steps(every: int) -> None:
    truth, text = logged_every(every)
    log = by_name("torchvision").parse("run.log", text)
    assert log.log.facts["step_ms"] == pytest.approx(1e3 * truth.step_s.mean(), rel=0.03)
    rows = windows(log)
    # The first line of an epoch is about its first step alone.
    assert min(row["steps"] for row in rows) >= -(-20 // every) * every - every + 1
    means = [(row["end"] - row["begin"]) * _NS / row["steps"] for row in rows]
    ends = [row["step"] for row in rows]
    expected = [
        truth.step_s.ravel()[max(end - 20, (end - 1) // 403 * 403) : end].mean() for end in ends
    ]
    assert means == pytest.approx(expected, abs=1e-4)


def test_means_over_the_last_20_steps_are_called_so_where_lines_are_further_apart() -> None:
    _, text = logged_every(100)
    log = by_name("torchvision").parse("run.log", text)
    assert log.log.facts["precision"].startswith("means of the last 20 of 1 to 100 steps, to ")


@pytest.mark.parametrize(("by_clock_s", "said"), [(0.048, "6.7% longer"), (0.0455, "")])
def test_a_clock_that_contradicts_known_lines_a_little_is_told(
    by_clock_s: float, said: str
) -> None:
    began, lines = datetime(2026, 11, 21, 2, 28), []
    for step in range(50, 3001, 50):
        at = began + timedelta(seconds=by_clock_s * step)
        lines.append(
            f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03} - mmdet - INFO - "
            f"Epoch [1][{step}/3000]\t"
            "lr: 1.000e-03, eta: 1:00:00, time: 0.045, data_time: 0.001, memory: 2100, loss: 0.61"
        )
    log = by_name("openmmlab").parse("run.log", "\n".join(lines).encode())
    assert log.log.facts["step_ms"] == pytest.approx(45)
    notes = [problem.what for problem in log.problems if "printed times say" in problem.what]
    assert len(notes) == bool(said)
    assert all(said in note for note in notes)


def test_the_clock_decides_about_means_over_the_last_steps() -> None:
    truth, text = logged_every(10, epochs=1)
    stamped = []
    for line in text.decode().splitlines():
        done = int(re.findall(r"\[ *(\d+)/403\]", line)[0]) + 1
        mean = truth.step_s[0, max(done - 10, 0) : done].mean()
        at = truth.ended(0, done)
        stamp = f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03} "
        stamped.append(stamp + re.sub(r"time: [\d.]+", f"time: {mean:.4f}", line))
    log = by_name("torchvision").parse("run.log", "\n".join(stamped).encode())
    # This version prints means over the steps since the line before.
    assert log.log.facts["windows"] == "mean"
    assert log.log.facts["step_ms"] == pytest.approx(1e3 * truth.step_s.mean(), rel=0.005)


def test_a_line_that_is_cut_off_within_its_last_number_is_left_out() -> None:
    program = PROGRAMS["ImageNet"]
    whole = program.text().partition(b"\tLoss")[0]
    lines = [line.partition(b"\tLoss")[0] for line in program.text().splitlines()]
    assert whole.endswith(b")")
    (log,) = parsed(program, b"\n".join(lines)[:-3])
    (alone,) = parsed(program, b"\n".join(lines[:-1]))
    assert windows(log) == windows(alone)


def test_times_that_agree_with_the_clock_stay_as_they_are_printed() -> None:
    lines, at = [], datetime(2026, 3, 9, 7, 41, 4)
    for step in range(60):
        took = 0.6 + step % 7 / 10
        at += timedelta(seconds=took)
        lines.append(
            f"{at:%Y/%m/%d %H:%M:%S} - mmengine - INFO - Epoch(train)  [1][{step + 1:4}/1051]  "
            f"lr: 6.1e-06  time: {took:.4f}  data_time: 0.0100  loss: 8.0"
        )
    log = by_name("openmmlab").parse("run.log", "\n".join(lines).encode())
    assert log.log.facts["windows"] == "mean"
    assert [row["end"] - row["begin"] for row in windows(log)][:3] == [600e6, 700e6, 800e6]


@pytest.mark.parametrize("name", ["pytorch-meters", "line pattern"])
def test_a_time_that_never_changes_is_as_precise_as_its_text(name: str) -> None:
    pattern = "pattern:Epoch: [{epoch}][{step}/500] Time {seconds}"
    parser = by_name(name if name == "pytorch-meters" else pattern)
    lines = [
        f"Epoch: [0][{step}/500]\tTime  0.500 ( 0.500)\tData  0.100 ( 0.100)\tLoss 1.0 (1.0)"
        for step in range(500)
    ]
    log = parser.parse("run.log", "\n".join(lines).encode())
    assert log.log.facts["precision"] == "times of single steps, to the millisecond"
    assert log.log.facts["step_precision_ms"] == 0.5


# Step times change in the middle of each epoch, and validations are between epochs.
_EPOCHS, _STEPS, _EVERY = 3, 200, 10


def printed_by_a_version(meaning: str, stamps: str = "") -> tuple[list[float], bytes]:
    """Return the times of steps, and lines about every tenth whose time has a meaning.

    Args:
        meaning: what their times are.
        stamps: how lines' timestamps are disturbed.
    """
    took = [0.2 + 0.3 * (step >= 120) + step % 7 / 50 for step in range(_STEPS)] * _EPOCHS
    lines, at = [], datetime(2026, 3, 9, 7, 41, 4)
    for step in range(_EPOCHS * _STEPS):
        pause_s = 30 if stamps == "pauses" and step % 50 == 5 else 7.5 * (step % _STEPS == 0)
        at += timedelta(seconds=took[step] + pause_s)
        epoch, done = divmod(step, _STEPS)
        if (done + 1) % _EVERY:
            continue
        so_far = {
            "mean": took[step + 1 - _EVERY : step + 1],
            "running": took[max(step + 1 - 50, 0) : step + 1],
            "of the epoch": took[epoch * _STEPS : step + 1],
            "of the job": took[: step + 1],
        }
        printed = {
            "total": sum(so_far["mean"]),
            "without waits": 0.6 * sum(so_far["mean"]) / _EVERY,
            "asynchronous": 0.002,
            **{name: float(np.mean(values)) for name, values in so_far.items()},
        }[meaning]
        wait = printed / 1.5 if meaning == "without waits" else 0.4 * printed
        lines.append(
            (
                at,
                f"Epoch [{epoch + 1}][{done + 1}/{_STEPS}]\tlr: 1.9e-03, eta: 1:12:38, "
                f"time: {printed:.5f}, data_time: {wait:.5f}, memory: 3820, loss: 1.7",
            )
        )
    # Lines in a buffer get the time at which it is full.
    together = 6 if stamps == "bursts" else 1
    written = [
        lines[number // together * together + together - 1][0] for number in range(len(lines))
    ]
    return took, "\n".join(
        f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03} - mmdet - INFO - {text}"
        for at, (_, text) in zip(written, lines, strict=True)
    ).encode()


@pytest.mark.parametrize("stamps", ["bursts", "pauses"])
def test_disturbed_timestamps_do_not_refute_printed_times(stamps: str) -> None:
    took, text = printed_by_a_version("mean", stamps)
    log = by_name("openmmlab").parse("run.log", text)
    assert log.log.facts["windows"] == "mean"
    assert log.log.facts["step_ms"] == pytest.approx(1e3 * np.mean(took), rel=0.001)
    assert log.problems == ()


@pytest.mark.parametrize(
    "meaning",
    ["mean", "running", "of the epoch", "of the job", "total", "without waits", "asynchronous"],
)
def test_the_clock_decides_what_a_version_of_a_trainer_prints(meaning: str) -> None:
    took, text = printed_by_a_version(meaning)
    log = by_name("openmmlab").parse("run.log", text)
    rows = windows(log)
    assert log.log.facts["step_ms"] == pytest.approx(1e3 * np.mean(took), rel=0.03)
    assert len(rows) >= 54
    if meaning in ("mean", "running", "without waits"):
        assert log.log.facts["data_ms"] == pytest.approx(0.4 * log.log.facts["step_ms"], rel=0.03)
    for row in rows:
        steps = took[row["step"] - row["steps"] : row["step"]]
        assert (row["end"] - row["begin"]) * _NS == pytest.approx(sum(steps), rel=0.03)
    notes = [problem.what for problem in log.problems if "the clock counts" in problem.what]
    assert len(notes) == (meaning == "asynchronous")
