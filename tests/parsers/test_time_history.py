"""Logs of TimeHistory become series of windows, alone and with launchers' labels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from support.printed_steps import LABELS, SIZE, Floats, Truth

from stallscope.parsers import Parsed
from stallscope.parsers.lines.timestamps import written_at
from stallscope.parsers.registry import by_name

EVERY, SAMPLES = 20, 128
FORMS: dict[str, str] = {
    "today": "I{at:%m%d %H:%M:%S.%f} 4758 keras_utils.py:162] TimeHistory: {total:.2f} seconds, "
    "{rate:.2f} examples/second between steps {before} and {done}",
    "before": "I{at:%m%d %H:%M:%S.%f} 4758 keras_utils.py:85] BenchmarkMetric: "
    "{{'global step':{done}, 'time_taken': {total:.6f},'examples_per_second': {rate:.6f}}}",
    # Through two loggers, of which one has timestamps.
    "twice": "INFO:tensorflow:BenchmarkMetric: {{'global step':{done}, 'time_taken': {total:f},"
    "'examples_per_second': {rate:f}}}\n"
    "I{at:%m%d %H:%M:%S.%f} 4758 keras_utils.py:85] BenchmarkMetric: "
    "{{'global step':{done}, 'time_taken': {total:f},'examples_per_second': {rate:f}}}",
    "without timestamps": "TimeHistory: {total:.2f} seconds, {rate:.2f} examples/second between "
    "steps {before} and {done}",
}


def lines(form: str, truth: Truth, label: Callable[..., str] | None = None, rank: int = 0) -> str:
    said = []
    for done in range(EVERY, truth.step_s.shape[1] + 1, EVERY):
        total, at = truth.step_s[0, done - EVERY : done].sum(), truth.ended(0, done)
        values = {"total": total, "rate": SAMPLES * EVERY / total, "before": done - EVERY}
        text = form.format(at=at, done=done, **values)
        before = "" if label is None else label(rank, at)
        said += [before + line + "\n" for line in text.splitlines()]
    return "".join(said)


def parsed(text: str, truth: Truth) -> list[Parsed]:
    with written_at(int(truth.ended(0, 0).timestamp() * 1e9) + 10**15):
        first = by_name("time-history").parse("run.log", text.encode())
    return [first, *first.more]


def window_s(log: Parsed) -> Floats:
    rows = [row for row in log.intervals.to_pylist() if row["kind"] == "window"]
    return np.array([(row["end"] - row["begin"]) / 1e9 for row in rows])


@pytest.mark.parametrize("name", FORMS)
def test_its_lines_are_a_series(name: str) -> None:
    truth = Truth.drawn(epochs=1, steps=400)
    (log,) = parsed(lines(FORMS[name], truth), truth)
    windows = truth.step_s[0].reshape(-1, EVERY).sum(axis=1)
    assert window_s(log) == pytest.approx(windows, abs=0.005)
    facts = log.log.facts
    # The first steps trace.
    assert facts["step_ms"] == pytest.approx(1e3 * windows[1:].mean() / EVERY, abs=0.25)
    assert facts["samples_per_step"] == pytest.approx(SAMPLES, rel=0.001)
    assert facts["rate_of"] == "all ranks"
    assert facts["steps_timed"] == 400
    assert ("began_local" in facts) == (name != "without timestamps")


@pytest.mark.parametrize("label", ["openmpi4", "srun", "gloo, stamped"])
def test_each_rank_has_its_own(label: str) -> None:
    truths = [Truth.drawn(seed=1 + rank, epochs=1) for rank in range(SIZE)]
    text = "".join(
        lines(FORMS["today"], truth, LABELS[label], rank) for rank, truth in enumerate(truths)
    )
    logs = parsed(text, truths[0])
    assert [log.log.rank for log in logs] == list(range(SIZE))
    for log, truth in zip(logs, truths, strict=True):
        windows = truth.step_s[0].reshape(-1, EVERY).sum(axis=1)
        assert window_s(log) == pytest.approx(windows, abs=0.005)


def test_epochs_that_it_logs_are_epochs() -> None:
    truth = Truth.drawn(epochs=1)
    text = lines(FORMS["before"], truth)
    text += f"I{truth.ended(0, 200):%m%d %H:%M:%S.%f} 4758 keras_utils.py:102] BenchmarkMetric: "
    text += "{'epoch':0, 'time_taken': 81.187347}\n"
    # Through two loggers, of which one has timestamps.
    text += "INFO:absl:BenchmarkMetric: {'epoch':0, 'time_taken': 81.187347}\n"
    (log,) = parsed(text, truth)
    (epoch,) = [row for row in log.intervals.to_pylist() if row["kind"] == "epoch"]
    assert (epoch["epoch"], epoch["end"] - epoch["begin"]) == (0, 81_187_347_000)
