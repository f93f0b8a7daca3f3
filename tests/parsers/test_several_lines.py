"""Records of several lines: a counter and its time on separate lines, and rows of tables."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallscope.parsers.formats.printed_steps.evidence import WHOSE_TIMES, Evidence
from stallscope.parsers.formats.printed_steps.several_lines import joined_texts
from stallscope.parsers.formats.printed_steps.step_lines_parser import (
    StepLinesParser,
    best_evidence,
)

PARSER = StepLinesParser(is_named=True)
RNG = random.Random(11)
#: Seconds of each of 40 records of a training, of which the seventh takes long.
SECONDS = [60 * RNG.uniform(0.98, 1.02) + 25 * (n == 6) for n in range(40)]
ENDS = np.cumsum(SECONDS).tolist()


def clock(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def table(rows: Sequence[tuple[str, str]]) -> str:
    edge = "-" * 41
    return "\n".join([edge, *(f"| {name:<23} | {value:<11} |" for name, value in rows), edge])


def blocks() -> str:
    """A running time before its counter, and the losses behind it."""
    return "\n".join(
        f"time elapsed: {clock(end)}\nnum of updates: {1000 * (n + 1)}\n"
        f"policy loss: {9 / (n + 1):.5f}\nvalue loss: {8 / (n + 1):.5f}\n{'=' * 60}"
        for n, end in enumerate(ENDS)
    )


def rates_before_durations() -> str:
    """Steps per second on a line before the time of the steps since the line before."""
    return "loss = 9.3, step = 1\n" + "\n".join(
        f"global_step/sec: {100 / took:.6g}\nloss = {9 / (n + 1):.4f}, step = {100 * n + 101} "
        f"({took:.3f} sec)"
        for n, took in enumerate(SECONDS)
    )


def epochs_of_steps() -> str:
    """The time since the start behind the lines of each epoch, some with another line between."""
    lines = []
    for n, end in enumerate(ENDS):
        name = f"Epoch: {n + 1:03}/040"
        lines += [f"{name} | Current Learning Rate: 0.010000"]
        lines += [f"{name} | Batch {at:04}/0469 | Loss: {2 / (at + 1):.4f}" for at in (0, 200, 400)]
        lines += ["**The loss decreased. Saving model ..."] * (n % 3 == 0)
        lines += [f"Time elapsed: {end / 60:.2f} min"]
    return "\n".join(lines)


def tables() -> str:
    """Tables of reinforcement learning, of which the first and every fifth has fewer rows."""
    boxes = []
    for n, end in enumerate(ENDS):
        rows = [("rollout/", ""), ("   ep_len_mean", "134"), ("time/", "")]
        rows += [("   fps", f"{2048 * (n + 1) / end:.0f}"), ("   iterations", f"{n + 1}")]
        rows += [("   time_elapsed", f"{end:.0f}"), ("   total_timesteps", f"{2048 * (n + 1)}")]
        if n % 5:
            rows += [("train/", ""), ("   loss", f"{9 / n:.3g}"), ("   n_updates", f"{10 * n}")]
            rows += [("   value_loss", f"{12 / n:.3g}")]
        boxes.append(table(rows))
    return "\n".join(boxes)


def epochs_of_mindspore() -> str:
    return "\n".join(
        f"epoch: {n + 1} step: 62, loss is {2 / (n + 1):.5f}\n"
        f"Train epoch time: {1e3 * took:.3f} ms, per step time: {1e3 * took / 62:.3f} ms\n"
        f"epoch: {n + 1} acc: 0.5602, best acc is 0.6941"
        for n, took in enumerate(SECONDS)
    )


#: Logs, the steps or epochs of a record, by how much one time may be off, and what confirms them.
READ = {
    "a running time before a counter": (blocks, 1000, 1.0, "the lines' running time"),
    "rates before durations": (rates_before_durations, 100, 1e-3, "agree with rates on the steps"),
    "epochs and a running time": (epochs_of_steps, 1, 0.6, "the lines' running time"),
    "tables": (tables, 1, 1.0, "the lines' running time"),
    "MindSpore": (epochs_of_mindspore, 1, 1e-5, "are read as MindSpore prints them"),
}


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_records_of_several_lines_have_the_times_of_their_steps(name: str, end: str) -> None:
    log, of_each, off_s, confirmed = READ[name]
    data = log().replace("\n", end).encode()
    evidence = best_evidence(data)
    assert isinstance(evidence, Evidence)
    assert confirmed in ", ".join(evidence.checks)
    assert PARSER.recognises("train.log", data)
    steps = evidence.columns["epoch" if evidence.of_epochs else "step"]
    seconds = evidence.columns["seconds"]
    if evidence.value == "mean":
        seconds = seconds * of_each
    # A running time has none for its first record, and a rate may be that behind a step.
    assert len(seconds) >= len(SECONDS) - 1
    assert np.diff(steps).tolist() == [of_each] * (len(seconds) - 1)
    expected = [SECONDS[step // of_each - 1] for step in steps.tolist()]
    assert seconds == pytest.approx(expected, abs=off_s + 1e-9)


def test_epochs_of_a_coarse_running_time_are_as_uncertain_as_its_unit() -> None:
    """Epochs of 2.8 s are read from hundredths of minutes, each with its own time."""
    lines = []
    for epoch in range(1, 60):
        lines += [f"Epoch: {epoch:03}/060 | Batch 0010/0011 | Loss: {5 / epoch:.4f}"]
        lines += [f"Time elapsed: {2.8 * epoch / 60:.2f} min"]
    log = PARSER.parse("train.log", "\n".join(lines).encode())
    assert log.intervals.num_rows == 58
    assert log.log.facts["precision"] == "epochs, to 600 ms"


def durations() -> str:
    """The time of each tenth step before its line, and those of evaluations elsewhere."""
    lines = []
    for n in range(200):
        if n and n % 50 == 0:
            lines += ["start eval..........", "Timer: 140.2", f"test epoch:{n // 50} || Loss:4.3"]
        lines += [f"Timer: {0.66 + 0.001 * (n % 9):.4f}"]
        lines += [f"epoch:{n // 50} || iter:{10 * n} || Loss:{9 / (n + 1):.4f}"]
        lines += ["->> conf loss:11.1 || loc loss:4.9", "->>lr:0.0005"]
    return "\n".join(lines)


def test_durations_that_nothing_confirms_are_not_read() -> None:
    data = durations().encode()
    assert best_evidence(data) == WHOSE_TIMES
    text = next(joined_texts(data))
    # Those of evaluations are of no step.
    assert text.count(b";epoch:") == 200
    assert b"Timer: 140.2\n" in text


@pytest.mark.parametrize(
    "of_epoch", ["\nTime Elapsed for This Epoch: 00:02:{}", ", epoch_time: {}min"]
)
def test_the_time_of_an_epoch_is_not_that_of_its_last_step(of_epoch: str) -> None:
    lines = []
    for step in range(1460):
        line = f"Iteration: {step:07}, Generator Loss : {RNG.uniform(1, 2):.3f}"
        is_last = step % 146 == 145
        lines.append(line + of_epoch.format(RNG.randrange(40, 50)) if is_last else line)
    assert best_evidence("\n".join(lines).encode()) == WHOSE_TIMES


OTHERS = "building an extension\n" * 20


@pytest.mark.parametrize(
    "log",
    [
        "\n".join(f"[1,{n % 2}]<stdout>:{line}" for n, line in enumerate(blocks().split("\n"))),
        # Times that have no counter near them.
        "\n".join(
            f"step {n} loss {9 / (n + 1):.3f}\n{OTHERS}took: {clock(60 * n)}\n{OTHERS}"
            for n in range(30)
        ),
    ],
    ids=["of several ranks", "far from counters"],
)
def test_other_lines_are_not_joined(log: str) -> None:
    assert [*joined_texts(log.encode())] == []


@given(
    st.lists(
        st.sampled_from(
            ("time: 3 s", "step 1 loss 2", "step 2 loss 1", "", "12", "lr: 0.1", "it/s: 5", "\r")
        ),
        max_size=60,
    )
)
def test_only_the_ends_of_lines_are_replaced(lines: list[str]) -> None:
    data = "\n".join(lines).encode()
    for text in joined_texts(data):
        assert text != data
        assert text.replace(b";", b"\n").split() == data.split()
