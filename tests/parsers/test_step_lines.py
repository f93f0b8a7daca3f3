"""Lines about steps: what their words and numbers mean, what confirms them, and other text."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.work import calls_of

from stallscope.analysis import analyse
from stallscope.arrays import arrow
from stallscope.errors import NotFoundError, UnreadableError
from stallscope.parsers import read as read_place
from stallscope.parsers.base import Parsed
from stallscope.parsers.formats.printed_steps.bar_evaluations import without_evaluations
from stallscope.parsers.formats.printed_steps.bar_states import bar_states
from stallscope.parsers.formats.printed_steps.figures import SAMPLE_BYTES
from stallscope.parsers.formats.printed_steps.step_lines_parser import (
    UNCONFIRMED,
    StepLinesParser,
    best_evidence,
    lacking,
)
from stallscope.parsers.inspection.inspected import Proposal, proposal_for
from stallscope.parsers.registry import START_BYTES, recognise
from stallscope.reports.run.run_tables import epochs_table
from stallscope.text.figure_words import printed_figures
from stallscope.text.job_words import job_total

PARSER = StepLinesParser(is_named=True)

BEGAN = datetime(2026, 11, 21, 2, 28, 1, 250_000)
STEP_S = 0.5


@dataclass(frozen=True)
class At:
    """Where a trainer is when it prints a line."""

    step: int
    epoch: int
    #: The step within its epoch.
    batch: int
    rank: int
    when: datetime
    #: Seconds of the step, loss and other figures.
    took: float
    loss: float

    @property
    def ms(self) -> float:
        return 1000 * self.took


@dataclass(frozen=True)
class Sample:
    """A trainer's way of printing, and what confirms its times."""

    line: Callable[[At], str]
    #: Part of what confirms them; empty if nothing does.
    check: str
    epochs: tuple[int, int] | None = None
    steps: tuple[int, int] | None = (0, 790)
    ranks: int = 1
    every: int = 10
    #: Other lines among them.
    others: Sequence[str] = ()
    note: str = ""


def printed(sample: Sample) -> bytes:
    """Print 800 steps in epochs of 400."""
    chance = random.Random(7)
    lines = ["world size 8, 123.6M parameters"]
    for step in range(0, 800, sample.every):
        for rank in range(sample.ranks):
            when = BEGAN + timedelta(seconds=step * STEP_S + rank / 1000)
            took = round(STEP_S + chance.uniform(-0.01, 0.01), 4)
            at = At(step, step // 400, step % 400, rank, when, took, chance.uniform(1, 9))
            lines.append(sample.line(at))
        if sample.others and step % 100 == 90:
            lines += sample.others
    return "\n".join(lines).encode() + b"\n"


def windows_of(log: Parsed) -> tuple[np.ndarray, np.ndarray]:
    """Return the steps of a log's windows, and the milliseconds of a step in each."""
    windows = log.intervals.filter(arrow.equal(log.intervals["kind"], "window"))
    begin, end, steps = (arrow.numbers(windows[name]) for name in ("begin", "end", "steps"))
    return steps, (end - begin) / steps / 1e6


def read(data: bytes) -> Parsed:
    """Read a log that is recognised: something confirms it."""
    assert PARSER.recognises("run.log", data)
    return PARSER.parse("run.log", data)


def with_ms(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M:%S},{when.microsecond // 1000:03}"


SAMPLES = {
    "nanoGPT": Sample(
        lambda at: f"iter {at.step}: loss {at.loss:.4f}, time {at.ms:.2f}ms, mfu {at.loss:.2f}%",
        "as nanoGPT",
        others=("step 100: train loss 2.3, val loss 2.4", "saving checkpoint to out"),
    ),
    "nanoGPT in its first versions": Sample(
        lambda at: f"iter {at.step}: loss {at.loss:.4f}, time {at.ms:.2f}ms",
        "as nanoGPT",
    ),
    "llama2.c": Sample(
        lambda at: (
            f"{at.step} | loss {at.loss:.4f} | lr 4.9e-05 | {at.ms:.2f}ms | mfu {at.loss:.2f}%"
        ),
        "as llama2.c",
        others=("step 100: train loss 2.3, val loss 2.4", "saving checkpoint to out"),
    ),
    "a counter without a name": Sample(
        lambda at: f"[{with_ms(at.when)}] {at.step} | loss {at.loss:.4f} | time {at.took:.4f} s",
        "within",
    ),
    "NeMo": Sample(
        lambda at: (
            f"Training epoch 0, iteration {at.step}/799 | lr: 3e-05 | consumed_samples: {at.step + 1} | "
            f"global_batch_size: 1 | global_step: {at.step} | reduced_train_loss: {at.loss:.3f} | "
            f"train_step_timing in s: {at.took:.4f} | val_loss: 4.106"
        ),
        "as NeMo",
        epochs=(0, 0),
        every=1,
        steps=(0, 799),
    ),
    "an estimator of TensorFlow": Sample(
        lambda at: (
            f"INFO:tensorflow:loss = {at.loss:.7f}, step = {at.step} ({10 * at.took:.3f} sec)\n"
            "INFO:tensorflow:global_step/sec: 2.0131"
        ),
        "as TensorFlow",
        others=("INFO:tensorflow:Saving checkpoints for 90 into /tmp/model.ckpt.",),
    ),
    "Megatron": Sample(
        lambda at: (
            f" iteration {at.step:8d}/     800 | consumed samples: {at.step * 512:12d} | elapsed time "
            f"per iteration (ms): {at.ms:.1f} | learning rate: {at.loss / 1e5:.3E} | lm loss: "
            f"{at.loss:.6E} | number of nan iterations:   0 |"
        ),
        "as Megatron",
        others=("-" * 60, " validation loss at iteration 100 | lm loss value: 2.2E+00 |", "-" * 60),
    ),
    "fairseq": Sample(
        lambda at: (
            f"{at.when:%Y-%m-%d %H:%M:%S} | INFO | train_inner | epoch {at.epoch + 1:03d}:  "
            f"{at.batch:4d} / 400 loss={at.loss:.3f}, wps={9e4 + at.loss:.1f}, num_updates={at.step}, "
            f"lr=1.2e-05, train_wall=5, wall={at.step // 2}"
        ),
        "timestamps and the lines' running time agree",
        epochs=(1, 2),
        others=(
            "2026-11-21 02:30:00 | INFO | valid | valid on 'valid' subset | loss 5.1 | ppl 15",
        ),
    ),
    "mmcv": Sample(
        lambda at: (
            f"{with_ms(at.when)} - mmdet - INFO - Epoch [{at.epoch + 1}][{at.batch}/400]\tlr: 1.9e-03, "
            f"eta: 0:03:13, time: {at.took:.3f}, data_time: 0.010, memory: 3900, loss: {at.loss:.4f}"
        ),
        "within",
        epochs=(1, 2),
        steps=(0, 390),
    ),
    "mmengine": Sample(
        lambda at: (
            f"{at.when:%Y/%m/%d %H:%M:%S} - mmengine - INFO - Epoch(train)  [{at.epoch}]"
            f"[{at.batch:3d}/400]  lr: 1.9e-03  eta: 1:02:13  time: {at.took:.4f}  loss: {at.loss:.4f}"
        ),
        "within",
        epochs=(0, 1),
        steps=(0, 390),
    ),
    "Caffe": Sample(
        lambda at: (
            f"I{at.when:%m%d %H:%M:%S.%f} 12345 solver.cpp:218] Iteration {at.step} "
            f"({at.loss:.5f} iter/s, {10 * at.took:.3f}s/10 iters), loss = {at.loss:.6f}"
        ),
        "timestamps",
        others=("I1121 02:28:01.250000 12345 sgd_solver.cpp:105] Iteration 90, lr = 0.01",),
        note="the timestamps have no year",
    ),
    "absl": Sample(
        lambda at: (
            f"I{at.when:%m%d %H:%M:%S.%f} 47580729335424 keras_utils.py:93] step = {at.step}, "
            f"time_taken = {at.took:.6f}, examples_per_second = {32 / at.took:.2f}"
        ),
        "",
        every=1,
        steps=(0, 799),
    ),
    "JSON": Sample(
        lambda at: json.dumps(
            {"epoch": at.epoch, "step": at.step, "loss": at.loss, "time": at.when.timestamp()}
        ),
        "are measured by the lines' timestamps",
        epochs=(0, 1),
    ),
    "JSON without timestamps": Sample(
        lambda at: json.dumps({"loss": at.loss, "step": at.step, "step_time": at.took}),
        "",
    ),
    "MLPerf": Sample(
        lambda at: (
            f":::MLLOG {{'time_ms': {round(at.when.timestamp() * 1000)}, 'key': 'epoch_start', "
            f"'metadata': {{'epoch_num': {at.epoch}, 'step_num': {at.step}}}}}"
        ),
        "",
        epochs=(0, 1),
    ),
    "ImageNet": Sample(
        lambda at: (
            f"Epoch: [{at.epoch}][{at.batch:3d}/400]\tTime {at.took:6.3f} ( 0.498)\tData  0.010 ( 0.020)"
            f"\tLoss {at.loss:.4e} (6.9e+00)"
        ),
        "",
        epochs=(0, 1),
        steps=(0, 390),
    ),
    "srun": Sample(
        lambda at: f"{at.rank}: TRAIN [{at.epoch}][{at.batch}/400]\tTime {at.took:.3f} (0.5)",
        "",
        steps=(0, 390),
        ranks=4,
    ),
    "ranks": Sample(
        lambda at: (
            f"[{with_ms(at.when)}][rank {at.rank}/3] step={at.step} throughput={900 + at.loss:.1f} "
            "samples/s"
        ),
        "",
        ranks=3,
    ),
    "word language model": Sample(
        lambda at: (
            f"| epoch {at.epoch:3d} | {at.batch:5d}/  400 batches | lr 20.00 | ms/batch {at.ms:5.2f} | "
            f"loss {at.loss:5.2f}"
        ),
        "",
        epochs=(0, 1),
        steps=(0, 390),
        others=("-" * 80, "| end of epoch   1 | time: 62.30s | valid loss  5.0"),
    ),
    "epochs": Sample(
        lambda at: f"Epoch {at.step}/800 done in {100 * at.took:.1f}s - train loss {at.loss:.3f}",
        "",
        every=1,
        epochs=(0, 799),
        steps=None,
    ),
    "colours": Sample(
        lambda at: (
            f"\x1b[32m[{at.when:%m/%d %H:%M:%S} d2.utils.events]: \x1b[0m eta: 0:13:46  iter: "
            f"{at.step}  total_loss: {at.loss:.4f}  time: {at.took:.4f}  data_time: 0.0041"
        ),
        "within",
    ),
    "nameless epochs": Sample(
        lambda at: (
            f"{with_ms(at.when)} (main.py 236) INFO Train: [{at.epoch}/300][{at.batch}/400]\tlr 0.1"
        ),
        "",
        epochs=(0, 1),
        steps=(0, 390),
    ),
    "syslog": Sample(
        lambda at: (
            f"{at.when:%b %d %H:%M:%S} node7 train[1234]: Step {at.step} | loss {at.loss:.3f}"
        ),
        "are measured by",
    ),
    "some longer": Sample(
        lambda at: (
            f"Epoch {at.step:03} loss {at.loss:.4f} | train {100 * at.took:.1f}s"
            + (" | Acc 45.79% | infer 5.5s" if at.step % 9 == 0 else "")
        ),
        "",
        every=1,
        epochs=(0, 799),
        steps=None,
    ),
    "mean of steps": Sample(
        lambda at: (
            f"step:{at.step}/800 train_time:{at.step * at.took:.0f}ms step_avg:{at.ms:.2f}ms"
        ),
        "",
    ),
    "Marian": Sample(
        lambda at: (
            f"[{at.when:%Y-%m-%d %H:%M:%S}] Ep. {at.epoch + 1} : Up. {at.step} : Sen. "
            f"{641 * at.step:,} : Cost {at.loss:.8f} : Time {10 * at.took:.2f}s : 9041.25 words/s"
        ),
        "within",
        epochs=(1, 2),
        others=("[2026-11-21 02:29:00] [valid] Ep. 1 : Up. 90 : perplexity : 187.4 : new best",),
    ),
    "ESPnet2": Sample(
        lambda at: (
            f"[node7:0/4] {with_ms(at.when)} (trainer:763) INFO: {at.epoch + 1}epoch:train:"
            f"{at.batch + 1}-{at.batch + 10}batch: iter_time=0.020, forward_time=0.214, "
            f"loss={at.loss:.3f}, optim_step_time=0.031, train_time={at.took:.3f}"
        ),
        "within",
        epochs=(1, 2),
        steps=(10, 400),
    ),
    "Paxml": Sample(
        lambda at: (
            f"I{at.when:%m%d %H:%M:%S.%f} 47580729335424 trainer_lib.py:1234] [PAX STATUS]: step_i: "
            f"{at.step}, training loss: {at.loss:.4f}"
        ),
        "are measured by",
        note="the timestamps have no year",
    ),
    "records of several lines": Sample(
        lambda at: (
            f"{with_ms(at.when)}\tnode-03:0\ttrain:990\tINFO\t[step={at.step}/800,epoch={at.epoch}]\n"
            f"    train/CrossEntropyLoss={at.loss:.3f}\n    throughput/total_tokens=1,966,080"
        ),
        "are measured by",
        epochs=(0, 1),
    ),
    "LeRobot": Sample(
        lambda at: (
            f"INFO {at.when:%Y-%m-%d %H:%M:%S} ts/train.py:232 step:{at.step} smpl:{at.step // 15}K "
            f"ep:{at.step // 9} epch:{at.step / 90:.2f} loss:{at.loss:.3f} grdn:4.482 lr:1.8e-06 "
            f"updt_s:{at.took - 0.05:.3f} data_s:0.050"
        ),
        "within",
    ),
    "a named wait": Sample(
        lambda at: (
            f"{with_ms(at.when)} INFO [train.py:211] batch {at.step}, epoch 0/8 global average objf: "
            f"{at.loss:.6f} over 29888.0 frames avg time waiting for batch 0.06{at.step // 10 % 5}s"
        ),
        "are measured by",
        epochs=(0, 0),
    ),
    "evaluations named behind their epoch": Sample(
        lambda at: (
            f"Epoch {at.step} Train, loss: {at.loss:.2f}, Cost: {100 * at.took:.1f} sec\n"
            f"Epoch {at.step} Val, MAE: 17.72, loss: {at.loss:.2f} Cost: 7.5 sec"
        ),
        "",
        every=1,
        epochs=(0, 799),
        steps=None,
    ),
    "a loss at a step": Sample(
        lambda at: f"{with_ms(at.when)}:\tLoss at step {at.step}: {at.loss:.6f}",
        "are measured by",
    ),
    "a count of the training": Sample(
        lambda at: (
            f"{with_ms(at.when)} train.py:577] [Train {at.step}/800] {{'loss': {at.loss:.6f}}}"
        ),
        "are measured by",
    ),
    "a message that begins with a line's end": Sample(
        lambda at: (
            f"{with_ms(at.when)} - INFO: \nEpoch [{at.epoch + 1}/2], Step [{at.batch}/400], "
            f"Loss: {at.loss:.5f}\n{with_ms(at.when)} - INFO: Time elapsed: {at.loss:.3f}"
        ),
        "are measured by",
        epochs=(1, 2),
        steps=(0, 390),
    ),
    "words that vary": Sample(
        lambda at: (
            f"{with_ms(at.when)} {'ABCDEFGH'[at.step // 10 % 8]}x step {at.step} loss {at.loss:.3f}"
        ),
        "are measured by",
    ),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_the_lines_of_many_trainers_are_read(name: str) -> None:
    sample = SAMPLES[name]
    data = printed(sample)
    proposal = proposal_for("run.log", data)
    assert isinstance(proposal, Proposal), proposal
    assert proposal.lines == 800 // sample.every * sample.ranks
    assert (proposal.epochs, proposal.steps) == (sample.epochs, sample.steps)
    assert proposal.ranks == tuple(range(sample.ranks))
    if sample.steps is None:
        assert proposal.epoch_s == pytest.approx(100 * STEP_S, rel=0.01)
    else:
        assert proposal.step_ms == pytest.approx(1000 * STEP_S, rel=0.01)
    assert sample.note in " ".join(proposal.notes)
    assert PARSER.recognises("run.log", data) == bool(sample.check)
    assert (UNCONFIRMED in proposal.notes) != bool(sample.check)
    if sample.check:
        assert sample.check in str(PARSER.parse("run.log", data).log.facts["confirmed"])


def test_a_counter_around_another_one_counts_epochs() -> None:
    def lines(form: Callable[[int], str]) -> bytes:
        whens = (BEGAN + timedelta(seconds=8 * n) for n in range(240))
        texts = [
            f"{with_ms(when)} - INFO - {form(n)}, loss: 2.{n:04}" for n, when in enumerate(whens)
        ]
        return "\n".join(texts).encode() + b"\n"

    epochs = lines(lambda n: f"iteration:{n // 40 + 1} step:{16 * (n % 40) + 16}/652")
    steps, took = windows_of(read(epochs))
    assert took == pytest.approx(1000 * STEP_S, rel=0.01)
    assert steps.sum() == 6 * 39 * 16
    # Parts of a step are no steps.
    parts = best_evidence(lines(lambda n: f"step: {n // 8} iteration: {n % 8}"))
    assert not isinstance(parts, str)
    assert parts.columns["step"].max() == 29


def test_an_epoch_that_a_job_begins_again_lasts_from_then_on() -> None:
    starts = [0, *range(3600, 3900, 30)]
    text = "".join(
        f"{with_ms(BEGAN + timedelta(seconds=start))} - INFO - Epoch {max(n, 1)}/10\n"
        f"{with_ms(BEGAN + timedelta(seconds=start + 29))} - INFO - Train loss: 2.{n}1\n"
        for n, start in enumerate(starts)
    )
    epochs = read(text.encode()).intervals
    took = arrow.numbers(epochs["end"]) - arrow.numbers(epochs["begin"])
    assert took.tolist() == [30 * 10**9] * 9


def test_lines_with_a_loss_are_at_the_end_of_their_epochs(tmp_path: Path) -> None:
    """Each of four folds is a training: the time before its first line is that of no epoch."""
    lines, when = [], BEGAN
    for fold in range(4):
        for epoch in range(1, 7):
            when += timedelta(seconds=120 + epoch + fold)
            lines.append(f"{with_ms(when)} - INFO - Epoch {epoch}: Train Loss: 2.{9 - epoch}1")
        lines.append(f"{with_ms(when)} - INFO - Fold {fold}: test_ap = 0.4{fold}")
    (tmp_path / "run.log").write_text("\n".join(lines) + "\n")
    (run,) = read_place(str(tmp_path))
    analysis = analyse(run)
    assert analysis.epochs == 20
    assert analysis.epoch_times is not None
    assert [(each.fit, each.epoch, round(each.s)) for each in analysis.epoch_times.epochs] == [
        (fold, epoch - 1, 120 + epoch + fold) for fold in range(4) for epoch in range(2, 7)
    ]
    assert analysis.epoch_times.mean_s == pytest.approx(120 + 4 + 3)
    assert "the log has 4 trainings" in " ".join(problem.what for problem in run.problems)


@pytest.mark.parametrize("slower", [False, True], ids=["even", "one becomes slower"])
def test_changes_between_trainings_of_a_log_are_none_of_its_steps(
    slower: bool, tmp_path: Path
) -> None:
    """The first training ends in its first epoch; the others differ in their steps' time."""
    lines = []
    for step_s, epochs, last in ((0.9, 1, 3), (0.6, 6, 6), (0.95, 10, 6), (0.6, 8, 6)):
        elapsed = 0.0
        for epoch in range(epochs):
            for n in range(1, last + 1):
                becomes = 1.5 if slower and step_s == 0.95 and epoch >= 5 else 1.0
                elapsed += 1000 * step_s * becomes * (1 + 0.01 * (n % 3))
                lines.append(
                    f"epoch {epoch}, iter {n * 1000}, avg. loss 2.{n}1, time elapsed {elapsed:.2f} sec"
                )
    (tmp_path / "run.log").write_text("\n".join(lines) + "\n")
    (run,) = read_place(str(tmp_path))
    analysis = analyse(run)
    assert analysis.printed is not None
    assert (analysis.epochs, len(analysis.changes)) == (25, int(slower))
    assert (analysis.printed.slowdown > 0.02) == slower
    assert "the log has 4 trainings" in " ".join(problem.what for problem in run.problems)


def test_parts_of_epochs_that_count_alike_are_no_trainings() -> None:
    lines = [
        f"{at(STEP_S * (600 * epoch + 300 * part + n))} epoch: {epoch} step: {n}, loss is 2.5"
        for epoch in (1, 2, 3)
        for part in (0, 1)
        for n in range(1, 301, 10)
    ]
    assert "steps_after_training" not in read("\n".join(lines).encode()).log.facts


def test_few_lines_of_many_starts_measure_no_steps() -> None:
    """A program that is started again and again prints its first step, and its hundredth seldom."""
    lines = []
    for start in range(20):
        lines.append(f"{at(900 * start)} Iter 0 Done. | loss: 1.48 | lr: 0.010000")
        for epoch in range(20):
            lines.append(f"{at(900 * start + 20 * epoch + 1)} Training epoch: {epoch}")
            lines.append(f"{at(900 * start + 20 * epoch + 20)} mean_loss: nan")
        if start % 7 == 3:
            lines.append(f"{at(900 * start + 420)} Iter 100 Done. | loss: 0.91 | lr: 0.000000")
    log = read("\n".join(lines).encode())
    assert "window" not in log.intervals["kind"].to_pylist()
    begin, end = (arrow.numbers(log.intervals[name]) for name in ("begin", "end"))
    assert np.median(end - begin) / 1e9 == pytest.approx(20)


def test_means_so_far_are_known_from_lines_that_become_more_frequent() -> None:
    """The first step takes half a minute, and is in all means."""
    numbers = [*range(50, 401, 50), *range(402, 801, 2)]
    text = "".join(
        f"step:{n}/800 loss:2.{n:04} train_time:{30 + n * STEP_S:.3f}s "
        f"step_avg:{1000 * (30 + n * STEP_S) / n:.2f}ms\n"
        for n in numbers
    )
    log = read(text.encode())
    assert log.log.facts["step_ms"] == pytest.approx(1000 * (30 + 800 * STEP_S) / 800, rel=0.001)
    assert log.log.facts["means_of_all_steps"]


def test_running_times_measure_counters_without_a_name_behind_their_epoch() -> None:
    def line(at: At, rise: int) -> str:
        return (
            f"Epoch {at.epoch + 1:2d}, {rise * at.batch:5d}/{400 * rise:5d}; acc: {at.loss:6.2f}; "
            f"ppl: {at.loss:5.2f}; 4182 src tok/s; {at.batch * STEP_S:6.0f} s elapsed"
        )

    steps, took = windows_of(read(printed(Sample(lambda at: line(at, 1), ""))))
    assert steps.sum() == 780
    assert took.mean() == pytest.approx(1000 * STEP_S, rel=0.01)
    # These may be samples: they rise by a multiple of a batch.
    assert not PARSER.recognises("run.log", printed(Sample(lambda at: line(at, 64), "")))


@pytest.mark.parametrize(
    "form",
    [
        "%d/%m/%Y %H:%M:%S",
        "[%d.%m.%Y %H:%M:%S]",
        "%d-%m-%Y, %H:%M:%S.%f",
        "%m/%d/%Y %H:%M:%S",
        "%Y%m%d-%H:%M:%S",
        "[%d/%m/%y %H:%M:%S]",
        "%y/%m/%d %H:%M:%S",
        "%H:%M:%S",
        "[%H:%M:%S.%f] |",
    ],
)
@pytest.mark.parametrize("began", [BEGAN, datetime(2026, 3, 5, 23, 50, 3)])
def test_dates_begin_with_the_day_or_the_year_and_times_may_have_none(
    form: str, began: datetime
) -> None:
    # Over midnight, only one reading of 05/03 and 06/03 leaves no month without lines.
    lines = [
        f"{began + timedelta(seconds=step * 4):{form}} INFO step {step}/600 loss {9 - step / 100:.2f}"
        for step in range(0, 600, 10)
    ]
    steps, took = windows_of(read("\n".join(lines).encode()))
    assert steps.sum() >= 570
    assert np.average(took, weights=steps) == pytest.approx(4000, rel=0.01)


def test_a_date_with_two_digits_of_the_year_is_no_date_without_it() -> None:
    hours = [BEGAN + timedelta(hours=step) for step in range(60)]
    lines = [
        f"\x1b[37m[\x1b[32m{hour:%d/%m/%y %H:%M:%S}\x1b[0m] step {step} loss 2.{step}"
        for step, hour in enumerate(hours)
    ]
    log = read("\n".join(lines).encode())
    steps, ms = windows_of(log)
    assert (steps.sum(), ms.mean()) == (59, pytest.approx(3_600_000))
    assert "year" not in " ".join(problem.what for problem in log.problems)


@pytest.mark.parametrize("varies", [False, True])
def test_lines_at_even_times_are_read_if_their_steps_rise_evenly(varies: bool) -> None:
    """A timer prints every ten seconds, after about 20 steps of half a second."""
    chance, step, lines = random.Random(4), 0, []
    for number in range(1, 80):
        step += chance.randint(1, 400) if varies else chance.randint(18, 22)
        lines.append(f"{at(10 * number)[:19]} INFO step {step} loss 2.{number:04} lr 1e-4")
    data = "\n".join(lines).encode() + b"\n"
    assert PARSER.recognises("run.log", data) != varies
    if not varies:
        steps, ms = windows_of(read(data))
        assert np.average(ms, weights=steps) == pytest.approx(1000 * STEP_S, rel=0.02)


@pytest.mark.parametrize(
    ("figures", "says"),
    [
        ("epoch_time: {left}.0min", "its times are no seconds of a step"),
        (
            "rew/step 3.{step:04}",
            "the lines that count steps have no known timestamps and no times of steps",
        ),
    ],
)
def test_what_is_left_and_what_a_step_earns_are_no_times_of_steps(figures: str, says: str) -> None:
    lines = [
        f"step {step} loss 2.{step:04} {figures.format(step=step, left=(400 - step) // 8)}"
        for step in range(0, 400, 4)
    ]
    data = "\n".join(lines).encode()
    assert not PARSER.recognises("run.log", data)
    assert lacking(data).endswith(says)


def test_lines_of_an_epoch_that_share_its_clock_are_one_epoch() -> None:
    lines = [
        f"Epoch: {epoch:04} avg_loss_{name}: 2.{epoch:04} time: {9 + epoch % 3 + late:.4f}s"
        for epoch in range(40)
        for name, late in (("a", 0), ("b", 0.005))[: 1 + (epoch % 8 == 0)]
    ]
    log = PARSER.parse("run.log", "\n".join(lines).encode())
    begin, end, number = (arrow.numbers(log.intervals[name]) for name in ("begin", "end", "epoch"))
    assert number.tolist() == list(range(40))
    took = [9 + epoch % 3 + (0.005 if epoch % 8 == 0 else 0) for epoch in range(40)]
    assert (end - begin) / 1e9 == pytest.approx(took)


def test_units_may_stand_in_brackets() -> None:
    def line(at: At) -> str:
        return (
            f"Epoch {at.epoch}, Step {at.batch}, total used time {at.step * STEP_S + 3:.7f} (s), avg "
            f"loss so far is {at.loss:.7f}"
        )

    _, took = windows_of(read(printed(Sample(line, ""))))
    assert took.mean() == pytest.approx(1000 * STEP_S, rel=0.01)


# What confirms times


def of_steps(line: Callable[[int, float, float], str], count: int = 60, every: int = 10) -> bytes:
    """Print lines of ``every`` steps with the mean step time and the time since the start."""
    chance = random.Random(5)
    ends, end = [], 0.0
    for number in range(1, count + 1):
        took = STEP_S * chance.uniform(0.97, 1.03)
        end += every * took
        ends.append(line(number * every, took, end))
    return ("\n".join(ends) + "\n").encode()


def at(seconds: float) -> str:
    return with_ms(BEGAN + timedelta(seconds=seconds))


CONFIRMED = {
    "means by the clock": (
        lambda n, s, end: f"{at(end)} step {n} loss 2.{n:04} time {s:.4f}",
        "agree with the log's timestamps",
    ),
    "a path with a word of evaluations": (
        lambda n, s, end: f"{at(end)} /data/test/train.py:12 step {n} loss 2.{n:04} time {s:.4f}",
        "agree with the log's timestamps",
    ),
    "milliseconds without a unit": (
        lambda n, s, end: f"{at(end)} step {n} loss 2.{n:04} time {1e3 * s:.1f}",
        "agree with the log's timestamps",
    ),
    "all steps since the line before": (
        lambda n, s, end: f"{at(end)} step {n} loss 2.{n:04} elapsed {10 * s:.4f}s",
        "agree with the log's timestamps",
    ),
    "without the wait for data": (
        lambda n, s, end: (
            f"{at(end)} step {n} loss 2.{n:04} train_time {0.7 * s:.4f} data_time {0.3 * s:.4f}"
        ),
        "agree with the log's timestamps",
    ),
    "a time that never changes, and its wait for data": (
        lambda n, s, end: (
            f"{at(end)} step {n} loss 2.{n:04} iter_time: {round(STEP_S, 1):.3f}s, "
            f"data_time: {0.3 * s:.4f}s"
        ),
        "agree with the log's timestamps",
    ),
    "a host that runs ahead": (
        lambda n, s, end: f"{at(end)} completed step: {n}, seconds: 0.031, loss: 2.{n:04}",
        "are measured by the log's timestamps",
    ),
    "tokens per second": (
        lambda n, s, end: f"{at(end)} step: {n} loss: 2.{n:04} tps: {8192 / s:,.0f} mfu: 33.1%",
        "are measured by the log's timestamps",
    ),
    "a date with a comma": (
        lambda n, s, end: (
            f"{at(end)[:10]},{at(end)[11:19]} | INFO | Train Epoch: 0 [{n * 512:>8}/12800000 (0%)] "
            f"Data (t): {0.3 * s:.3f} Batch (t): {s:.3f}, {512 / s:.3f}/s, {64 / s:.4f}/s/gpu"
        ),
        "agree with the log's timestamps",
    ),
    "a running time and its mean": (
        lambda n, s, end: (
            f"step:{n}/5100 train_loss:4.{n:04} train_time:{1e3 * end:.0f}ms "
            f"step_avg:{1e3 * end / n:.2f}ms"
        ),
        "agree with the lines' running time",
    ),
    "hours and minutes": (
        lambda n, s, end: json.dumps(
            {
                "current_steps": n,
                "loss": 2 - n / 1e4,
                "elapsed_time": str(timedelta(seconds=int(end))),
            }
        ),
        "are measured by the lines' running time",
    ),
    "seconds since 1970": (
        lambda n, s, end: json.dumps(
            {
                "_step": n,
                "train/loss": 2.0 - n / 1e4,
                "_runtime": end + 9,
                "_timestamp": 1.7e9 + end,
            }
        ),
        "the lines' timestamps and the lines' running time agree",
    ),
    "the printed batch": (
        lambda n, s, end: (
            f"iteration {n} | loss 2.{n:04} | global batch size: 256 | iter time (ms): {1e3 * s:.3f} | "
            f"samples per second: {256 / s:.3f}"
        ),
        "rates and times agree on the batch of 256",
    ),
    "the batch of each line": (
        lambda n, s, end: (
            f"global_step: {n}, loss: 2.{n:04}, avg_batch_cost: {s:.5f} s, avg_samples: 64.0, "
            f"ips: {64 / s:.5f} samples/s"
        ),
        "rates and times agree on the batch of 64",
    ),
    "samples, and the sum over a number of steps": (
        lambda n, s, end: (
            f"{at(end)[:19]} Train Epoch: 1 [{512 * n}/491542 ({n / 9:.0f}%)]{n}, Loss: 2.{n:04}, "
            f"Elapsed time: {10 * s:.4f}s(10 iters)"
        ),
        "agree with the log's timestamps",
    ),
    "colons in a timestamp": (
        lambda n, s, end: (
            f"[{at(end)[:19].replace(' ', ':')}:INFO:train] Batch [{n}] {1 / s:.2f} updates/sec "
            f"perplexity=44.{n:04}"
        ),
        "agree",
    ),
    "the mean in parentheses": (
        lambda n, s, end: (
            f"{at(end)} Epoch: [1/9][{n}/9000] Wait 0.002 (0.57) Batch 0.1{n:03} ({end / n:.4f}) "
            f"Remain 436:08:39 Loss 2.{n:04}"
        ),
        "agree with the log's timestamps",
    ),
    "rates of an interval": (
        lambda n, s, end: (
            f"loss: 2.{n:04}, global_step: {n}, interval_runtime: {10 * s:.4f}, "
            f"interval_samples_per_second: {8 / s:.6f}, interval_steps_per_second: {1 / s:.6f}"
        ),
        "agree with rates on the steps since the line before",
    ),
    "two loggers, one with a clock": (
        lambda n, s, end: (
            f"INFO:framework:Step {n} per-step time {s:.4f}s loss=2.{n:04}\n"
            f"I{BEGAN + timedelta(seconds=end):%m%d %H:%M:%S.%f} 4711 loop.py:705] Step {n} "
            f"per-step time {s:.4f}s loss=2.{n:04}"
        ),
        "agree with the log's timestamps",
    ),
    "a time in parentheses behind another figure": (
        lambda n, s, end: f"{at(end)} global step {n}: loss = 2.{n:04} ({s:.4f} sec/step)",
        "agree with the log's timestamps",
    ),
    "data and samples, whose batch the clock tells": (
        lambda n, s, end: (
            f"{at(end)[:19]} | INFO | Train Epoch: 0 [{n * 128:>7}/{128 * 900} ({n / 9:.0f}%)]\tLoss: "
            f"2.{n:04}\tData (t) {0.3 * s:.3f}\tBatch (t) {s:.3f}\tLR: 0.000001"
        ),
        "agree with the log's timestamps",
    ),
    "what is left of an epoch": (
        lambda n, s, end: (
            f"Epoch:[0/1] [{n}/2000]  eta: {left(2000 - n)}  loss: 2.{n:04}  step_time: {s:.6f}"
        ),
        "agree with the time that is left",
    ),
    "what is left after a remark": (
        lambda n, s, end: (
            f"Epoch 34 | iter {n} | loss train: 2.{n:04}, val: 2.861 | iter time: {1e3 * s:.2f} ms "
            f"(step) remaining time: {left(2000 - n, s)}"
        ),
        "agree with the time that is left",
    ),
    "what is left of steps per second": (
        lambda n, s, end: (
            f"epoch=1 step={n} lr=0.00093 loss=0.{n:04} step/sec={1 / s:.3f} | ETA {left(2000 - n, s)}"
        ),
        "agree with the time that is left",
    ),
}


def left(steps: int, step_s: float = STEP_S) -> timedelta:
    return timedelta(seconds=int(steps * step_s))


@pytest.mark.parametrize("name", CONFIRMED)
def test_times_are_read_if_figures_agree(name: str) -> None:
    line, check = CONFIRMED[name]
    log = read(of_steps(line))
    steps, ms = windows_of(log)
    assert np.average(ms, weights=steps) == pytest.approx(1000 * STEP_S, rel=0.01)
    assert check in str(log.log.facts["confirmed"])
    if "data" in name or "date" in name:
        assert log.log.facts["data_ms"] == pytest.approx(300 * STEP_S, rel=0.02)
    if "date" in name:
        assert log.log.facts["size"] == 8


# Times of each step and rates have a constant product, which tells most if times vary.
PRODUCTS = {
    "times that vary": (
        lambda n, s, end: (
            f"completed step: {n}, seconds: {s:.3f}, Tokens/s/device: {49152 / s:.3f}, loss: 2.{n:04}"
        ),
        True,
    ),
    "a power of two": (
        lambda n, s, end: (
            f"step {n:4}/74 | loss 3.{n:06} | {500 + n % 3 / 100} ms | {8192 + n % 2} tok/s"
        ),
        True,
    ),
    "times that are the same": (
        lambda n, s, end: f"step {n} | loss 3.{n:06} | step time 0.500s | 18000 tok/s",
        False,
    ),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_the_product_of_times_and_rates_may_confirm_the_times_of_each_step(name: str) -> None:
    line, confirmed = PRODUCTS[name]
    data = of_steps(line, every=1)
    assert PARSER.recognises("run.log", data) == confirmed
    if confirmed:
        _, ms = windows_of(read(data))
        assert np.mean(ms) == pytest.approx(1000 * STEP_S, rel=0.01)


@pytest.mark.parametrize("rates", [False, True])
@pytest.mark.parametrize("digits", [2, 5])
def test_what_is_left_never_makes_a_mean_so_far_the_time_of_a_step(
    digits: int, rates: bool
) -> None:
    """The first step takes a minute, and is in all means."""

    def line(n: int, s: float, end: float) -> str:
        mean = (60 + end) / n
        time = f"steps/s: {1 / mean:.{digits}f}" if rates else f"step_time: {mean:.{digits}f}"
        return f"Epoch:[0/1] [{n}/9000]  eta: {left(9000 - n, mean)}  {time}"

    data = of_steps(line)
    assert PARSER.recognises("run.log", data) == (digits == 5)
    if digits == 5:
        _, ms = windows_of(read(data))
        assert np.median(ms) == pytest.approx(1000 * STEP_S, rel=0.01)


def test_where_printed_times_and_the_clock_disagree_a_note_says_so() -> None:
    data = of_steps(lambda n, s, end: f"{at(end)} step {n} loss 2.{n:04} step_time: 0.0{n % 7}1s")
    (note,) = {problem.what for problem in read(data).problems}
    assert "the clock counts" in note


@pytest.mark.parametrize(
    "line",
    [
        lambda n, s, end: (
            f"step {n} | loss 2.{n:04} | dt: {1e3 * s:.2f}ms | tok/sec: {8192 / s:.2f}"
        ),
        lambda n, s, end: f"Train Epoch: 14 [{n * 64}/60000 ({n / 600:.0f}%)]\tLoss: 0.{n:06}",
        lambda n, s, end: f"{at(end)} Train Epoch: 1 [{n * 64}/60000 (1%)]\tLoss: 0.{n:06}",
        lambda n, s, end: (
            f"{at(end)} Train Epoch: 1 [{n * 64}/60000 (1%)] Loss: 0.{n:06} elapsed: {10 * s:.3f}s"
        ),
        lambda n, s, end: f"{at(end)} [INFO] Epoch {n}, Time {end:.1f}s, Loss 0.4{n}, LR 0.2000",
        lambda n, s, end: f"{at(end)} Batch {n} inserted 1000 rows in {s:.3f}s",
        lambda n, s, end: f"{at(end)} training: Evaluating step {n}/600 time: {s:.3f}s",
        lambda n, s, end: f"{at(end)} test/step: {n} loss 0.1 time: {s:.4f}",
        lambda n, s, end: f"{at(end)} Epoch(val) [1][{n}/600] loss: 0.1 time: {s:.4f}",
        lambda n, s, end: f"{at(end)} Episode {n} reward {n}.5 loss 0.3",
        lambda n, s, end: f"{n} packets, loss 0.{n}%, time {s:.4f} s",
        lambda n, s, end: str({"loss": 3.5, "learning_rate": 5e-5, "epoch": n / 1000}),
    ],
    ids=[
        "dt",
        "samples",
        "stamped",
        "sums over steps or samples",
        "every tenth epoch",
        "database",
        "evaluation",
        "test",
        "validation",
        "episodes",
        "packets",
        "dicts",
    ],
)
def test_what_nothing_confirms_is_not_read(line: Callable[[int, float, float], str]) -> None:
    assert not PARSER.recognises("run.log", of_steps(line))


def test_a_log_that_is_not_read_gets_a_sentence_about_what_it_lacks(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    without = "no times of steps can be read from its lines"
    lines = {
        "time 0.2": "its lines have counters (step) and times (time); 50 lines about steps could be "
        "read, but nothing else was found that confirms their times: --read-as step-lines reads them "
        "nevertheless",
        "": f"its lines have counters (step); {without}: the lines that count steps have no "
        "known timestamps and no times of steps",
        "samples/s: 38{0}": f"its lines have counters (step) and rates (samples s); {without}: its "
        "lines count steps and have rates, but no timestamps, times or steps per second",
        "step time: 236615.70": f"its lines have counters (step) and times (step time); {without}: "
        "its times are no seconds of a step",
    }
    for time, expected in lines.items():
        line = f"step {{0}} loss 2.{{0}} {time}\n"
        log.write_text("".join(line.format(step) for step in range(50)))
        with pytest.raises(NotFoundError) as error:
            read_place(str(log))
        assert str(error.value).endswith(expected)
    log.write_text(
        "".join(f"{step}: {step % 7}.5 avg, 0.001 rate, 351.5 s\n" for step in range(50))
    )
    with pytest.raises(NotFoundError, match="none of its lines names a step"):
        read_place(str(log))


def test_a_last_line_may_lack_its_copy_by_a_logger_with_timestamps() -> None:
    line, check = CONFIRMED["two loggers, one with a clock"]
    data, _, last = of_steps(line).strip().rpartition(b"\n")
    assert last.startswith(b"I")
    log = read(data + b"\n")
    assert check in str(log.log.facts["confirmed"])
    assert arrow.numbers(log.intervals["step"]).max() == 590


def test_a_duration_of_all_steps_between_lines_needs_a_clock() -> None:
    assert "all steps since the line before" in str(
        best_evidence(of_steps(lambda n, s, end: f"step {n} loss 2.{n:04} took {10 * s:.3f} s"))
    )


@pytest.mark.broad
@given(
    every=st.integers(1, 50),
    step_s=st.floats(0.05, 30),
    unit=st.sampled_from(["s", "ms", ""]),
    coarse=st.booleans(),
    meaning=st.sampled_from(["mean", "last", "total", "so far", "running", "none"]),
)
def test_no_log_is_read_wrongly(
    every: int, step_s: float, unit: str, coarse: bool, meaning: str
) -> None:
    chance = np.random.default_rng(every)
    took = step_s * chance.uniform(0.9, 1.1, (60, every))
    ends, so_far = np.cumsum(took.sum(axis=1)), np.cumsum(took.sum(axis=1)) / every
    values = {
        "mean": took.mean(axis=1),
        "last": took[:, -1],
        "total": took.sum(axis=1),
        "so far": so_far / np.arange(1, 61),
        "running": ends,
        "none": None,
    }[meaning]
    lines = []
    for number in range(60):
        stamp = at(ends[number])[: 19 if coarse else 23]
        value = (
            "" if values is None else f"{values[number] * (1000 if unit == 'ms' else 1):.4f}{unit}"
        )
        lines.append(f"{stamp} step {(number + 1) * every} loss 2.{number:03} time {value}")
    data = "\n".join(lines).encode()
    if PARSER.recognises("run.log", data):
        steps, ms = windows_of(PARSER.parse("run.log", data))
        assert np.average(ms, weights=steps) == pytest.approx(1000 * took.mean(), rel=0.05)


# Restarts, ranks, evaluations and tables


def test_steps_that_were_trained_twice_count_once() -> None:
    def lines(first: int, last: int) -> list[str]:
        return [
            json.dumps(
                {"current_steps": n, "loss": 2.0, "elapsed_time": f"0:{n // 60:02}:{n % 60:02}"}
            )
            for n in range(first, last + 1, 10)
        ]

    doubled = [line for line in (*lines(10, 600), *lines(550, 900)) for _ in range(2)]
    log = read("\n".join(doubled).encode())
    steps, ms = windows_of(log)
    assert np.average(ms, weights=steps) == pytest.approx(1000)
    assert arrow.numbers(log.intervals["step"]).max() == 900
    notes = " ".join(each.what for each in log.problems)
    assert "60 steps were trained twice, after 1 restart" in notes


# What a program prints before its first step.
START = (
    "world size 8, launched by torchrun",
    "loaded 1,204,331 samples from the data set",
    "the model has 124.4M parameters, 12 layers",
    "starting training",
)
SETTINGS = [
    f"{name} of the model: 0.1" for name in ("alpha", "beta", "gamma", "kappa", "lambda", "mu")
]
EPOCH = ("the next epoch begins", "with a learning rate of 0.1", "and shuffled samples")
EVALUATION = ("running the evaluation", "score of the model: 0.61 after 128 samples", "best so far")
RESUMED: dict[str, Callable[[At], str]] = {
    "timestamps": lambda at: f"{with_ms(at.when)} step {at.step} loss {at.loss:.4f}",
    "epochs": lambda at: f"{with_ms(at.when)} epoch {at.epoch} step {at.step} loss {at.loss:.4f}",
    "rates": lambda at: (
        f"[titan] {with_ms(at.when)} - root - INFO - step: {at.step} loss: {at.loss:.4f} tps: 16,384"
    ),
    "printed times": lambda at: (
        f"{with_ms(at.when)} step {at.step} loss {at.loss:.4f} time {at.took:.3f}s"
    ),
    "Megatron-LM": lambda at: (
        f" [{at.when:%Y-%m-%d %H:%M:%S}] iteration {at.step:8d}/ 1000 | consumed samples: {at.step} | "
        f"elapsed time per iteration (ms): {at.ms:.1f} | learning rate: 1.0E-4 |"
    ),
    "PyTorch's meters": lambda at: (
        f"{with_ms(at.when)} Epoch: [0][{at.step:4d}/1000]  Time {at.took:.3f} ({at.took:.3f})  "
        f"Data 0.010 (0.010)  Loss {at.loss:.3f} ({at.loss:.3f})"
    ),
    "JSON": lambda at: json.dumps(
        {"step": at.step, "loss": at.loss, "_timestamp": at.when.timestamp()}
    ),
}


def lines_of(
    line: Callable[[At], str], steps: Sequence[int], late_s: float = 0.0, every: int = 10
) -> list[str]:
    """Print every tenth of these steps, which begin some time later than those of a job from step 0."""
    return [
        line(
            At(n, n // 300, n, 0, BEGAN + timedelta(seconds=n * STEP_S + late_s), STEP_S, 1 + 1 / n)
        )
        for n in steps
        if n % every == 0
    ]


@pytest.mark.parametrize("first", [470, 410], ids=["at the next step", "at a step again"])
@pytest.mark.parametrize("trainer", RESUMED)
def test_the_days_until_a_job_goes_on_are_those_of_no_step(
    trainer: str, first: int, tmp_path: Path
) -> None:
    line = RESUMED[trainer]
    texts = [*START, *lines_of(line, range(10, 470))]
    texts += [*START, "resumed from a checkpoint", *lines_of(line, range(first, 1001), 172_800)]
    (tmp_path / "run.log").write_text("\n".join(texts) + "\n")
    (run,) = read_place(str(tmp_path))
    analysis = analyse(run)
    assert analysis.printed is not None
    assert analysis.printed.step.mean == pytest.approx(1000 * STEP_S, rel=0.02)
    assert not analysis.printed.pauses
    assert len(run.logs[0].facts["steps_after_restart"]) == 1
    assert "steps follow another start of a program 1 time" in " ".join(
        each.what for each in run.problems
    )


@pytest.mark.parametrize("trainer", ["timestamps", "epochs", "rates", "JSON"])
def test_days_between_two_lines_are_a_pause(trainer: str, tmp_path: Path) -> None:
    line = RESUMED[trainer]
    texts = [*lines_of(line, range(10, 470)), *lines_of(line, range(470, 1001), 172_800)]
    (tmp_path / "run.log").write_text("\n".join(texts) + "\n")
    analysis = analyse(read_place(str(tmp_path))[0])
    assert analysis.printed is not None
    assert analysis.printed.step.mean == pytest.approx(1000 * STEP_S, rel=0.02)
    (pause,) = analysis.printed.pauses
    assert (pause.kind, pause.seconds) == ("unnamed", pytest.approx(172_800, rel=0.01))


@pytest.mark.parametrize(
    ("start", "between", "restarts"),
    [
        (EVALUATION, EVALUATION, 0),
        ((*START, *EVALUATION), EVALUATION, 0),
        (EPOCH, EPOCH, 0),
        # Jobs that end after a day make about as many steps each.
        ((*START, *SETTINGS), (*START, *SETTINGS), 2),
    ],
)
def test_a_few_lines_that_come_again_and_again_are_no_start(
    start: Sequence[str], between: Sequence[str], restarts: int
) -> None:
    texts = [*start]
    for first, last in ((10, 240), (240, 480), (480, 720)):
        texts += lines_of(RESUMED["timestamps"], range(first, last), first / 10)
        texts += between if last < 720 else ()
    facts = read("\n".join(texts).encode()).log.facts
    assert len(facts.get("steps_after_restart", ())) == restarts


@pytest.mark.parametrize(
    ("between", "evaluates"),
    [
        ("val_dataset:\n  mode: val\n  type: Cityscapes", False),
        ("  checkpoint_config ............ {'tag_validation': 'WARN'}", False),
        ("  checkpoint_tag_validation_enabled  True", False),
        ("  eval_iters ...................................... 100", False),
        ("Namespace(lr=0.1, eval_interval=500, test_only=False)", False),
        ('    "val_batch_size": 4,\n    "do_eval": true,', False),
        ("python train.py --eval-steps 500 --do_eval", False),
        ("val: ../coco/val2017", False),
        ("val_loss: 0.31", True),
        ("Validation loss: 0.31", True),
        ("{'eval_loss': 0.51, 'eval_steps': 10}", True),
        ("val_loss: tensor(0.31, device='cuda:0')", True),
        ("Test: [ 0/50]", True),
        ("evaluate the model on val_dataset", True),
        ("Evaluating...", True),
    ],
)
def test_printed_settings_are_no_evaluation(between: str, evaluates: bool) -> None:
    line = RESUMED["timestamps"]
    texts = [*lines_of(line, range(10, 470)), between, *lines_of(line, range(470, 1001), 60)]
    facts = read("\n".join(texts).encode()).log.facts
    assert ("steps_after_validation" in facts) is evaluates


@pytest.mark.parametrize(
    ("first", "epochs"), [(10, [0, 1, 2]), (210, [1, 2])], ids=["begins again", "goes on"]
)
def test_an_epoch_with_a_restart_is_timed_from_where_it_begins_again(
    first: int, epochs: Sequence[int]
) -> None:
    def lines(epoch: int, begin: int, late_s: float) -> list[str]:
        return [
            f"{at((epoch * 300 + n) * STEP_S + late_s)} epoch {epoch} step {n} loss 2.{n:04}"
            for n in range(begin, 301, 10)
        ]

    texts = [*START, *SETTINGS, *lines(0, 10, 0)[:20], *START, *SETTINGS, *lines(0, first, 900)]
    texts += [line for epoch in (1, 2, 3) for line in lines(epoch, 10, 900)]
    table = read("\n".join(texts).encode()).intervals
    table = table.filter(pc.equal(table["kind"].cast(pa.string()), "epoch"))
    assert table["epoch"].to_pylist() == epochs
    took = arrow.numbers(table["end"]) - arrow.numbers(table["begin"])
    assert took == pytest.approx(300 * STEP_S * 1e9)


@pytest.mark.parametrize("timed", [True, False])
def test_the_time_of_steps_whose_lines_are_missing_is_not_used(timed: bool) -> None:
    def line(n: int, pause: float) -> str:
        if timed:
            return f"[{at(n * STEP_S + pause)}] iteration {n}, loss 2.5"
        return f"step {n} | loss: 2.5 | dt: {500 + n % 7}.00ms | tok/sec: {32768e3 / (500 + n % 7):.0f}"

    every = 10 if timed else 1
    numbers = [n * every for n in (*range(1, 31), *range(6_000, 6_030))]
    log = read("\n".join(line(n, 1e5 if n > 1000 else 0.0) for n in numbers).encode())
    steps, ms = windows_of(log)
    assert ms == pytest.approx(1000 * STEP_S, rel=0.02)
    assert steps.sum() == pytest.approx(60 * every, rel=0.1)
    assert "the log lacks the lines about" in " ".join(each.what for each in log.problems)
    # Their time is no pause either.
    assert len(log.log.facts["steps_after_restart"]) == 1


@pytest.mark.parametrize("form", ["Epoch[{e}/9], Step[{n}/196]", "epoch {e} iter: {n} of 196"])
def test_steps_after_the_last_line_of_an_epoch_are_steps(form: str) -> None:
    lines = [
        f"{at((epoch * 196 + n) * STEP_S)} {form.format(e=epoch + 1, n=n)} loss: 2.5"
        for epoch in range(9)
        for n in (0, 100)
    ]
    log = read("\n".join(lines).encode())
    ends = arrow.numbers(log.intervals["step"])[arrow.numbers(log.intervals["steps"]) == 100]
    assert np.diff(ends).tolist() == [196] * 8


@pytest.mark.parametrize("samples", [1, 4])
def test_the_clock_tells_whether_numbers_are_steps_or_their_samples(samples: int) -> None:
    # Batches of 4 take 0.42 s, and 0.5 s with what is between them.
    took = [0.42 + epoch / 1e4 for epoch in range(12)]
    lines = [
        f"{at((epoch * 500 + n) * STEP_S / samples)} Epoch: [{epoch}] [{n}/464] loss: {2 + epoch / 8} "
        f"batch_cost: {took[epoch]:.4f} ips: {4 / took[epoch]:.3f} images/s"
        for epoch in range(12)
        for n in (0, 200, 400)
    ]
    steps, ms = windows_of(PARSER.parse("run.log", "\n".join(lines).encode()))
    assert {*steps.tolist()} == {200 // samples}
    assert ms == pytest.approx(1000 * STEP_S, rel=0.2)


def test_the_time_between_two_trainings_of_a_log_is_no_pause() -> None:
    lines = [
        f"{at(n * STEP_S + epoch * 200 + 9e4 * job)} epoch: {epoch} step: {n}, loss is 2.5"
        for job in range(2)
        for epoch in (1, 2, 3)
        for n in range(1, 301, 10)
    ]
    log = read("\n".join(lines).encode())
    steps, ms = windows_of(log)
    assert np.average(ms, weights=steps) == pytest.approx(1000 * STEP_S)
    assert len(log.log.facts["steps_after_restart"]) == 1


@pytest.mark.parametrize(("lengths", "trainings"), [((300, 130, 200), 3), ((300, 300, 200), 1)])
def test_without_epochs_only_pieces_of_one_length_are_a_training(
    lengths: tuple[int, ...], trainings: int
) -> None:
    lines = [
        f"{at(n * STEP_S + 9e4 * piece)} step: {n}, loss is 2.5"
        for piece, length in enumerate(lengths)
        for n in range(1, length + 1, 10)
    ]
    log = read("\n".join(lines).encode())
    assert len(log.log.facts.get("steps_after_restart", [])) == trainings - 1


def test_a_log_that_was_emptied_while_it_was_written_begins_with_zeros() -> None:
    data = printed(SAMPLES["nanoGPT"])
    emptied = read(b"\0" * 10_000 + data[len(data) // 2 :])
    assert emptied.intervals.equals(read(data[len(data) // 2 :]).intervals)


def test_names_of_loggers_may_be_longer_than_what_tells_figures_apart() -> None:
    logger = "a_training_of_diffusion_models_with_a_curriculum_of_steps.training.trainer"
    lines = [
        f"{at(n * STEP_S)} - {logger} - INFO - Step {n} | Loss: 2.{n}" for n in range(9, 99, 9)
    ]
    steps, ms = windows_of(read("\n".join(lines).encode()))
    assert np.average(ms, weights=steps) == pytest.approx(1000 * STEP_S)


def test_the_name_of_a_host_is_no_name_of_a_time() -> None:
    lines = [
        f"{at(n * STEP_S)} quick-time-runs-gpu-07:0 INFO [step={n}/900] loss=2.{n}"
        for n in range(90)
    ]
    steps, ms = windows_of(read("\n".join(lines).encode()))
    assert np.average(ms, weights=steps) == pytest.approx(1000 * STEP_S)


def test_what_the_rest_of_a_job_is_estimated_to_take_is_no_time_of_steps() -> None:
    # Read as milliseconds, the means of what 200 lines say is left are about the time of a line.
    lines = [
        f"{at(n * STEP_S)} Iters: {n}/2000 || loss: 2.{n}"
        f" || Cost Time: {timedelta(seconds=int(n * STEP_S))}"
        f" || Estimated Time: {timedelta(seconds=int((2000 - n) * STEP_S))}"
        for n in range(10, 2001, 10)
    ]
    for text in ("\n".join(lines), "\n".join(lines).replace("Estimated Time", "Time")):
        _, ms = windows_of(read(text.encode()))
        assert ms == pytest.approx(1000 * STEP_S, rel=0.02)


def test_the_time_of_a_lines_last_step_stands_for_the_steps_before_it() -> None:
    slow, fast, evaluation = 9800.0, 640.0, 35_000.0
    took = [
        evaluation + usual if n % 25 == 0 else usual
        for n in range(1, 201)
        for usual in [slow if n <= 100 else fast]
    ]
    lines = [f"iter {10 * n}: loss 2.{n}, time {ms:.2f}ms" for n, ms in enumerate(took, 1)]
    _, ms = windows_of(read("\n".join(lines).encode()))
    # An evaluation is in the last of ten steps.
    assert np.median(ms[:100]) == pytest.approx(slow)
    assert ms[101:124] == pytest.approx(fast)
    assert ms[[124, 149, 174, 199]] == pytest.approx(fast + evaluation / 10)


def test_lines_that_become_less_frequent_have_no_lines_missing() -> None:
    numbers = [*range(1, 31), *range(100, 1100, 100)]
    text = "\n".join(f"{at(n * STEP_S)} step {n} loss 2.5" for n in numbers)
    log = read(text.encode())
    steps, ms = windows_of(log)
    assert (steps.sum(), np.average(ms, weights=steps)) == (999, pytest.approx(1000 * STEP_S))
    assert not log.problems


def test_of_lines_with_the_same_figures_those_with_the_same_text_are_read() -> None:
    lines = []
    for n in range(1, 41):
        lines.append(f"{at(n * STEP_S)} [rank=0] [TRACKING] iter={n}, loss=2.5, best=2.1")
        if n % 3 == 0:
            lines.append(f"{at(n * STEP_S)} [rank=0] [TRACKER] new best: loss=2.1 at iter {n}")
    steps, ms = windows_of(read("\n".join(lines).encode()))
    assert (steps.sum(), ms.mean()) == (39, pytest.approx(1000 * STEP_S))


def test_ranks_are_those_of_labels_or_fields() -> None:
    for line in (
        lambda r, n, end: (
            f"[rank{r}]:[titan] {at(end)} - root - INFO - step: {n} loss: 2.1 tps: 9,000"
        ),
        lambda r, n, end: json.dumps({"time": at(end), "rank": r, "step": n, "loss": 2.5}),
    ):
        text = "\n".join(line(r, n, n / 2 + r / 100) for n in range(0, 300, 10) for r in range(4))
        log = read(text.encode())
        logs = [log, *log.more]
        assert [each.log.rank for each in logs] == [0, 1, 2, 3]
        for each in logs:
            assert each.log.facts["step_ms"] == pytest.approx(500, rel=0.01)


def test_the_time_of_an_evaluation_is_that_of_one_step() -> None:
    lines = [
        f"iter {n}: loss 2.5, time {60_000 if n % 500 == 0 else 212}.00ms, mfu 31.4%"
        for n in range(0, 2001, 10)
    ]
    steps, ms = windows_of(read("\n".join(lines).encode()))
    assert np.median(ms) == pytest.approx(212)
    assert (steps * ms).sum() == pytest.approx(2000 * 212 + 5 * (60_000 - 212), rel=0.01)


def test_a_table_is_read_by_its_names() -> None:
    rows = [
        f"{n},{24.6 * n + 170 * (n // 6):.3f},2.5,{1.7e9 + 24.6 * n + 170 * (n // 6):.3f},"
        for n in range(60)
    ]
    data = "\n".join(["_step,_runtime,train/loss,_timestamp,eval/loss", *rows, ""]).encode()
    _, ms = windows_of(read(data))
    assert np.median(ms) == pytest.approx(24_600)
    assert not PARSER.recognises("a.csv", data.replace(b"_step", b"_id"))


# Stages

# A timer, and its shortest and longest milliseconds of all ranks.
TIMERS = {
    "forward-backward": (1240, 1250),
    "forward-compute": (400, 412),
    "backward-compute": (600, 810),
    "batch-generator": (20, 60),
    "data-iterator": (3, 43),
    "broadcast-data": (15, 16),
    "grads-all-reduce": (50, 240),
    "optimizer-inner-step": (20, 21),
    "optimizer": (60, 62),
}
OLD = {
    "forward": 420,
    "backward": 900,
    "backward-backward": 790,
    "backward-allreduce": 100,
    "optimizer": 60,
    "batch generator": 20,
}
V2 = {
    "forward-compute": 400,
    "backward-compute": 800,
    "backward-params-all-reduce": 98,
    "backward-embedding-all-reduce": 1,
    "backward-reduce-model-grads": 100,
    "backward-gather-model-params": 0,
    "optimizer-copy-to-main-grad": 3,
    "optimizer": 60,
    "batch-generator": 20,
}
DEEPSPEED = {"fwd": 300, "bwd": 660, "bwd_inner": 580, "bwd_allreduce": 80, "step": 50}


def in_line(timers: dict[str, int], rank: str = "") -> str:
    return f"{rank}time (ms)" + "".join(f" | {name}: {ms}.25" for name, ms in timers.items())


def in_table(timers: dict[str, tuple[int, int]], *, longest: bool = False) -> str:
    rows = [
        f"    {name + ' ':.<48}: " + (f"{most}.25" if longest else f"({least}.25, {most}.25)")
        for name, (least, most) in timers.items()
    ]
    head = "max" if longest else "(min, max)"
    return "\n".join([f"{head} time across ranks (ms):", *rows])


@dataclass(frozen=True)
class Staged:
    """What a program prints after each line about steps, and the stages that it means."""

    text: str
    by: str
    ms: dict[str, float]


STAGED = {
    "a table": Staged(
        in_table(TIMERS),
        "the slowest rank",
        {"input": 60, "compute": 1162, "allreduce": 50, "other": 62},
    ),
    "a table of the longest": Staged(
        in_table(TIMERS, longest=True),
        "all ranks at the longest",
        {"input": 60, "compute": 1162, "allreduce": 240, "other": 62},
    ),
    "passes of different ranks": Staged(
        in_table(TIMERS | {"forward-backward": (1150, 1160)}),
        "the slowest rank",
        {"input": 60, "compute": 1100, "allreduce": 50, "other": 62},
    ),
    "passes in one": Staged(
        in_table(
            {"forward-backward": (1240, 1250), "all-grads-sync": (50, 90), "optimizer": (9, 9)}
        ),
        "the slowest rank",
        {"compute": 1200, "allreduce": 50, "other": 9},
    ),
    "a line": Staged(
        in_line(V2), "the last rank", {"input": 20, "compute": 1180, "allreduce": 100, "other": 60}
    ),
    "an old line": Staged(
        in_line(OLD), "the last rank", {"input": 20, "compute": 1190, "allreduce": 100, "other": 60}
    ),
    "DeepSpeed": Staged(
        "\n".join(
            in_line(timers, "[Rank 0] rank=0 ")
            for timers in ({"fwd_microstep": 9, "bwd_microstep": 9}, DEEPSPEED)
        ),
        "rank 0",
        {"compute": 880, "allreduce": 80, "other": 50},
    ),
}


def with_timers(text: str) -> bytes:
    """Print Megatron-LM's lines of steps of 1.6 s, each with timers after it."""
    lines = [
        f" iteration {10 * n:8d}/ 600 | consumed samples: {n * 2560:12d} | elapsed time per iteration "
        f"(ms): 160{n % 7}.2 | learning rate: 2.9E-04 | lm loss: 8.9{n:02}E+00 |\n{text}"
        for n in range(1, 61)
    ]
    return ("\n".join(lines) + "\n").encode()


@pytest.mark.parametrize("name", STAGED)
def test_timers_are_stages(name: str) -> None:
    staged = STAGED[name]
    stages = read(with_timers(staged.text)).log.facts["stages"]
    assert stages["ms"] == pytest.approx(staged.ms, abs=1)
    assert (stages["by"], stages["tables"]) == (staged.by, 60)
    spread = stages["spread"]
    assert spread == (
        {"timer": "backward-compute", "least_ms": 600.25, "most_ms": 810.25}
        if name in ("a table", "passes of different ranks")
        else None
    )


def test_stages_in_lines_about_steps_are_read() -> None:
    log = read(
        of_steps(
            lambda n, s, end: (
                f"{at(end)} step {n} loss 2.{n:04} time {s:.4f} data {0.2 * s:.4f} fwd {0.3 * s:.4f} "
                f"bwd {0.4 * s:.4f} opt {0.06 * s:.4f}"
            )
        )
    )
    stages = log.log.facts["stages"]
    assert stages["ms"] == pytest.approx({"input": 100, "compute": 350, "other": 30}, rel=0.02)
    assert stages["by"] == "the rank that prints"


@pytest.mark.parametrize("timers", [{**V2, "backward-compute": 1800}, {"optimizer": 60}])
def test_timers_that_do_not_add_up_are_no_stages(timers: dict[str, int]) -> None:
    log = read(with_timers(in_line(timers)))
    assert "stages" not in log.log.facts
    notes = " ".join(problem.what for problem in log.problems)
    assert ("add up to 2,361 ms, and a step takes 1,603 ms" in notes) == (len(timers) > 1)


# Bars


def bar(n: int, total: int, s: float, label: str = "") -> str:
    minutes, seconds = divmod(int(n * s), 60)
    pace = f"{s:.2f}s/it" if s > 1 else f"{1 / s:.2f}it/s"
    share = f"{label}{100 * n // total:3}%|████▎     |"
    return f"{share} {n}/{total} [{minutes:02}:{seconds:02}<09:59, {pace}]"


class Screen:
    """Draws bars as tqdm does, under a clock of its own."""

    def __init__(self) -> None:
        self.text, self.now, self._chance = "", 1000.0, random.Random(4)

    def step(self, seconds: float) -> None:
        self.now += seconds * self._chance.uniform(0.97, 1.03)

    def draw(
        self,
        n: int,
        total: int | None,
        *,
        began: float = 1000.0,
        pace: float = 1.0,
        label: str = "",
        unit: str = "it",
        after: str = "",
        end: str = "\r",
    ) -> None:
        """Draw a state of a bar that began at a time, with its seconds per step."""
        elapsed = int(self.now - began)
        clock = f"{elapsed // 60 % 60:02}:{elapsed % 60:02}"
        clock = f"{elapsed // 3600}:{clock}" if elapsed >= 3600 else clock
        drawn = f"{pace:5.2f}s/{unit}" if pace > 1 else f"{1 / pace:5.2f}{unit}/s"
        count = f"{n}/{total}" if total else f"{n}{unit}"
        share = f"{100 * n / total:3.0f}%|{'█' * (10 * n // total):10}| " if total else ""
        left = "<09:59" if total else ""
        self.text += f"{label}{share}{count} [{clock}{left}, {drawn}{after}]{end}"

    def run(self, total: int, seconds: float, first: int = 1, last: int = 0, **how: object) -> None:
        """Draw a bar from its first to its last step."""
        began = self.now
        for n in range(first, (last or total) + 1):
            self.step(seconds)
            self.draw(n, total, began=began, pace=seconds, **how)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Drawn:
    """What a training draws."""

    draw: Callable[[Screen], None]
    #: Milliseconds of a step, and the number of steps.
    ms: float
    steps: int
    epochs: int = 1
    ranks: int = 1
    size: int | None = None
    data_ms: float | None = None
    note: str = ""
    #: The time of evaluations between its steps, seconds.
    evaluated_s: float = 0.0


def _epochs_and_steps(screen: Screen) -> None:
    screen.text += "training\n"
    for epoch in range(3):
        screen.run(120, 0.5)
        screen.draw(epoch + 1, 3, pace=60, end="\x1b[A\r")


def _with_evaluations(screen: Screen) -> None:
    began = screen.now
    screen.text += "***** Running training *****\n"
    for n in range(1, 201):
        screen.step(2)
        screen.draw(n, 200, began=began, pace=2)
        if n % 50 == 0:
            screen.text += (
                "\n{'loss': 2.1, 'epoch': 0.1}\n***** Running Evaluation *****\n  Batch size = 8\n"
            )
            screen.run(400, 0.25)


def _restarted(screen: Screen) -> None:
    screen.run(400, 2, last=350, label="train ")
    screen.text += "\nKilled\n  0%|          | 300/400 [00:00<?, ?it/s]\r"
    screen.run(400, 2, first=301, label="train ")


def _trained_again(screen: Screen) -> None:
    screen.run(400, 2, last=350, label="train ")
    screen.run(400, 2, label="train ")


def _ranks_with_labels(screen: Screen) -> None:
    for n in range(1, 201):
        screen.step(0.8)
        for rank in (2, 0, 3, 1):
            screen.draw(n, 200, pace=0.8, label=f"[rank {rank}] Epoch 0: ")


def _ranks_of_a_launcher(screen: Screen) -> None:
    screen.text += "training\n"
    for n in range(1, 201):
        screen.step(0.8)
        for rank in range(4):
            screen.text += f"[1,{rank}]<stderr>:\r"
            screen.draw(n, 200, pace=0.8, end="")


def _ranks_without_labels(screen: Screen) -> None:
    screen.text += "rank 0 of 4\n"
    began, order = screen.now, random.Random(8)
    for n in range(1, 201):
        screen.step(0.8)
        for rank in order.sample(range(4), 4):
            screen.draw(n, 200, began=began - 2 * rank, pace=0.8 + rank / 100, label="train ")
    for rank in range(4):
        screen.draw(200, 200, began=began - 2 * rank, pace=0.8, label="train ")


def _drawn_again(screen: Screen) -> None:
    for n in range(1, 201):
        screen.step(0.8)
        for loss in ("", ", loss=2.1", ", loss=2.1"):
            screen.draw(n, 200, pace=0.8, label="train ", after=loss)


def _cut(screen: Screen) -> None:
    began = screen.now
    for n in range(1, 201):
        screen.step(0.8)
        screen.draw(n, 200, began=began, pace=0.8, label="train ")
        if n % 40 == 20:
            place = len(screen.text) - 7 * (n // 40 + 1)
            screen.text = f"{screen.text[:place]}WARNING: 3 of [4]\n{screen.text[place:]}"


def _rich(screen: Screen) -> None:
    for epoch in range(2):
        for n in range(1, 101):
            screen.step(0.8)
            elapsed = timedelta(seconds=int(0.8 * n))
            screen.text += (
                f"\x1b[2KEpoch {epoch}/1 \x1b[35m━━━╸━━━\x1b[0m {n}/100 "
                f"\x1b[2m{elapsed} • 0:00:09\x1b[0m \x1b[2;4m1.25it/s\x1b[0m \x1b[3mloss: 0.2\x1b[0m\r"
            )


def _ultralytics(screen: Screen) -> None:
    header = "      Epoch    GPU_mem   box_loss   cls_loss  Instances       Size\n"

    def bar(label: str, n: int, total: int, pace: float) -> str:
        seconds, left = n * pace, (total - n) * pace
        took = f"{seconds:.1f}s" if seconds < 60 else f"{seconds // 60:.0f}:{int(seconds) % 60:02}"
        rest = f"<{left:.1f}s" if n < total else ""
        return f"\r\x1b[K{label}: {100 * n // total}% ━━╸─── {n}/{total} {1 / pace:.1f}it/s {took}{rest}"

    for epoch in (1, 2):
        screen.text += header
        label = f"      {epoch}/2      2.31G      1.561      5.701        213        640"
        screen.text += "".join(bar(label, n, 100, 0.8) for n in range(1, 101)) + "\n"
        label = "                 Class     Images  Instances      Box(P          R      mAP50"
        screen.text += "".join(bar(label, n, 900, 0.2) for n in range(1, 901)) + "\n"


def _tokens_first(screen: Screen) -> None:
    screen.run(3000, 0.2, label="Tokenizing train dataset: ")
    screen.run(200, 0.8, label="loss 1.25e-05, Epoch 1: ")


def _with_losses(screen: Screen) -> None:
    for n in range(1, 401):
        screen.step(2.31)
        screen.draw(n, 400, pace=2.31, end="\n{'loss': 2.5}\n" if n % 20 == 0 else "\r")


def _nested(screen: Screen) -> None:
    for n in (1, 2, 3):
        screen.run(100, 0.7, label="Batches: ")
        screen.draw(n, 3, pace=70, label="Epochs: ")


def _without_total(screen: Screen) -> None:
    screen.text += "training\n"
    for n in range(1, 201):
        screen.step(35)
        screen.draw(n, None, pace=35)


def _of_different_lengths(screen: Screen) -> None:
    for epoch, steps in enumerate((203, 200, 197)):
        screen.run(steps, 0.6, label=f"Epoch {epoch}: ")


def _validated(screen: Screen) -> None:
    for epoch in range(2):
        screen.run(100, 0.7, label=f"Epoch {epoch}: ")
        screen.run(900, 0.2, label="Validating: ")


def _slowly_validated(screen: Screen) -> None:
    for epoch in range(2):
        screen.run(20, 100, label=f"Epoch {epoch}: ")
        screen.run(10, 120, label="Validating: ")


def _ends_after_an_evaluation(screen: Screen) -> None:
    began = screen.now
    screen.run(200, 2, label="train ")
    screen.step(130)
    screen.draw(201, None, began=began, pace=2.6, label="train ")


def _beyond_totals(screen: Screen) -> None:
    for epoch in range(4):
        began = screen.now
        for n in range(1, 60):
            # After the first, steps are drawn two by two.
            screen.now += 16 if n == 1 else 32 * (1 - n % 2)
            total = 54 if n < 55 else None
            screen.draw(n, total, began=began, pace=16, label=f"Epoch {epoch}: ")


def _two_without_labels(screen: Screen, named: bool = True) -> None:
    for epoch in range(4):
        screen.run(60, 0.7)
        screen.text += f"\nEpoch {epoch} training loss: 2.1\n" if named else "\n"
        screen.run(60, 0.2)
        screen.text += (
            f"\nEpoch {epoch} test loss: 2.3\n" if named else f"\nEpoch {epoch}: loss 2\n"
        )


def _counting_evaluations(
    screen: Screen,
    *,
    steps: int = 100,
    parts: int = 1,
    every: int = 1,
    refresh: int = 1,
    batches: int = 160,
    counts: bool = True,
) -> None:
    """Draw three epochs, and evaluations that the bar of their steps counts, too, or does not."""
    for epoch in range(3):
        evaluates = (epoch + 1) % every == 0
        total = steps + (parts * batches if evaluates and counts else 0)
        began, done = screen.now, 0
        for part in range(parts * 2):
            shown, is_training = screen.now, part % 2 == 0
            for batch in range(1, (steps // parts if is_training else evaluates * batches) + 1):
                screen.step(0.7 if is_training else 0.2)
                if not is_training and (batch % refresh == 0 or batch == batches):
                    screen.draw(batch, batches, began=shown, pace=0.2, label="Validating: ")
                done += is_training or counts
                if done % refresh == 0 or done == total:
                    pace = (screen.now - began) / done
                    screen.draw(done, total, began=began, pace=pace, label=f"Epoch {epoch}: ")


WAITS = ", loss=2.1, data=0.200s, v_num=3", ", step_time=800, data_time=200", ", data=0.2"

DRAWN = {
    "dictionaries between": Drawn(_with_losses, 2310, 400),
    "nested without labels": Drawn(_epochs_and_steps, 500, 360, epochs=3),
    "nested": Drawn(_nested, 700, 300, epochs=3),
    "no total": Drawn(_without_total, 35_000, 200),
    "days": Drawn(lambda screen: screen.run(500, 400, label="train "), 400_000, 500),
    "batches": Drawn(lambda screen: screen.run(200, 0.9, label="train ", unit="batch"), 900, 200),
    "a wait with a unit": Drawn(
        lambda screen: screen.run(200, 0.8, label="train ", after=WAITS[0]), 800, 200, data_ms=200
    ),
    "a wait beside a step time": Drawn(
        lambda screen: screen.run(200, 0.8, label="train ", after=WAITS[1]), 800, 200, data_ms=200
    ),
    "a wait whose unit is unknown": Drawn(
        lambda screen: screen.run(200, 0.8, label="train ", after=WAITS[2]), 800, 200
    ),
    "evaluations in between": Drawn(_with_evaluations, 2000, 200, evaluated_s=300),
    "evaluations that the bar counts": Drawn(
        _counting_evaluations, 700, 300, epochs=3, evaluated_s=64
    ),
    "evaluations that a bar counts in every second epoch": Drawn(
        lambda screen: _counting_evaluations(screen, every=2), 700, 300, epochs=3, evaluated_s=32
    ),
    "evaluations that a bar counts within epochs": Drawn(
        lambda screen: _counting_evaluations(screen, steps=150, parts=3),
        700,
        450,
        epochs=3,
        evaluated_s=256,
    ),
    "evaluations that a bar counts and seldom shows": Drawn(
        lambda screen: _counting_evaluations(screen, refresh=20), 700, 300, epochs=3, evaluated_s=64
    ),
    "evaluations that a bar counts and shows at their end": Drawn(
        lambda screen: _counting_evaluations(screen, refresh=20, batches=20),
        700,
        300,
        epochs=3,
        evaluated_s=8,
    ),
    "evaluations that a bar does not count": Drawn(
        lambda screen: _counting_evaluations(screen, counts=False),
        700,
        300,
        epochs=3,
        evaluated_s=64,
    ),
    "restarted from a checkpoint": Drawn(
        _restarted, 2000, 400, note="50 steps were trained twice, after 1 restart"
    ),
    "restarted": Drawn(
        _trained_again, 2000, 400, note="350 steps were trained twice, after 1 restart"
    ),
    "resumed": Drawn(lambda screen: screen.run(900, 2, first=501, label="train "), 2000, 900),
    "epochs of different lengths": Drawn(_of_different_lengths, 600, 600, epochs=3),
    "validations": Drawn(_validated, 700, 200, epochs=2, evaluated_s=180),
    "validations after slow steps": Drawn(
        _slowly_validated, 100_000, 40, epochs=2, evaluated_s=1200
    ),
    "a number beyond the last step": Drawn(_ends_after_an_evaluation, 2000, 200),
    "evaluations of as many batches, without labels": Drawn(
        _two_without_labels, 700, 240, epochs=4, evaluated_s=36
    ),
    "other work that takes longer": Drawn(_tokens_first, 800, 200),
    "ranks in labels": Drawn(_ranks_with_labels, 800, 200, ranks=4),
    "ranks of a launcher": Drawn(_ranks_of_a_launcher, 800, 200, ranks=4),
    "ranks without labels": Drawn(_ranks_without_labels, 800, 200, size=4),
    "drawn again by postfixes": Drawn(_drawn_again, 800, 200),
    "cut by other output": Drawn(_cut, 800, 200),
    "Rich": Drawn(_rich, 800, 200, epochs=2),
    "Ultralytics": Drawn(_ultralytics, 800, 200, epochs=2),
}


@pytest.mark.parametrize("name", DRAWN)
def test_bars_are_read_in_every_state(name: str) -> None:
    drawn, screen = DRAWN[name], Screen()
    drawn.draw(screen)
    log = read(screen.text.encode())
    steps, ms = windows_of(log)
    assert np.average(ms, weights=steps) == pytest.approx(drawn.ms, rel=0.03)
    assert arrow.numbers(log.intervals["step"]).max() == drawn.steps
    assert len({*log.intervals["epoch"].to_pylist()}) == drawn.epochs
    assert (len(log.more) + 1, log.log.facts.get("size")) == (
        drawn.ranks,
        drawn.ranks if drawn.ranks > 1 else drawn.size,
    )
    data_ms = log.log.facts.get("data_ms")
    assert data_ms == (drawn.data_ms and pytest.approx(drawn.data_ms, rel=0.02))
    assert drawn.note in " ".join(problem.what for problem in log.problems)
    assert "the bar's pace agrees with its elapsed times" in log.log.facts["confirmed"]
    begin, end = (arrow.numbers(log.intervals[name]) for name in ("begin", "end"))
    last, steps = arrow.numbers(log.intervals["step"]), arrow.numbers(log.intervals["steps"])
    # Steps between two windows are in none.
    between = (last - steps)[1:] - last[:-1]
    paused_s = (begin[1:] - end[:-1]) / 1e9 - between * drawn.ms / 1e3
    if len(log.more) == 0 and not drawn.note:
        assert paused_s.sum() == pytest.approx(drawn.evaluated_s, abs=8)
    assert drawn.evaluated_s == 0 or "steps_after_validation" in log.log.facts


def test_numbers_in_thousands_are_read() -> None:
    states = [
        f"train: {n / 50:3.0f}%|█| {n / 1000:.3g}k/5.00k "
        f"[{n // 300:02}:{n // 5 % 60:02}<1:00, 5.00it/s]"
        for n in range(1000, 5000)
    ]
    steps, ms = windows_of(read("\r".join(states).encode()))
    assert np.average(ms, weights=steps) == pytest.approx(200, rel=0.02)


def test_bars_of_several_ranks_are_one_job() -> None:
    states = [
        f"\r{bar(n, 72, 0.46, 'Iteration: ')}"
        for _ in range(2)
        for n in range(1, 73)
        for _ in range(8)
    ]
    log = read(("training on rank 0 of 8\ntraining on rank 1 of 8\n" + "".join(states)).encode())
    steps, ms = windows_of(log)
    assert np.average(ms, weights=steps) == pytest.approx(460, rel=0.03)
    assert (log.log.facts["size"], steps.sum()) == (8, 144)
    assert {*log.intervals["epoch"].to_pylist()} == {0, 1}


def test_steps_beyond_the_total_of_a_bar_count() -> None:
    screen = Screen()
    _beyond_totals(screen)
    log = read(screen.text.encode())
    steps, ms = windows_of(log)
    assert np.average(ms, weights=steps) == pytest.approx(16_000, rel=0.03)
    assert arrow.numbers(log.intervals["step"]).max() == 4 * 59


def test_bars_of_two_kinds_that_nothing_names_are_not_read() -> None:
    screen = Screen()
    _two_without_labels(screen, named=False)
    assert not PARSER.recognises("run.log", screen.text.encode())


def test_states_of_ranks_that_cannot_be_told_apart_are_not_read() -> None:
    screen, chance = Screen(), random.Random(9)
    for n in range(1, 401):
        screen.step(0.8)
        for rank in range(4):
            if chance.random() < 0.5:
                screen.draw(n, 400, began=1000 - 9 * rank, pace=0.8, label="train ")
    assert not PARSER.recognises("run.log", screen.text.encode())


def test_the_first_of_two_bars_without_labels_is_unclear_if_it_takes_less_time() -> None:
    screen = Screen()
    for epoch in range(4):
        screen.text += f"\n--- epoch {epoch} ---\n"
        screen.run(40, 0.5)
        for _ in range(3):
            # Evaluations with batches of one.
            screen.run(400, 0.05)
    data = screen.text.encode()
    assert not PARSER.recognises("run.log", data)
    log = PARSER.parse("run.log", data)
    steps, ms = windows_of(log)
    assert np.average(ms, weights=steps) == pytest.approx(500, rel=0.05)
    assert any("counts to 40 is read, and the bar" in problem.what for problem in log.problems)


def test_times_are_right_for_bars_that_are_drawn_seldom_and_round_down() -> None:
    screen = Screen()
    for epoch in range(3):
        began = screen.now
        for n in range(1, 401):
            screen.step(0.0311)
            if n % 13 == 0 or n == 400:
                screen.draw(n, 400, began=began, pace=0.0311, label=f"Epoch {epoch}: ")
    steps, ms = windows_of(read(screen.text.encode()))
    assert np.average(ms, weights=steps) == pytest.approx(31.1, rel=0.02)


def test_a_bar_of_epochs_gives_their_times() -> None:
    screen = Screen()
    screen.run(20, 83, label="Epochs: ")
    log = read(b"loss\n" + screen.text.encode())
    took = arrow.numbers(log.intervals["end"]) - arrow.numbers(log.intervals["begin"])
    assert {*log.intervals["kind"].to_pylist()} == {"epoch"}
    assert np.median(took) / 1e9 == pytest.approx(83, rel=0.03)


def test_a_note_names_the_bar_that_is_read_if_two_may_be_a_training() -> None:
    screen = Screen()
    screen.run(300, 2, label="train generator: ")
    screen.run(250, 2, label="train critic: ")
    (problem,) = read(b"loss\n" + screen.text.encode()).problems
    assert problem.what == (
        'the bar labelled "train generator" that counts to 300 is read, and '
        'the bar labelled "train critic" that counts to 250 is not'
    )


# Bars of what a diffusion model draws after each epoch, and of its validation.
_NO_TRAINING = (
    "Sampling t",
    "DDIM Sampler",
    "Plotting: Switch EMA, DDIM Sampler",
    "100 steps denoise",
)


@pytest.mark.parametrize("label", [*_NO_TRAINING, "Validation", ""])
def test_a_bar_with_a_loss_is_the_training_beside_one_that_takes_longer(label: str) -> None:
    screen = Screen()
    for epoch in range(4):
        screen.run(400, 0.08, after=", loss=0.13" if not label or epoch % 2 else "")
        screen.text += "\n"
        screen.run(300, 0.2, label=label and f"{label}: ")
        screen.text += "\n"
    steps, ms = windows_of(read(b"epoch 0\n" + screen.text.encode()))
    assert np.average(ms, weights=steps) == pytest.approx(80, rel=0.03)


def test_evaluations_between_epochs_of_one_line_each_have_their_name(tmp_path: Path) -> None:
    screen = Screen()
    for epoch in range(4):
        screen.run(500, 0.08, label=f"Epoch {epoch}: ")
        screen.text += "\n"
        screen.run(300, 0.2, label="Validation: ")
        screen.text += "\n"
    (tmp_path / "train.log").write_text("\n" + screen.text)
    (run,) = read_place(str(tmp_path / "train.log"))
    printed = analyse(run).printed
    assert printed is not None
    assert [pauses.kind for pauses in printed.pauses] == ["validation"]


def test_two_bars_without_words_are_not_read() -> None:
    screen = Screen()
    for _ in range(4):
        screen.run(400, 0.08)
        screen.text += "\nepoch 0 loss 0.4\n"
        screen.run(300, 0.2)
        screen.text += "\nepoch 0 loss 0.5\n"
    assert not PARSER.recognises("run.log", screen.text.encode())


@pytest.mark.parametrize("apart_us", [0, 1, 40])
def test_lines_of_a_buffer_are_no_fast_steps(tmp_path: Path, apart_us: int) -> None:
    lines = []
    for step in range(10, 6001, 10):
        written = -(step // -500) * 500
        moment = BEGAN + timedelta(
            seconds=0.02 * written, microseconds=apart_us * ((step - 1) % 500)
        )
        lines.append(f"{moment:%Y-%m-%d %H:%M:%S.%f} iteration {step} loss {9 / step:.4f}")
    (tmp_path / "train.log").write_text("\n".join(lines))
    (run,) = read_place(str(tmp_path / "train.log"))
    analysis = analyse(run)
    assert analysis.printed is not None
    assert analysis.step is not None
    assert analysis.step.p50 == pytest.approx(20, rel=0.02)
    assert analysis.step.mean == pytest.approx(20, rel=0.02)
    assert dict(printed_figures(analysis.printed))["Lines"].endswith("to the microsecond")


OTHER_BARS = {
    **{
        label: {"label": f"{label}: "}
        for label in (
            *("Downloading shards", "Evaluating", "Map", "Loading", "Preloading the dataset"),
            "Searching index",
        )
    },
    "no training around it": {},
    "images": {"label": "train ", "unit": "img"},
    "examples without a label": {"unit": "ex"},
    "megabytes": {"label": "model ", "unit": "MB"},
    "an epoch or its steps": {"label": "Epoch: "},
    "a few seconds": {"label": "train ", "unit": "batch", "seconds": 0.15},
}


@pytest.mark.parametrize("name", OTHER_BARS)
def test_bars_of_other_work_are_no_training(name: str) -> None:
    screen = Screen()
    how = {"seconds": 3.4, **OTHER_BARS[name]}
    screen.run(100, **how)  # type: ignore[arg-type]
    text = f"{screen.text}\n{'.' * 2000}\nEpoch 1 loss 2.5\n"
    assert not PARSER.recognises("run.log", text.encode())


@pytest.mark.parametrize("kind", ["falls", "labels", "totals", "ranks"])
def test_work_grows_with_the_states_of_bars_at_most(kind: str) -> None:
    chance = random.Random(2)

    def states(count: int) -> bytes:
        screen = Screen()
        for n in range(count):
            place = chance.randrange(1, 200) if kind == "falls" else n % 90 + 1
            label = "".join(chance.choices("abcdef", k=3)) if kind == "labels" else "epoch "
            label = f"[rank {n % 5000}] " if kind == "ranks" else label
            screen.draw(place, 200 + n % 50 if kind == "totals" else 200, label=label)
        return b"loss\n" + screen.text.encode()

    once, twice = (calls_of(lambda count=count: checked(states(count))) for count in (1000, 2000))
    assert twice < 3 * once + 10_000


# Other text


def of_lines(line: Callable[[int, random.Random], str], count: int = 300) -> str:
    chance = random.Random(3)
    return "\n".join(line(number, chance) for number in range(count)) + "\n"


OTHER_TEXTS = {
    "pip": of_lines(
        lambda n, chance: (
            f"Collecting package-{n}==1.{n}.0\n  Downloading package_{n}-1.{n}.0-py3-none-any.whl "
            f"({chance.uniform(1, 90):.1f} MB)\n     90.0/90.0 MB 12.{n} MB/s eta 0:00:00"
        )
    ),
    "pip with timestamps": of_lines(
        lambda n, _: (
            f"2026-11-21T02:{n // 60:02}:{n % 60:02},123 Found link a{n}-1.{n}.0.tar.gz, version: {n}"
        )
    ),
    "source code": Path(__file__).read_text(),
    "dmesg": of_lines(lambda n, _: f"[{n * 0.37:12.6f}] usb 1-{n % 4}: new USB device number {n}"),
    "sshd": of_lines(
        lambda n, chance: (
            f"Nov 21 02:{n // 60:02}:{n % 60:02} host sshd[{chance.randrange(9999)}]: Failed login "
            f"of root from 10.0.{n % 256}.1 port {chance.randrange(9999)} ssh2"
        )
    ),
    "access log": of_lines(
        lambda n, chance: (
            f'10.0.0.{n % 9} - - [21/Nov/2026:02:{n // 60:02}:{n % 60:02} +0000] "GET /item/{n}" '
            f"200 {chance.randrange(9999)} {chance.uniform(0, 1):.3f}"
        )
    ),
    "ninja": of_lines(lambda n, _: f"[{n}/512] Building CXX object src/foo{n}.cc.o"),
    "table": of_lines(
        lambda n, chance: f"{n:4} | {chance.uniform(0, 1):.4f} | {n % 7}.5 | name{n}"
    ),
    "book": of_lines(
        lambda n, _: (
            f"Chapter {n}\n\nIt was the {n % 30} of May in 18{n % 90 + 10}, and he took {n % 17} steps. "
            f"He waited for {n % 5} seconds."
        )
    ),
    "NCCL": of_lines(
        lambda n, _: f"node{n % 4}:12:34 [{n % 8}] NCCL INFO Channel {n:02}/32 :    0   1"
    ),
    "SQL": of_lines(
        lambda n, chance: (
            f"2026-11-21 02:{n // 60:02}:{n % 60:02}.123 UTC [{chance.randrange(9999)}] LOG:  duration: "
            f"{chance.uniform(0, 900):.3f} ms  statement: SELECT {n}"
        )
    ),
    "a few lines": "step 1 took 2 s\nstep 2 took 2 s\nstep 3 took 2 s\n",
    "one line": "step 1 took 2 s",
    "nothing": "",
}


@pytest.mark.parametrize("name", OTHER_TEXTS)
def test_other_text_is_not_read_and_gets_one_sentence(name: str) -> None:
    reason = best_evidence(OTHER_TEXTS[name].encode())
    assert isinstance(reason, str)
    assert "\n" not in reason
    assert not PARSER.recognises("run.log", OTHER_TEXTS[name].encode())


# Any input


WORDS = (
    *(
        "step ",
        "step=",
        "epoch ",
        "Epoch: [",
        "][",
        "/500]",
        "time ",
        "time: ",
        " s",
        "ms",
        "s/it",
        "rank ",
    ),
    *(
        "samples/sec",
        "loss ",
        " ",
        "  ",
        "\t",
        "{",
        "}",
        "{}",
        "{step}",
        "'",
        '"',
        "\\",
        "%",
        "\x1b[32m",
    ),
    *(
        "\0",
        "é",
        "\ufffd",
        "\r",
        "\b",
        "\n",
        "\n",
        "[0] ",
        "[1,0]<stdout>:",
        "0: ",
        "0x7f",
        "nan",
        "-",
    ),
    *(
        "2026-11-21 02:28:01",
        "I1121 02:28:01.5 ",
        "Nov 21 02:28:01",
        "1790000000.5",
        "1790000000123",
    ),
    *("1e-5", "1,000", "1.2.3"),
    *("train 12%|", "3/40 [00:07<01:00, 2.30s/it]", "40/40 [01:00:12<?, 0.00s/it, data=0.1s]"),
    *("12it [00:12, 1.00it/s]", "2/9 0:00:45 • 0:05:33 2.64it/s", "\x1b[A", "time (ms) | fwd: 1.0"),
)
pieces = st.lists(st.one_of(st.sampled_from(WORDS), st.integers(0, 10**14).map(str)), max_size=12)


def checked(data: bytes) -> None:
    """Read lines about steps: if there are any, there are times."""
    answer = proposal_for("run.log", data)
    if isinstance(answer, Proposal):
        assert answer.lines > 0
        assert answer.step_ms is not None or answer.epoch_s is not None
    PARSER.recognises("run.log", data)


@pytest.mark.broad
@given(st.lists(pieces.map("".join), max_size=8), st.integers(1, 20), st.data())
def test_lines_like_a_trainers_never_break_it(
    lines: list[str], repeats: int, data: st.DataObject
) -> None:
    text = "\n".join(
        line.replace("step ", f"step {repeat} ") for repeat in range(repeats) for line in lines
    )
    cut = data.draw(st.integers(0, len(text)))
    checked(text[cut:].encode())
    checked(text[:cut].encode())


@pytest.mark.broad
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["train", "Epoch 1:", "Validating:"]),
            st.integers(0, 9),
            st.integers(-2, 99),
            st.sampled_from(["0.00s/it", "2.00s/it"]),
        ),
        min_size=4,
        max_size=40,
    ),
    st.sampled_from(["", ", time=2, data=1", ", data=0.1s"]),
)
def test_states_in_any_order_never_break_it(
    states: list[tuple[str, int, int, str]], after: str
) -> None:
    drawn = [
        f"{label} {n}/9 [{max(s, 0) // 60:02}:{max(s, 0) % 60:02}<00:01, {pace}{after}]"
        for label, n, s, pace in states
    ]
    checked("\r".join(drawn).encode())


def test_evaluations_that_are_longer_than_a_bar_are_no_part_of_it() -> None:
    states = (
        "train 1",
        "train 3",
        "train 6",
        "Validating: 8",
        "Validating: 2",
        "Validating: 4",
        "train 9",
        "Validating: 9",
    )
    seconds = (3, 9, 19, 41, 81, 79, 24, 7)
    drawn = [
        f"{state}/9 [{at // 60:02}:{at % 60:02}<00:01, 2.00s/it]"
        for state, at in zip(states, seconds, strict=True)
    ]
    output = without_evaluations(bar_states("\r".join(drawn).encode()))
    assert set(output.states.total.tolist()) == {9.0}
    checked("\r".join(drawn).encode())


@given(st.binary(max_size=2000))
def test_bytes_never_break_it(data: bytes) -> None:
    checked(data)
    checked(data * 5)


LONG = {
    "one number": b"9" * SAMPLE_BYTES,
    "commas": b"1,234," * 100_000,
    "one line": b"step 1 " * 100_000,
    "clocks": b"00:00:00 " * 100_000,
    "timestamps": b"2026-11-21 02:28:01 " * 50_000,
    "short lines": b"1\n" * 50_000,
    "many kinds of lines": b"".join(b"epoch %d x%d took 3 s\n" % (n, n) for n in range(6000)),
    "bars": b"1/2 [00:00<00:00, 1s/it]" * 20_000,
}


@pytest.mark.broad
@pytest.mark.parametrize("name", LONG)
def test_work_grows_with_the_file_at_most(name: str) -> None:
    data = LONG[name]
    checked(data)
    once = calls_of(lambda: best_evidence(data))
    twice = calls_of(lambda: best_evidence(data + b"\n" + data))
    assert twice < 3 * once + 10_000


def test_a_short_training_is_found_anywhere_in_a_long_file() -> None:
    noise = b"".join(b"node:%d NCCL INFO channel %d\n" % (n, n) for n in range(60_000))
    assert len(noise) > 2 * SAMPLE_BYTES
    data = noise[: len(noise) // 3] + printed(SAMPLES["nanoGPT"]) + noise[len(noise) // 3 :]
    assert PARSER.recognises("run.log", data)


def test_an_option_that_overrides_a_printed_configuration_counts() -> None:
    settings = b"batch_size = 64\nOverriding: block_size = 64\nOverriding: batch_size = 12\n"
    log = read(settings + printed(SAMPLES["nanoGPT"]))
    assert log.log.facts["batch_size"] == 12


def test_parts_of_steps_are_no_ranks() -> None:
    lines = [
        f"{at(0.25 * n)} INFO step {n // 4} micro_step {n % 4} loss 2.{n % 9}" for n in range(400)
    ]
    log = read("\n".join(lines).encode())
    assert log.log.facts["step_ms"] == pytest.approx(1000, rel=0.01)
    assert not log.problems


@pytest.mark.parametrize(
    "start", ["Using device: cuda, batch size: 32", "step: 0, loss: 2.5, steps/sec 3.2528"]
)
def test_a_first_line_with_commas_is_no_table(start: str) -> None:
    lines = [
        start,
        *(f"{at(n)} step: {n}, loss: 2.{n % 9}, step_time: 1.0{n % 7}" for n in range(1, 99)),
    ]
    log = read("\n".join(lines).encode())
    assert log.log.facts["step_ms"] == pytest.approx(1000, rel=0.05)


# Readings that other figures of a log contradict, or confirm


def test_long_lines_of_reinforcement_learning_are_read() -> None:
    """A line has the time of its step behind a thousand characters, and the parts that add up to it."""
    rng = random.Random(3)
    lines = []
    for step in range(1, 13):
        parts = {"gen": rng.uniform(20, 30), "ref": 0.9, "update_actor": rng.uniform(2, 4)}
        figures = " - ".join(f"critic/score/part_{n}:{rng.uniform(0, 9):.3f}" for n in range(50))
        timed = " - ".join(f"timing_s/{name}:{took:.3f}" for name, took in parts.items())
        total = sum(parts.values())
        lines.append(
            f"step:{step} - actor/pg_loss:0.1 - {figures} - {timed} - timing_s/step:{total:.3f}"
        )
    log = read("\n".join(lines).encode())
    _, ms = windows_of(log)
    assert np.mean(ms) == pytest.approx(28_900, rel=0.1)
    assert log.log.facts["confirmed"] == "the times of its parts add up to them"


def test_a_counter_that_begins_with_a_batch_counts_samples() -> None:
    rng = random.Random(5)
    lines = [
        f"Epoch {epoch}[{first}/5011]: loss:0.7, lr:0.01, batch time:{rng.uniform(0.3, 0.32):.4f}"
        for epoch in range(1, 6)
        for first in range(16, 5011, 1600)
    ]
    log = PARSER.parse("run.log", "\n".join(lines).encode())
    steps, ms = windows_of(log)
    assert steps.sum() == 5 * 301
    assert np.median(ms) == pytest.approx(310, rel=0.02)


def test_a_counter_beside_the_step_of_an_epoch_is_no_step() -> None:
    lines = [
        f"{at(7.2 * n)} - INFO - iteration:{n * 100 // 29} step:{n * 100 % 29 + 1}/29, loss: 2.{n:04}"
        for n in range(1, 40)
    ]
    assert "goes on from line to line" in str(best_evidence("\n".join(lines).encode()))


def test_a_bar_counts_epochs_where_each_has_a_line() -> None:
    screen = Screen()
    for n in range(1, 41):
        screen.step(35)
        screen.draw(n, 40, pace=35)
    text = f"train loss\n{screen.text}\n" + "".join(
        f"Epoch {n}: validation accuracy 0.9\n" for n in range(40)
    )
    log = read(text.encode())
    assert {*log.intervals["kind"].to_pylist()} == {"epoch"}
    assert "window" in read(b"train loss\n" + screen.text.encode()).intervals["kind"].to_pylist()


def test_times_by_a_bar_are_as_precise_as_its_clock() -> None:
    screen = Screen()
    screen.run(1500, 0.27, label="train ")
    log = read(screen.text.encode())
    steps, _ = windows_of(log)
    facts = log.log.facts
    assert facts["window_precision_ms"] == pytest.approx(1000 / np.median(steps), rel=0.1)
    # The clock is read for all steps together.
    assert facts["step_precision_ms"] == pytest.approx(1000 / 1500, rel=0.1)


def test_a_closed_bar_has_the_pace_of_all_its_steps() -> None:
    screen = Screen()
    for epoch in range(30):
        began = screen.now
        screen.run(38, 0.26, label=f"Epoch {epoch}: ")
        pace = (screen.now - began) / 38
        screen.draw(38, 38, began=began, pace=pace, label=f"Epoch {epoch}: ", end="\n")
    steps, ms = windows_of(read(screen.text.encode()))
    assert np.average(ms, weights=steps) == pytest.approx(260, rel=0.01)


@pytest.mark.parametrize("confirms", [True, False], ids=["rates", "no rates"])
def test_throughput_needs_a_batch_that_the_log_confirms(tmp_path: Path, confirms: bool) -> None:
    lines = ["batch_size: 16"]
    for n in range(0, 500, 10):
        rate = f" speed {16 / STEP_S + n % 3 / 10:.1f} samples/s" if confirms else ""
        lines.append(f"{at(n * STEP_S)} step {n} loss 2.{n:04}{rate}")
    (tmp_path / "run.log").write_text("\n".join(lines))
    times = analyse(read_place(str(tmp_path))[0]).epoch_times
    assert times is not None
    expected = pytest.approx(16 / STEP_S, rel=0.02) if confirms else None
    assert times.samples_per_second_per_rank == expected


def test_only_a_command_that_reads_the_log_is_offered(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(
        "".join(f"Epoch {n}/100 [133.{n % 7}s] | Train Loss: 2.4\n" for n in range(1, 9))
    )
    with pytest.raises(NotFoundError, match=r"no two of its lines tell how long steps took$"):
        read_place(str(log))


def test_epochs_between_sparse_lines_are_as_uncertain_as_these_are_apart() -> None:
    lines = [
        f"{at(2.0 * n)} epoch {1 + n // 470} step {n} loss 2.{n:05}" for n in range(200, 4700, 200)
    ]
    log = read("\n".join(lines).encode())
    assert log.log.facts["epoch_precision_ms"] == pytest.approx(400_000)


def test_two_names_before_two_values_are_the_step_and_its_wait(tmp_path: Path) -> None:
    lines = [
        f"{at(0.8 * n)} INFO: [net..][epoch:{1 + n // 470:3d}, iter:{n:8,}, lr:(2.9e-05,)] "
        f"[eta: 2:37:00, time (data): 0.80{n // 200 % 7} (0.20{n // 200 % 5})] l_pix: 1.{n:05}e-02"
        for n in range(200, 4700, 200)
    ]
    (tmp_path / "run.log").write_text("\n".join(lines))
    analysis = analyse(read_place(str(tmp_path))[0])
    assert analysis.printed is not None
    assert analysis.printed.step.mean == pytest.approx(803, rel=0.01)
    assert analysis.printed.input_share is not None
    assert analysis.printed.input_share.value == pytest.approx(0.25, abs=0.01)
    # An epoch may end anywhere within 160 s, of which it takes 376.
    assert analysis.epoch_times is not None
    assert analysis.epoch_times.precision_s == pytest.approx(160 / 7, rel=0.2)
    table = epochs_table(analysis)
    assert table is not None
    assert len(table.rows) < len(analysis.epoch_times.epochs)


def test_a_pause_that_is_much_longer_than_others_of_its_kind_is_another(tmp_path: Path) -> None:
    lines, now = [], 0.0
    for n in range(0, 1000, 10):
        now += 10 * STEP_S
        if n % 100 == 0 and n:
            now += 3000 if n == 500 else 20
            lines.append("Evaluating on the validation set")
        lines.append(f"{at(now)} step {n} loss 2.{n:04}")
    (tmp_path / "run.log").write_text("\n".join(lines))
    printed = analyse(read_place(str(tmp_path))[0]).printed
    assert printed is not None
    pauses = {pause.kind: pause.seconds for pause in printed.pauses}
    assert pauses == {
        "validation": pytest.approx(8 * 20, rel=0.1),
        "unnamed": pytest.approx(3000, rel=0.02),
    }


def test_nothing_is_compared_across_starts_of_a_program(tmp_path: Path) -> None:
    lines, now = [], 0.0
    for first, last, step_s in ((0, 100, 0.5), (100, 250, 1.5), (250, 370, 0.5)):
        now += 86_400
        lines += START
        for n in range(first, last):
            now += 12 if n == first else step_s
            lines.append(f"{at(now)} step {n} loss 2.{n:04}")
    (tmp_path / "run.log").write_text("\n".join(lines))
    analysis = analyse(read_place(str(tmp_path))[0])
    assert analysis.printed is not None
    assert not analysis.changes
    assert not analysis.printed.pauses
    # The first step of each start takes long.
    assert analysis.printed.step.mean == pytest.approx(905, rel=0.02)
    assert "with the time between 3 starts" in job_total(analysis)


def test_without_timestamps_nothing_is_said_of_the_time_between_starts(tmp_path: Path) -> None:
    lines: list[str] = []
    for first, last in ((10, 200), (200, 500)):
        lines += ["batch_size: 64", *START]
        lines += [
            f"iter: {n}, batch_cost: 0.{40 + n // 10 % 3}, ips: {64 / (0.4 + n // 10 % 3 / 100):.4f}"
            for n in range(first, last, 10)
        ]
    (tmp_path / "run.log").write_text("\n".join(lines))
    (run,) = read_place(str(tmp_path), read_as="step-lines")
    assert run.fact("steps_after_restart")
    assert "starts" not in job_total(analyse(run))


@pytest.mark.parametrize("fast", [60, 600], ids=["a spell", "half of the steps"])
def test_steps_that_are_as_slow_as_usual_again_did_not_become_slower(
    tmp_path: Path, fast: int
) -> None:
    took = [0.22] * 600 + [0.06] * fast + [0.22] * 600
    ends = np.cumsum(took)
    lines = [f"{at(float(end))} step {n} loss 2.{n:04}" for n, end in enumerate(ends)]
    (tmp_path / "run.log").write_text("\n".join(lines))
    analysis = analyse(read_place(str(tmp_path))[0])
    assert len(analysis.changes) == 2
    assert analysis.printed is not None
    assert (analysis.printed.slowdown > 0.05) == (fast == 600)
    assert (analysis.bottleneck.cause == "changes") == (fast == 600)


def test_rates_of_trainings_with_unlike_batches_are_no_times_of_steps(tmp_path: Path) -> None:
    lines = []
    for batch, step_s in ((10, 0.28), (40, 2.7)):
        steps = 4000 // batch
        for epoch in range(4):
            lines += [
                f"INFO:root:Epoch[{epoch}] Batch [{n}]\tSpeed: {batch / step_s:.2f} samples/sec\tloss=2"
                for n in range(20, steps, 20)
            ]
            lines.append(f"INFO:root:Epoch[{epoch}] Time cost={steps * step_s:.3f}")
    (tmp_path / "run.log").write_text("\n".join(lines))
    (run,) = read_place(str(tmp_path))
    assert run.intervals["kind"].to_pylist() == ["epoch"] * 8
    assert "unlike batches" in " ".join(problem.what for problem in run.problems)
    assert analyse(run).epoch_times is not None


@pytest.mark.parametrize("between", ["E: {0} | A: 0.1\n", ""], ids=["lines between", "labels"])
def test_bars_of_which_only_the_ends_are_printed_are_read(between: str) -> None:
    screen = Screen()
    screen.text = "train loss 2\n"
    for epoch in range(12):
        began = screen.now
        for _ in range(782):
            screen.step(0.025)
        pace = (screen.now - began) / 782
        label = "" if between else f"Epoch {epoch}: "
        # It is drawn again when it is closed.
        screen.draw(782, 782, began=began, pace=pace, label=label)
        screen.draw(782, 782, began=began, pace=pace, label=label, end="\n")
        screen.text += between.format(epoch)
        screen.now += 5
    log = read(screen.text.encode())
    steps, ms = windows_of(log)
    assert steps.tolist() == [782] * 12
    assert np.mean(ms) == pytest.approx(25, rel=0.01)
    assert len({*log.intervals["epoch"].to_pylist()}) == 12


@pytest.mark.parametrize(
    ("before", "behind", "shows"),
    [
        ("Epoch {}", "acc 0.5", True),
        ("Test on epoch {}", "acc 0.5", False),
        ("-", "val acc 0.5", False),
    ],
)
def test_ends_of_bars_without_labels_are_of_what_the_lines_around_them_name(
    before: str, behind: str, shows: bool
) -> None:
    screen = Screen()
    screen.text = "train loss 2\n"
    for epoch in range(12):
        began = screen.now
        screen.now += 20.3
        screen.text += f"{before.format(epoch)}\n  0%|          | 0/500 [00:00<?, ?it/s]\n"
        screen.draw(500, 500, began=began, pace=20.3 / 500, end="\n")
        screen.text += f"{behind}\n"
    assert PARSER.recognises("run.log", screen.text.encode()) == shows


def test_evaluations_that_look_like_a_training_are_no_steps() -> None:
    lines, now = [], 0.0
    for epoch in range(5):
        for kind, count, step_s in (("TRAINING", 300, 0.2), ("EVALUATING", 100, 0.05)):
            for n in range(0, count, 10):
                now += 10 * step_s
                took = f"Time {step_s:.3f} ({step_s:.3f})\tData 0.001 (0.001)"
                lines.append(f"{at(now)} - INFO - {kind} - Epoch: [{epoch}][{n}/{count}]\t{took}")
    parser = recognise("train.log", "\n".join(lines).encode())
    assert parser is not None
    rows = parser.parse("train.log", "\n".join(lines).encode()).intervals.to_pylist()
    windows = [row for row in rows if row["kind"] == "window"]
    assert len(windows) in (5 * 29, 5 * 30)
    took = [(row["end"] - row["begin"]) / row["steps"] / 1e9 for row in windows]
    assert took == pytest.approx([0.2] * len(took), rel=0.02)


def test_warnings_that_quote_steps_are_no_lines_about_steps() -> None:
    lines = [
        f"wandb: WARNING (User provided step: {n} is less than current step: 125. Dropping entry: "
        f"{{'train/loss': 1.{n:04}, '_timestamp': {1704863944 + 4.07 * n:.6f}}})."
        for n in range(60)
    ]
    assert isinstance(best_evidence("\n".join(lines).encode()), str)


def test_what_only_the_start_of_a_log_confirms_is_read_if_it_is_asked_for(tmp_path: Path) -> None:
    lines, elapsed = [], 0.0
    for n in range(10, 12_000, 10):
        # A pace so far, and later one of something else.
        elapsed += 1.0 if n < 3000 else 10.0
        pace_s = elapsed / n if n < 3000 else 0.03
        spent, left = (f"{int(t) // 60:02}:{int(t) % 60:02}" for t in (elapsed, 600))
        lines.append(
            f"train: {n // 120}%|{'█' * 40:<60}| {n}/12000 [{spent}<{left}, {pace_s:.3f}s/it, "
            f"loss=0.{n:05}]{' ' * 800}"
        )
    log = tmp_path / "run.log"
    log.write_text("\r".join(lines))
    assert log.stat().st_size > 2 * START_BYTES
    with pytest.raises(UnreadableError, match="--read-as step-lines reads them nevertheless"):
        read_place(str(log))
    assert read_place(str(log), read_as="step-lines")


def test_a_pace_so_far_confirms_times_that_change() -> None:
    lines, elapsed = [], 0.0
    for n in range(10, 1000, 10):
        elapsed += 20.0 if n < 600 else 200.0
        spent = f"{int(elapsed) // 60:02}:{int(elapsed) % 60:02}"
        lines.append(
            f"Epoch 0: {n // 10}%|███   | {n}/1000 [{spent}<40:00, {elapsed / n:.2f}s/it, loss=1.{n}]"
        )
    evidence = best_evidence("\r".join(lines).encode())
    assert not isinstance(evidence, str)
    assert evidence.checks


@pytest.mark.parametrize("first", [0, 1])
def test_epochs_are_counted_from_the_first_one_of_the_log(first: int) -> None:
    # The time of the first epoch is unknown.
    lines = [
        f"epoch= {n} \t time= {(n - first) * 1.5 + 1.7:.6f} min \t loss= 0.{n:03}"
        for n in range(first, first + 30)
    ]
    rows = read("\n".join(lines).encode()).intervals.to_pylist()
    assert [row["epoch"] for row in rows] == [*range(1, 30)]
    assert [(row["end"] - row["begin"]) / 1e9 for row in rows] == pytest.approx(
        [90] * 29, rel=0.001
    )


def test_parts_of_most_steps_confirm_times_where_some_have_more_of_them() -> None:
    lines = []
    for n in range(1, 101):
        parts = {"gen": 5 + n % 7 / 10, "update_actor": 4 + n % 5 / 10}
        tested = f" - timing_s/testing:{6.5:.3f}" if n % 10 == 0 else ""
        step_s = sum(parts.values()) + (6.5 if tested else 0)
        times = "".join(f" - timing_s/{name}:{took:.3f}" for name, took in parts.items())
        lines.append(f"step:{n} - actor/loss:0.{n:03}{times}{tested} - timing_s/step:{step_s:.3f}")
    evidence = best_evidence("\n".join(lines).encode())
    assert not isinstance(evidence, str)
    assert evidence.checks == ("the times of its parts add up to them",)


ONE_LINE_OF_EACH = {
    "last steps": (1, [2, 3, 4, 5, 6], "{at} Epoch: [{n}][14/14] Time 1.3{n} (1.3{n}) Loss 2.{n}"),
    "last steps, from 0": (0, [1, 2, 3, 4, 5], "{at} epoch {n}, iter 14/14, loss 2.{n}"),
    "first steps": (0, [0, 1, 2, 3, 4], "{at} Epoch: [{n}][0/14] Time 1.3{n} (1.3{n}) Loss 2.{n}"),
    "results": (1, [2, 3, 4, 5, 6], "{at} epoch {n}/6 acc 0.7{n} top5 0.9{n}"),
}


@pytest.mark.parametrize("place", ONE_LINE_OF_EACH)
def test_epochs_have_the_numbers_that_the_log_prints(tmp_path: Path, place: str) -> None:
    first, numbers, line = ONE_LINE_OF_EACH[place]
    now, took, lines = 0.0, {}, []
    for n in range(first, first + 6):
        if place == "first steps":
            lines.append(line.format(at=at(now), n=n))
        took[n] = 30.0 + n
        now += took[n]
        if place != "first steps":
            lines.append(line.format(at=at(now), n=n))
    (tmp_path / "run.log").write_text("\n".join(lines) + "\n")
    (run,) = read_place(str(tmp_path / "run.log"))
    table = epochs_table(analyse(run))
    shown = [] if table is None else [(row[0], row[1].split()[0]) for row in table.rows]
    assert [number for number, _ in shown] == [str(n) for n in numbers]
    assert [float(seconds) for _, seconds in shown] == [took[n] for n in numbers]


def test_the_first_of_several_lines_about_an_epoch_is_at_its_start(tmp_path: Path) -> None:
    now, took, lines = 0.0, {}, []
    for n in range(1, 7):
        took[n] = 300.0 + n
        lines.append(f"{at(now)} ##### Epoch {n} #####")
        lines.append(f"{at(now + took[n] - 8)} Epoch {n} - Average Train Loss: 1.{n}")
        now += took[n]
    (tmp_path / "run.log").write_text("\n".join(lines) + "\n")
    table = epochs_table(analyse(read_place(str(tmp_path / "run.log"))[0]))
    assert table is not None
    assert [row[0] for row in table.rows] == ["1", "2", "3", "4", "5"]
    assert table.rows[0][1].startswith("5.0")


def test_a_norm_of_gradients_is_no_time(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(
        "".join(f"step {n} | loss 2.{n} | grad 0.{n}\n" for n in range(10, 60))
    )
    with pytest.raises(NotFoundError, match=r"its lines have counters \(step\); no times"):
        read_place(str(tmp_path / "run.log"))


def trainings_of(*step_s: float, epochs: int) -> str:
    """Write the lines of trainings one behind another, each after half a minute."""
    now, lines = 0.0, []
    for took in step_s:
        for epoch in range(1, epochs + 1):
            for n in range(10, 401, 10):
                now += 10 * took * (1 + n % 3 / 100)
                lines.append(f"{at(now)} epoch: {epoch}, iter: {n}/400, loss: 2.{n:04}")
        now += 30
    return "\n".join(lines) + "\n"


def test_unlike_trainings_have_step_times_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(trainings_of(0.4, 0.9, epochs=2))
    analysis = analyse(read_place(str(tmp_path / "run.log"))[0])
    figures = dict(printed_figures(analysis.printed))
    assert figures["Steady step of each training or start"] == "404 ms, 909 ms"
    assert "Steady step" not in figures
    (tmp_path / "run.log").write_text(trainings_of(0.4, 0.41, epochs=2))
    analysis = analyse(read_place(str(tmp_path / "run.log"))[0])
    assert "Steady step" in dict(printed_figures(analysis.printed))


def test_trainings_of_one_epoch_have_no_number(tmp_path: Path) -> None:
    """They may be parts of an epoch, too: the time between them is no pause."""
    (tmp_path / "run.log").write_text(trainings_of(0.4, 0.4, 0.4, epochs=1))
    (run,) = read_place(str(tmp_path / "run.log"))
    analysis = analyse(run)
    assert analysis.printed is not None
    assert not analysis.printed.pauses
    notes = " ".join(analysis.warnings)
    assert "steps begin again 2 times in the same epoch: these may be several trainings" in notes
    assert "3 parts of the log" in job_total(analysis)


def test_two_counts_without_epochs_may_be_two_trainings(tmp_path: Path) -> None:
    text = re.sub("epoch: 1, ", "", trainings_of(0.4, 0.4, epochs=1))
    (tmp_path / "run.log").write_text(text)
    analysis = analyse(read_place(str(tmp_path / "run.log"))[0])
    assert analysis.printed is not None
    assert not analysis.printed.pauses


def in_words(seconds: float) -> str:
    return f"{int(seconds // 60)}m {int(seconds % 60)}s"


@pytest.mark.parametrize(
    "line",
    [
        lambda n, s: f"step {n} loss 2.{n} ({in_words(s)})",
        lambda n, s: f"step={n} loss=2.{n} time={s // 60:.0f}m{s % 60:02.0f}s",
        lambda n, s: (
            f"step {n}/500 loss 2.{n} {timedelta(seconds=int(s))}<{timedelta(seconds=900)}"
        ),
        lambda n, s: (
            f"step {n} | loss 2.{n} | {s // 3600:.0f}h {s // 60 % 60:.0f}min {s % 60:.0f}sec"
        ),
    ],
)
def test_running_times_may_be_in_words_or_without_a_name(line: Callable[[int, float], str]) -> None:
    steps = range(10, 510, 10)
    data = "\n".join(line(n, n * 14.6) for n in steps).encode()
    _, ms = windows_of(read(data))
    assert np.median(ms) == pytest.approx(14_600, rel=0.02)


def test_a_running_time_behind_a_date_confirms_the_times_of_meters() -> None:
    lines = []
    for n in range(0, 600, 20):
        elapsed = timedelta(seconds=int(n * STEP_S))
        lines.append(
            f"INFO - {at(n * STEP_S)[:19]} - {elapsed} - Epoch: [{n // 300}][{n % 300}]\t"
            f"Time {STEP_S + n % 7 / 1000:.3f} ({STEP_S:.3f})\tData 0.010 (0.012)\tLoss 5.{n} (5.2)"
        )
    log = read("\n".join(lines).encode())
    steps, ms = windows_of(log)
    assert np.average(ms, weights=steps) == pytest.approx(1000 * STEP_S, rel=0.02)


def test_a_pace_right_behind_a_loss_is_found() -> None:
    lines = [f"epoch 1 batch {n} loss 5.{n} 0.3{n % 7}s/it" for n in range(0, 400, 10)]
    text = "\n".join(lines).encode()
    assert "counters (epoch, batch) and times" in lacking(text)
    log = StepLinesParser(is_named=True).parse("run.log", text)
    _, ms = windows_of(log)
    assert np.median(ms) == pytest.approx(330, abs=15)


@pytest.mark.parametrize(
    ("line", "others", "says"),
    [
        # A time since the start is not that of a step, as nanoGPT prints it.
        ("Iter {n}: loss {loss}, time {s}", (), "nothing else was found that confirms"),
        ("It: {n}, Loss: {loss}, Time: 12.{last}", (), "may be of one step, or of all"),
        ("step {n} loss {loss}", (), "no known timestamps and no times of steps"),
        ("step {n} loss {loss} eta 3:22", (), "no known timestamps and no times of steps"),
        (
            "step {n} loss {loss}",
            ("saved at 14:03:11",),
            'the time in "saved at 14:03:11" is not read',
        ),
        (
            "step {n} loss {loss}",
            ("Epoch took 61.2 s",),
            'the time in "Epoch took 61.2 s" is not read',
        ),
        (
            "step {n} loss {loss} ran 1h02m",
            (),
            'the time in "step 100 loss 3.00 ran 1h02m" is not read',
        ),
        (
            "Epoch {epoch}/40 - loss: {loss} - 0m 3{last}s",
            (),
            "40 lines about epochs could be read",
        ),
    ],
)
def test_refusals_say_what_is_there(line: str, others: Sequence[str], says: str) -> None:
    lines = [
        line.format(
            n=n, epoch=n // 100, loss=f"{2 + 100 / n:.2f}", s=f"{n * 0.032:.1f}", last=n // 100 % 7
        )
        for n in range(100, 4100, 100)
    ]
    text = "\n".join([*lines, *others]).encode()
    assert not PARSER.recognises("run.log", text)
    assert says in lacking(text)


@pytest.mark.parametrize(
    ("form", "began", "is_told"),
    [
        ("%m/%d/%y %H:%M:%S", datetime(2020, 9, 22, 14), True),
        ("%d-%m-%Y %H:%M:%S", datetime(2021, 2, 20, 14), True),
        # Days that follow each other tell.
        ("%d/%m/%y %H:%M:%S", datetime(2021, 2, 3, 23, 58), True),
        ("%m/%d/%y %H:%M:%S", datetime(2021, 2, 3, 23, 58), True),
        ("%Y-%m-%dT%H.%M.%S", datetime(2020, 2, 1, 14), True),
        ("[%a %b %d %H:%M:%S %Y]", datetime(2020, 2, 11, 14), True),
        ("%m/%d/%y %H:%M:%S", datetime(2020, 9, 2, 14), False),
        ("%d/%m/%Y %H:%M:%S", datetime(2020, 9, 2, 14), False),
    ],
)
def test_days_are_told_where_only_one_order_of_their_numbers_goes_on(
    form: str, began: datetime, is_told: bool
) -> None:
    lines = [
        f"INFO - {began + timedelta(seconds=n):{form}} - step {n} loss 2.{n}"
        for n in range(0, 50 if not is_told else 400, 10)
    ]
    log = read("\n".join(lines).encode())
    _, ms = windows_of(log)
    assert np.median(ms) == pytest.approx(1000)
    began_local = log.log.facts.get("began_local", "")
    assert began_local[:10] == (f"{began:%Y-%m-%d}" if is_told else "")


def test_a_date_in_another_line_takes_nothing_from_timestamps() -> None:
    lines = [f"{at(n)} step {n} loss 2.{n}" for n in range(0, 400, 10)]
    log = read("\n".join([*lines, "saved at 09/02/20 14:03:11"]).encode())
    assert log.log.facts["confirmed"] == "are measured by the log's timestamps"


def test_a_date_at_the_end_of_lines_hides_no_counter() -> None:
    ends = [datetime(2026, 3, 25, 14) + timedelta(seconds=n) for n in range(0, 400, 10)]
    lines = [f"Step {n * 10} | loss 2.{n} | {end:%d.%m.%y %H:%M:%S}" for n, end in enumerate(ends)]
    steps, ms = windows_of(read("\n".join(lines).encode()))
    assert steps.sum() >= 380
    assert np.median(ms) == pytest.approx(1000)
