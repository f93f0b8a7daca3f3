"""Patterns that are proposed for lines that no parser knows: right ones, none for other text."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.work import calls_of

from stallscope.parsers.formats.line_pattern import LinePatternParser
from stallscope.parsers.inspection.inspected import Proposal
from stallscope.parsers.inspection.proposals import NoProposal, Proposer
from stallscope.parsers.inspection.proposals.line_groups import SAMPLE_BYTES
from stallscope.parsers.pattern import PREFIX

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
    """A trainer's way of printing, and the pattern that reads it."""

    line: Callable[[At], str]
    pattern: str
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


def found_in(data: bytes) -> Proposal:
    proposal = Proposer().propose("run.log", data)
    assert isinstance(proposal, Proposal), proposal
    return proposal


def reason_for(text: str | bytes) -> str:
    answer = Proposer().propose("run.log", text if isinstance(text, bytes) else text.encode())
    assert isinstance(answer, NoProposal), answer
    return answer.reason


def with_ms(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M:%S},{when.microsecond // 1000:03}"


SAMPLES = {
    "nanoGPT": Sample(
        lambda at: f"iter {at.step}: loss {at.loss:.4f}, time {at.ms:.2f}ms, mfu {at.loss:.2f}%",
        "iter {step}: {}time {ms}ms",
        others=("step 100: train loss 2.3, val loss 2.4", "saving checkpoint to out"),
        note="its lines are 10 steps apart",
    ),
    "Megatron": Sample(
        lambda at: (
            f" iteration {at.step:8d}/     800 | consumed samples: {at.step * 512:12d} | elapsed time "
            f"per iteration (ms): {at.ms:.1f} | learning rate: {at.loss / 1e5:.3E} | lm loss: "
            f"{at.loss:.6E} | number of nan iterations:   0 |"
        ),
        " iteration {step}/ {}iteration (ms): {ms}",
        others=("-" * 60, " validation loss at iteration 100 | lm loss value: 2.2E+00 |", "-" * 60),
    ),
    "fairseq": Sample(
        lambda at: (
            f"{at.when:%Y-%m-%d %H:%M:%S} | INFO | train_inner | epoch {at.epoch + 1:03d}:  "
            f"{at.batch:4d} / 400 loss={at.loss:.3f}, wps={9e4 + at.loss:.1f}, num_updates={at.step}, "
            f"lr=1.2e-05, train_wall=5, wall={at.step // 2}"
        ),
        "{time} | {}epoch {epoch}: {}num_updates={step},",
        epochs=(1, 2),
        others=(
            "2026-11-21 02:30:00 | INFO | valid | valid on 'valid' subset | loss 5.1 | ppl 15",
        ),
        note="its rates are not read",
    ),
    "mmcv": Sample(
        lambda at: (
            f"{with_ms(at.when)} - mmdet - INFO - Epoch [{at.epoch + 1}][{at.batch}/400]\tlr: 1.9e-03, "
            f"eta: 0:03:13, time: {at.took:.3f}, data_time: 0.010, memory: 3900, loss: {at.loss:.4f}"
        ),
        "{time} - {}Epoch [{epoch}][{step}/{}time: {seconds}, data_time: {data},",
        epochs=(1, 2),
        steps=(0, 390),
    ),
    "mmengine": Sample(
        lambda at: (
            f"{at.when:%Y/%m/%d %H:%M:%S} - mmengine - INFO - Epoch(train)  [{at.epoch}]"
            f"[{at.batch:3d}/400]  lr: 1.9e-03  eta: 1:02:13  time: {at.took:.4f}  loss: {at.loss:.4f}"
        ),
        "{time} - {}Epoch(train) [{epoch}][{step}/{}time: {seconds}",
        epochs=(0, 1),
        steps=(0, 390),
    ),
    "Caffe": Sample(
        lambda at: (
            f"I{at.when:%m%d %H:%M:%S.%f} 12345 solver.cpp:218] Iteration {at.step} "
            f"({at.loss:.5f} iter/s, {10 * at.took:.3f}s/10 iters), loss = {at.loss:.6f}"
        ),
        "{time} {}] Iteration {step} (",
        others=("I1121 02:28:01.250000 12345 sgd_solver.cpp:105] Iteration 90, lr = 0.01",),
        note="the timestamps have no year",
    ),
    "absl": Sample(
        lambda at: (
            f"I{at.when:%m%d %H:%M:%S.%f} 47580729335424 keras_utils.py:93] step = {at.step}, "
            f"time_taken = {at.took:.6f}, examples_per_second = {32 / at.took:.2f}"
        ),
        "{time} {}step = {step}, time_taken = {seconds},",
        every=1,
        steps=(0, 799),
    ),
    "ESPnet": Sample(
        lambda at: (
            f"[node1] {with_ms(at.when)} (trainer:732) INFO: {at.epoch + 1}epoch:train:"
            f"{at.batch}-{at.batch + 9}batch: iter_time=1.1e-04, forward_time=0.123, "
            f"loss={at.loss:.3f}, optim0_lr0=1.1e-05, train_time={at.took:.3f}"
        ),
        "{}] {time} ({}INFO: {epoch}{}-{step}{}train_time={seconds}",
        epochs=(1, 2),
        steps=(9, 399),
    ),
    "JSON": Sample(
        lambda at: json.dumps(
            {"epoch": at.epoch, "step": at.step, "loss": at.loss, "time": at.when.timestamp()}
        ),
        '{"epoch": {epoch}, "step": {step}, "{}"time": {time}',
        epochs=(0, 1),
    ),
    "JSON without timestamps": Sample(
        lambda at: json.dumps({"loss": at.loss, "step": at.step, "step_time": at.took}),
        '{}"step": {step}, "step_time": {seconds}',
        note="no unit: seconds are assumed",
    ),
    "MLPerf": Sample(
        lambda at: (
            f":::MLLOG {{'time_ms': {round(at.when.timestamp() * 1000)}, 'key': 'epoch_start', "
            f"'metadata': {{'epoch_num': {at.epoch}, 'step_num': {at.step}}}}}"
        ),
        ":::MLLOG {'time_ms': {time}, '{}{'epoch_num': {epoch}, 'step_num': {step}",
        epochs=(0, 1),
    ),
    "ImageNet": Sample(
        lambda at: (
            f"Epoch: [{at.epoch}][{at.batch:3d}/400]\tTime {at.took:6.3f} ( 0.498)\tData  0.010 ( 0.020)"
            f"\tLoss {at.loss:.4e} (6.9e+00)"
        ),
        "Epoch: [{epoch}][{step}/{}Time {seconds} ( {}Data {data}",
        epochs=(0, 1),
        steps=(0, 390),
    ),
    "srun": Sample(
        lambda at: f"{at.rank}: TRAIN [{at.epoch}][{at.batch}/400]\tTime {at.took:.3f} (0.5)",
        "{}][{step}/{}Time {seconds}",
        steps=(0, 390),
        ranks=4,
    ),
    "ranks": Sample(
        lambda at: (
            f"[{with_ms(at.when)}][rank {at.rank}/3] step={at.step} throughput={900 + at.loss:.1f} "
            "samples/s"
        ),
        "{time}[rank {rank}/{}step={step}",
        ranks=3,
    ),
    "word language model": Sample(
        lambda at: (
            f"| epoch {at.epoch:3d} | {at.batch:5d}/  400 batches | lr 20.00 | ms/batch {at.ms:5.2f} | "
            f"loss {at.loss:5.2f}"
        ),
        "| epoch {epoch} | {step}/ {}ms/batch {ms}",
        epochs=(0, 1),
        steps=(0, 390),
        others=("-" * 80, "| end of epoch   1 | time: 62.30s | valid loss  5.0"),
    ),
    "epochs": Sample(
        lambda at: f"Epoch {at.step}/800 done in {100 * at.took:.1f}s - train loss {at.loss:.3f}",
        "Epoch {epoch}/{}in {seconds}s",
        every=1,
        epochs=(0, 799),
        steps=None,
    ),
    "colours": Sample(
        lambda at: (
            f"\x1b[32m[{at.when:%m/%d %H:%M:%S} d2.utils.events]: \x1b[0m eta: 0:13:46  iter: "
            f"{at.step}  total_loss: {at.loss:.4f}  time: {at.took:.4f}  data_time: 0.0041"
        ),
        "{}m{time} {}iter: {step} {}time: {seconds} data_time: {data}",
    ),
    "nameless epochs": Sample(
        lambda at: (
            f"{with_ms(at.when)} (main.py 236) INFO Train: [{at.epoch}/300][{at.batch}/400]\tlr 0.1"
        ),
        "{time} ({}Train: [{epoch}/{}][{step}/",
        epochs=(0, 1),
        steps=(0, 390),
    ),
    "syslog": Sample(
        lambda at: (
            f"{at.when:%b %d %H:%M:%S} node7 train[1234]: Step {at.step} | loss {at.loss:.3f}"
        ),
        "{time} {}Step {step}",
    ),
    "some longer": Sample(
        lambda at: (
            f"Epoch {at.step:03} loss {at.loss:.4f} | train {100 * at.took:.1f}s"
            + (" | Acc 45.79% | infer 5.5s" if at.step % 9 == 0 else "")
        ),
        "Epoch {epoch} {}train {seconds}s",
        every=1,
        epochs=(0, 799),
        steps=None,
    ),
    "mean of steps": Sample(
        lambda at: (
            f"step:{at.step}/800 train_time:{at.step * at.took:.0f}ms step_avg:{at.ms:.2f}ms"
        ),
        "step:{step}/{}step_avg:{ms}ms",
    ),
    "words that vary": Sample(
        lambda at: (
            f"{with_ms(at.when)} {'ABCDEFGH'[at.step // 10 % 8]}x step {at.step} loss {at.loss:.3f}"
        ),
        "{time} {}step {step}",
    ),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_the_lines_of_many_trainers_get_a_pattern_that_reads_them(name: str) -> None:
    sample = SAMPLES[name]
    proposal = found_in(printed(sample))
    assert proposal.read_as == PREFIX + sample.pattern
    assert proposal.lines == 800 // sample.every * sample.ranks
    assert proposal.share == 1
    assert (proposal.epochs, proposal.steps) == (sample.epochs, sample.steps)
    assert proposal.ranks == tuple(range(sample.ranks))
    if sample.steps is None:
        assert proposal.epoch_s == pytest.approx(100 * STEP_S, rel=0.01)
    else:
        assert proposal.step_ms == pytest.approx(1000 * STEP_S, rel=0.01)
    assert sample.note in " ".join(proposal.notes)
    if "{time}" in sample.pattern:
        assert proposal.span is not None
        assert proposal.span.begin.rstrip("Z").endswith("-11-21T02:28:01")


def test_a_rate_of_samples_is_read_where_the_batch_size_is_known() -> None:
    lines = [f"step {n} loss {n % 7}.5 {64 / STEP_S + n % 3:.1f} images/s" for n in range(100)]
    text = "world size: 1, batch_size=64\n" + "\n".join(lines)
    proposal = found_in(text.encode())
    assert proposal.read_as == PREFIX + "step {step} loss {} {rate}"
    assert proposal.step_ms == pytest.approx(1000 * STEP_S, rel=0.01)
    assert "the batch size and the number of ranks" in reason_for("\n".join(lines))
    tokens = text.replace("images", "tokens")
    assert "rates give times only if they are of samples" in reason_for(tokens)


def test_an_epochs_duration_is_not_read_as_that_of_its_last_step() -> None:
    text = "".join(f"epoch {n} step {400 * n} took {200 + n % 3}.0 s loss 2\n" for n in range(40))
    proposal = found_in(text.encode())
    assert proposal.read_as == PREFIX + "epoch {epoch} {}took {seconds}"
    assert proposal.epoch_s == pytest.approx(201, rel=0.01)
    assert proposal.step_ms is None


# What is left out


@pytest.mark.parametrize("wait", ["data 12", "data_time 0.9s", "data time 12.5 ms", "metadata 0.1"])
def test_other_figures_of_data_are_no_waits_of_a_step(wait: str) -> None:
    sample = Sample(lambda at: f"step {at.step} step_time {at.took:.3f}s {wait} loss 2", "")
    assert found_in(printed(sample)).read_as == PREFIX + "step {step} step_time {seconds}s"


def test_a_unit_may_be_in_brackets() -> None:
    sample = Sample(
        lambda at: f"Iteration {at.step}, step time: {1e3 * at.took:.3f} [ms], loss 2", ""
    )
    assert found_in(printed(sample)).read_as.endswith(": {ms}")


def test_how_many_steps_a_duration_is_of_is_no_duration() -> None:
    line = "Iter: {} Time(100 iters): {:.6f}s Loss: 0.1"
    text = "".join(line.format(100 * n, 24 + n % 7 / 10) + "\n" for n in range(200))
    assert "of all steps since the line before" in reason_for(text.encode())


def test_a_duration_of_all_steps_between_lines_is_left_to_the_timestamps() -> None:
    sample = Sample(
        lambda at: f"{with_ms(at.when)} step {at.step} took {10 * at.took:.3f} s",
        "{time} step {step}",
    )
    proposal = found_in(printed(sample))
    assert proposal.read_as == PREFIX + sample.pattern
    assert proposal.step_ms == pytest.approx(500, rel=0.01)
    without = replace(sample, line=lambda at: f"step {at.step} took {10 * at.took:.3f} s")
    assert "of one step, or of all steps since the line before" in reason_for(printed(without))


def test_lines_of_validation_do_not_count_as_those_of_training() -> None:
    lines = "".join(
        f"train epoch {n} took {60 + n % 2}.0 s loss 2\nvalid epoch {n} took 5.0 s loss 2\n"
        for n in range(40)
    )
    proposal = found_in(lines.encode())
    assert proposal.read_as == PREFIX + "train epoch {epoch} took {seconds}"
    assert proposal.epoch_s == pytest.approx(60.5)


def test_a_steps_duration_in_an_epochs_line_is_not_the_epochs() -> None:
    line = "Epoch {}/40 - loss 0.3 - 152.{} ms/step"
    text = "".join(line.format(n, n) + "\n" for n in range(40))
    assert "neither timestamps nor durations" in reason_for(text)
    proposal = found_in(
        "".join(f"2026-11-21 02:{n:02}:01 {line.format(n, n)}\n" for n in range(40)).encode()
    )
    assert (proposal.read_as, proposal.epoch_s) == (PREFIX + "{time} Epoch {epoch}/", 60)


@pytest.mark.parametrize(
    ("word", "pattern"),
    [("took", "{time} step {step}"), ("time", "{time} step {step} time {seconds}")],
)
def test_timestamps_of_a_few_seconds_say_nothing_about_durations(word: str, pattern: str) -> None:
    line = "2026-11-21 02:28:0{} step {} {} 0.25 s loss 2"
    data = "".join(line.format(n // 4, 10 * n, word) + "\n" for n in range(20)).encode()
    proposal = found_in(data)
    assert proposal.read_as == PREFIX + pattern
    assert ("its lines are 10 steps apart" in " ".join(proposal.notes)) == (word == "time")


def test_rates_among_durations_are_not_read_as_such() -> None:
    words = {0: "1.8it/s", 1: "2.5s/it", 2: "2.5s/it", 3: "2.5s/it"}
    data = "".join(f"step {n} loss 2 {words[n % 4]}\n" for n in range(100)).encode()
    proposal = found_in(data)
    assert proposal.read_as == PREFIX + "step {step} loss {} {seconds}s"
    assert (proposal.lines, proposal.step_ms) == (75, 2500)


def test_a_duration_without_a_unit_has_the_one_that_fits_the_timestamps() -> None:
    sample = Sample(lambda at: f"{with_ms(at.when)} step {at.step} step_time={at.ms:.1f}", "")
    proposal = found_in(printed(sample))
    assert proposal.read_as == PREFIX + "{time} step {step} step_time={ms}"
    assert not proposal.notes


@pytest.mark.parametrize(
    "line",
    [
        lambda at: f"step {at.step} elapsed: {at.step * STEP_S + 1:.1f}s",
        lambda at: f"step {at.step} eta {at.took:.1f}s",
        lambda at: f"step {at.step} data time {at.took:.3f}s",
        lambda at: f"step {at.step} time {-at.took:.3f}s",
        lambda at: f"step {at.step} loss {at.loss:.3f} {at.loss:.1f} samples/s",
        lambda at: f"{at.step}\timages/sec: {at.loss:.1f} +/- 0.0 (jitter = 0.0)",
    ],
    ids=[
        "since the start",
        "to the end",
        "of something else",
        "negative",
        "a rate",
        "leading step",
    ],
)
def test_steps_without_times_get_no_pattern(line: Callable[[At], str]) -> None:
    assert "neither timestamps nor durations" in reason_for(printed(Sample(line, "")))


def test_numbers_that_no_field_reads_are_no_fields() -> None:
    line = "step {} epoch {:.2f} time {:.2e}s loss 2"
    text = "".join(line.format(n, n / 100, 0.01) + "\n" for n in range(100))
    assert "neither timestamps nor durations" in reason_for(text)
    proposal = found_in(
        "".join(
            f"2026-11-21 02:28:{n % 60:02} {line.format(n, n / 100, 0.01)}\n" for n in range(50)
        ).encode()
    )
    assert proposal.read_as == PREFIX + "{time} step {step}"


def test_a_launchers_timestamps_and_ranks_are_used() -> None:
    label = "{when:%a %b %d %H:%M:%S %Y}[1,{rank}]<stdout>:"
    sample = Sample(
        lambda at: label.format(when=at.when, rank=at.rank) + f"rank {at.rank} step {at.step}",
        "rank {}step {step}",
        ranks=2,
    )
    proposal = found_in(printed(sample))
    assert (proposal.read_as, proposal.ranks) == ("pattern:{}step {step}", (0, 1))
    assert proposal.step_ms == pytest.approx(500, rel=0.01)
    assert proposal.span is not None


def test_counters_of_tokens_are_no_timestamps() -> None:
    sample = Sample(
        lambda at: f"step {at.step} tokens {1_700_000_000 + at.step * 4096} dt {at.took:.3f}s",
        "step {step} {}dt {seconds}s",
    )
    assert found_in(printed(sample)).read_as == PREFIX + sample.pattern


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
def test_other_text_gets_no_pattern_and_one_sentence(name: str) -> None:
    reason = reason_for(OTHER_TEXTS[name])
    assert "\n" not in reason
    assert not reason.endswith(".")


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
)
pieces = st.lists(st.one_of(st.sampled_from(WORDS), st.integers(0, 10**14).map(str)), max_size=12)


def checked(data: bytes) -> None:
    """Propose a pattern: if there is one, it reads the lines as said."""
    answer = Proposer().propose("run.log", data)
    if isinstance(answer, Proposal):
        pattern = LinePatternParser(answer.read_as.removeprefix(PREFIX)).pattern
        columns = pattern.all_columns(data)
        assert columns is not None
        assert len(columns["timed"]) == answer.lines > 0
        assert answer.step_ms is not None or answer.epoch_s is not None


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
}


@pytest.mark.broad
@pytest.mark.parametrize("name", LONG)
def test_work_is_bounded_by_the_sample(name: str) -> None:
    data = LONG[name]
    checked(data)
    once = calls_of(lambda: Proposer().propose("run.log", data))
    twice = calls_of(lambda: Proposer().propose("run.log", data + b"\n" + data))
    assert twice < 3 * once + 10_000


def test_a_long_file_is_read_whole_and_its_pattern_is_made_of_parts() -> None:
    sample = SAMPLES["mmcv"]
    data = printed(sample)
    times = 2 * SAMPLE_BYTES // len(data)
    proposal = found_in(data * times)
    assert proposal.read_as == PREFIX + sample.pattern
    assert proposal.lines == 80 * times
    assert proposal.epochs == (1, 2)


def test_a_short_training_is_found_anywhere_in_a_long_file() -> None:
    noise = b"".join(b"node:%d NCCL INFO channel %d\n" % (n, n) for n in range(60_000))
    assert len(noise) > 2 * SAMPLE_BYTES
    data = noise[: len(noise) // 3] + printed(SAMPLES["nanoGPT"]) + noise[len(noise) // 3 :]
    assert found_in(data).read_as == PREFIX + SAMPLES["nanoGPT"].pattern


def test_files_of_the_same_kind_get_the_same_pattern() -> None:
    proposer = Proposer()
    sample = SAMPLES["nanoGPT"]
    first = proposer.propose("rank.0/stdout", printed(sample))
    # Its losses all begin with the same text, of which an own pattern would have more.
    second = proposer.propose(
        "rank.1/stdout", b"".join(b"iter %d: loss x, time 500.5ms\n" % n for n in range(50))
    )
    assert isinstance(first, Proposal)
    assert isinstance(second, Proposal)
    assert second.read_as == first.read_as
    assert (second.lines, second.ranks) == (50, (1,))


def test_after_many_files_only_known_patterns_are_tried() -> None:
    proposer = Proposer()
    noise = (b"x" * 9999 + b"\n") * (SAMPLE_BYTES // 10_000)
    reasons = {
        answer.reason
        for answer in (proposer.propose("a.txt", noise) for _ in range(30))
        if isinstance(answer, NoProposal)
    }
    assert any("inspect it alone" in reason for reason in reasons)
