"""Records: tables, lines of JSON and JSON documents, and what confirms their times."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.work import calls_of

from stallscope.arrays import arrow
from stallscope.errors import NotFoundError, UnreadableError
from stallscope.exports.tensorboard_file import TensorboardSeries
from stallscope.parsers import read as read_place
from stallscope.parsers.base import Parsed
from stallscope.parsers.formats.printed_steps import records
from stallscope.parsers.formats.printed_steps.step_lines_parser import (
    StepLinesParser,
    best_evidence,
    lacking,
)
from stallscope.run import Run

PARSER = StepLinesParser(is_named=True)
BEGAN_S = 1_772_359_200
STEP_S = 0.3


class At(NamedTuple):
    """Where a trainer is when it writes a record of ten steps."""

    step: int
    #: The mean of its steps, and the time since the start, in seconds.
    took: float
    end: float
    #: The number of the record.
    number: int

    @property
    def iso(self) -> str:
        return (datetime.fromtimestamp(BEGAN_S, UTC) + timedelta(seconds=self.end)).isoformat()


def moments(count: int = 100) -> Iterator[At]:
    chance = random.Random(3)
    end = 0.0
    for number in range(count):
        took = STEP_S * chance.uniform(0.97, 1.03)
        end += 10 * took
        yield At(10 * number + 10, took, end, number)


def lines(record: Callable[[At], dict[str, Any]]) -> str:
    return "\n".join(json.dumps(record(at)) for at in moments()) + "\n"


def table(names: str, row: Callable[[At], str]) -> str:
    return "\n".join([names, *(row(at) for at in moments()), ""])


def columns(*figures: tuple[str, Callable[[At], Any]]) -> dict[str, list[Any]]:
    return {name: [value(at) for at in moments()] for name, value in figures}


def windows_of(log: Parsed | Run) -> tuple[np.ndarray, np.ndarray]:
    """Return the steps of windows, and the milliseconds of a step in each."""
    windows = log.intervals.filter(arrow.equal(log.intervals["kind"], "window"))
    begin, end, steps = (arrow.numbers(windows[name]) for name in ("begin", "end", "steps"))
    return steps, (end - begin) / steps / 1e6


AGREE = "agree with the lines' running time within 0.1%"
MEASURED = "are measured by the"
FIGURES: tuple[tuple[str, Callable[[At], Any]], ...] = (
    ("step", lambda at: at.step),
    ("loss", lambda at: 1.5),
    ("step_time", lambda at: at.took),
    ("elapsed_seconds", lambda at: at.end),
)
RECORDS = {
    "names with blanks": (
        table(
            "  step,  train_loss,  step_time_ms,  elapsed_s",
            lambda at: f"{at.step:7},   1.5,{1000 * at.took:9.1f},{at.end:9.2f}",
        ),
        AGREE,
    ),
    "quotes and thousands": (
        table(
            '"step","loss","step_time_ms","elapsed_s"',
            lambda at: f'"{at.step:,}","1.5","{1000 * at.took:,.1f}","{at.end:,.2f}"',
        ),
        AGREE,
    ),
    "tabs": (
        table(
            "step\tloss\tstep_time_s\telapsed_s",
            lambda at: f"{at.step}\t1.5\t{at.took:.4f}\t{at.end:.2f}",
        ),
        AGREE,
    ),
    "decimal commas": (
        table(
            "step;loss;step_time_s;elapsed_s",
            lambda at: f"{at.step};1.5;{at.took:.4f};{at.end:.2f}".replace(".", ","),
        ),
        AGREE,
    ),
    "an index without a name": (
        table(",step,loss,elapsed_s", lambda at: f"{at.number},{at.step},1.5,{at.end:.2f}"),
        MEASURED,
    ),
    "dates": (table("time,step,train_loss", lambda at: f"{at.iso},{at.step},1.5"), MEASURED),
    "half of the rows of an evaluation": (
        table(
            "epoch,step,train_loss,val_loss,train_step_time,elapsed_s",
            lambda at: f"0,{at.step},1.5,,{at.took:.4f},{at.end:.3f}\n0,{at.step},,1.4,,",
        ),
        AGREE,
    ),
    "rows of a phase": (
        table(
            "phase,step,loss,step_time,elapsed_s",
            lambda at: (
                f"train,{at.step},1.5,{at.took:.4f},{at.end:.2f}\nval,{at.step},1.2,3.5,{at.end + 1:.2f}"
            ),
        ),
        AGREE,
    ),
    "the names once more after a restart": (
        table(
            "step,loss,step_time,elapsed_s",
            lambda at: (
                f"{at.step},1.5,{at.took:.4f},{at.end:.2f}"
                + ("\nstep,loss,step_time,elapsed_s" if at.number == 50 else "")
            ),
        ),
        AGREE,
    ),
    "one metric in each row": (
        table(
            "run_id,key,value,step,timestamp",
            lambda at: "\n".join(
                f"abc,{key},0.5,{at.step},{int(1000 * (BEGAN_S + at.end))}"
                for key in ("loss", "lr")
            ),
        ),
        MEASURED,
    ),
    "nested": (
        lines(
            lambda at: {
                "ts": BEGAN_S + at.end,
                "step": at.step,
                "train": {"iter_time": at.took, "data_time": 0.2 * at.took, "loss": 2.5},
                "val": None,
            }
        ),
        "agree with the lines' timestamps within 0.1%",
    ),
    "NaN and null": (
        lines(
            lambda at: {
                "step": at.step,
                "loss": float("nan") if at.number % 7 == 0 else 1.5,
                "grad_norm": float("inf") if at.number % 9 == 0 else None,
                "step_time": None if at.number == 3 else at.took,
                "time": at.iso,
            }
        ),
        "agree with the log's timestamps within 0.1%",
    ),
    "quoted numbers after a logger's text": (
        "".join(
            f"2026-03-01 10:{int(at.end) // 60:02}:{at.end % 60:06.3f} | INFO | train_inner | "
            + json.dumps({"epoch": 1, "num_updates": str(at.step), "ups": f"{1 / at.took:.3f}"})
            + "\n"
            for at in moments()
        ),
        "agree",
    ),
    "steps as lists": (
        "".join(
            "DLLL "
            + json.dumps(
                {
                    "timestamp": f"{BEGAN_S + at.end:.6f}",
                    "elapsedtime": f"{at.end:.6f}",
                    "step": [0, at.step],
                    "data": {"train.loss": 3.5},
                }
            )
            + "\n"
            for at in moments()
        )
        + 'DLLL {"timestamp": "1772361000.5", "elapsedtime": "900", "step": [], "data": {}}\n',
        "agree",
    ),
    "records of evaluations at the same steps": (
        lines(
            lambda at: {
                "train/global_step": at.step,
                "_step": at.number,
                "_timestamp": BEGAN_S + at.end,
                "train/loss": 2.5,
                "_runtime": at.end + 3,
            }
        ).replace("}\n", "}\n", 1),
        "agree",
    ),
    "two ranks and a torn line": (
        "".join(
            2 * (json.dumps({"step": at.step, "loss": 1.5, "elapsed_s": round(at.end, 2)}) + "\n")
            for at in moments()
        )[:-20],
        MEASURED,
    ),
    "a long first record": (
        json.dumps({"type": "config", "args": {f"opt{number}": 1 for number in range(600)}})
        + "\n"
        + lines(
            lambda at: {
                "step": at.step,
                "loss": 1.5,
                "dt_ms": 1000 * at.took,
                "t": BEGAN_S + at.end,
                **{f"norm.layer{number}": 0.1 for number in range(90)},
            }
        ),
        "agree with the lines' timestamps within 0.1%",
    ),
    "nanoseconds": (
        lines(
            lambda at: {"step": at.step, "loss": 1.5, "timestamp_ns": int((BEGAN_S + at.end) * 1e9)}
        ),
        MEASURED,
    ),
    "an epoch that is a time": (
        lines(lambda at: {"step": at.step, "loss": 1.5, "epoch": BEGAN_S + at.end}),
        MEASURED,
    ),
    "the printed batch": (
        lines(
            lambda at: {
                "step": at.step,
                "loss": 1.5,
                "global_batch_size": 256,
                "step_time_ms": 1000 * at.took,
                "samples_per_second": 256 / at.took,
            }
        ),
        "rates and times agree on the batch of 256",
    ),
    "bytes that are no text": (
        table("step,loss,name\xff,elapsed_s", lambda at: f"{at.step},1.5,\xff,{at.end:.2f}"),
        MEASURED,
    ),
    "a list": (
        json.dumps([{name: value(at) for name, value in FIGURES} for at in moments()], indent=1),
        AGREE,
    ),
    "an object of columns": (json.dumps(columns(*FIGURES)), AGREE),
    "a data frame": (
        json.dumps(
            {
                name: {str(row): value for row, value in enumerate(values)}
                for name, values in columns(*FIGURES).items()
            }
        ),
        AGREE,
    ),
    "metrics one by one": (
        json.dumps(
            {
                "metrics": [
                    {
                        "key": key,
                        "value": 0.5,
                        "step": str(at.step),
                        "timestamp": int(1e3 * (BEGAN_S + at.end)),
                    }
                    for key in ("train/loss", "lr")
                    for at in moments()
                ]
            }
        ),
        MEASURED,
    ),
    "Megatron-LM's golden values": (
        json.dumps(
            {
                name: {
                    "start_step": 10,
                    "step_interval": 10,
                    "values": {
                        str(at.step): "nan" if at.number < 2 else value(at) for at in moments()
                    },
                }
                for name, value in (
                    ("lm loss", lambda at: 9.5),
                    ("iteration-time", lambda at: at.took),
                )
            }
        ),
        "as Megatron-LM's test suite prints them",
    ),
    "golden values as lists": (
        json.dumps(
            {
                name: {
                    "start_step": 0,
                    "step_interval": 10,
                    "values": [value(at) for at in moments()],
                }
                for name, value in (
                    ("lm loss", lambda at: 9.5),
                    ("iteration-time", lambda at: at.took),
                )
            }
        ),
        "as Megatron-LM's test suite prints them",
    ),
}


@pytest.mark.parametrize("name", RECORDS)
def test_records_are_read_if_their_figures_agree(name: str) -> None:
    text, check = RECORDS[name]
    data = text.encode("latin-1")
    assert PARSER.recognises("run.json", data), lacking(data)
    log = PARSER.parse("run.json", data)
    steps, ms = windows_of(log)
    assert np.average(ms, weights=steps) == pytest.approx(1000 * STEP_S, rel=0.01)
    assert steps.sum() >= 900
    assert check in log.log.facts["confirmed"]
    if name == "nested":
        assert log.log.facts["data_ms"] == pytest.approx(200 * STEP_S, rel=0.01)


@pytest.mark.parametrize("name", RECORDS)
def test_long_files_are_read_like_short_ones(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_FEW", 0)
    monkeypatch.setattr(records, "_SAMPLE_BYTES", 700)
    data = RECORDS[name][0].encode("latin-1")
    steps, ms = windows_of(PARSER.parse("run.json", data))
    assert np.average(ms, weights=steps) == pytest.approx(1000 * STEP_S, rel=0.01)


REFUSED = {
    "its records count epoch, and have neither times, rates nor timestamps": table(
        "epoch,accuracy,loss,val_loss", lambda at: f"{at.number},0.5,1.2,1.3"
    ),
    "its records count epoch and step, and have neither": table(
        "epoch,step,train_loss,val_loss", lambda at: f"0,{at.step},1.5,\n0,{at.step},,1.4"
    ),
    "is known to count steps or epochs beside relative_time and step_time": table(
        "relative_time,train_loss,step_time", lambda at: f"{at.end},1.5,{at.took}"
    ),
    "have rates (tokens_per_sec), and neither times nor timestamps": lines(
        lambda at: {"step": at.step, "loss": 1.5, "tokens_per_sec": 8192 / at.took}
    ),
    "its records are of several runs": table(
        "run_id,key,value,step,timestamp",
        lambda at: "\n".join(
            f"{run},loss,0.5,{at.step},{int(1000 * (BEGAN_S + at.end))}" for run in "ab"
        ),
    ),
    "its records count step, and have neither times": lines(
        lambda at: {
            "step": at.step,
            "train_loss": 1.5,
            "val": {"iter_time": 2, "elapsed_s": at.end},
        }
    ),
    "its records count Ray Tune's reports": table(
        "training_iteration,loss,time_this_iter_s,time_total_s",
        lambda at: f"{at.number},1.5,{10 * at.took},{at.end}",
    ),
    "100 lines about steps could be read, but nothing else": lines(
        lambda at: {
            "job": "train-data-prep",
            "batch": at.number,
            "duration_s": 10 * at.took,
            "timestamp": BEGAN_S + at.end,
        }
    ),
    "100 lines about epochs could be read, but nothing else": "\n".join(
        f"Epoch: {n} | Epoch Time: {14.5 + n % 7 / 10:.2f} s" for n in range(1, 101)
    ),
    "nothing else was found that confirms their times": table(
        "step,loss,elapsed", lambda at: f"{at.step},1.5,{at.end}"
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_other_records_are_refused_with_what_they_have_and_lack(
    reason: str, tmp_path: Path
) -> None:
    data = REFUSED[reason].encode()
    assert not PARSER.recognises("metrics.csv", data)
    (tmp_path / "metrics.csv").write_bytes(data)
    with pytest.raises(NotFoundError) as error:
        read_place(str(tmp_path / "metrics.csv"))
    assert reason in str(error.value)


def test_a_total_that_contains_the_other_times_is_that_of_the_step() -> None:
    rows = [
        {
            "step": step,
            "time/assemble": 1.2,
            "time/train": 48.5 + step % 3,
            "time/total": 380.0 + 7 * (step % 3),
            "env/pass_rate": 0.8,
            "loss": 2.5,
        }
        for step in range(12)
    ]
    data = "\n".join(map(json.dumps, rows)).encode()
    assert "rate" not in lacking(data)
    _, ms = windows_of(PARSER.parse("run.json", data))
    assert ms == pytest.approx([1e3 * row["time/total"] for row in rows])


def test_counts_in_a_group_of_times_are_no_times() -> None:
    rows = [
        f"{int(0.9 * number)},{2048 * number},{number},2.5,{10 * number}" for number in range(1, 99)
    ]
    names = "time/time_elapsed,time/total_timesteps,time/iterations,train/loss,train/n_updates"
    steps, ms = windows_of(PARSER.parse("run.csv", "\n".join([names, *rows]).encode()))
    # Each iteration has ten updates, which are the steps.
    assert np.average(ms, weights=steps) == pytest.approx(90, rel=0.05)


def test_figures_of_an_evaluation_in_a_record_name_the_time_before_it() -> None:
    """A tracker's history has the loss of an evaluation in the row that is logged after it."""
    names = "_step,_runtime,train/loss,_timestamp,eval/loss"
    rows, end = [], 0.0
    for step in range(60):
        evaluates = step % 6 == 5
        end += STEP_S * 10 + 20 * evaluates
        rows.append(f"{step},{end:.3f},2.5,{BEGAN_S + end:.3f},{0.4 if evaluates else ''}")
    data = "\n".join([names, *rows]).encode() + b"\n"
    log = PARSER.parse("history.csv", data)
    assert log.log.facts["steps_after_validation"] == [step + 1 for step in range(5, 60, 6)]


def test_seconds_of_epochs_go_on_after_a_restart() -> None:
    rows, since, end = [], 0.0, 0.0
    for at in moments(30):
        since = 0.0 if at.number == 11 else since
        since, end = since + 200 * at.took, end + 200 * at.took
        rows.append(f"{at.number + 1:23},{since:23.5g},   1.2,   0.001")
    data = "\n".join(["       epoch,        time,  train/box_loss,   lr/pg0", *rows, ""]).encode()
    assert PARSER.recognises("results.csv", data)
    epochs = PARSER.parse("results.csv", data).intervals
    took = (arrow.numbers(epochs["end"]) - arrow.numbers(epochs["begin"])) / 1e9
    assert took == pytest.approx(200 * STEP_S, rel=0.05)
    assert len(took) == 28


def test_the_clock_of_metrics_is_that_of_one_metric() -> None:
    def rows(at: At) -> Iterator[str]:
        moment = int(1000 * (BEGAN_S + at.end))
        yield f"step_time,{at.took},{at.step},{moment}"
        # The evaluation is logged later, at every tenth step.
        if at.number % 10 == 0:
            yield f"val_loss,0.5,{at.step},{moment + 90_000}"

    data = table("metric,value,step,timestamp", lambda at: "\n".join(rows(at))).encode()
    log = PARSER.parse("a.csv", data)
    assert "agree with the lines' timestamps within 0.1%" in log.log.facts["confirmed"]


# The Trainer's summary


def history(*, evaluations: bool = True) -> list[dict[str, Any]]:
    """Return what Hugging Face's Trainer logs in 1,000 steps of 0.3 s."""
    logged: list[dict[str, Any]] = []
    took = 0.0
    for at in moments():
        logged.append({"epoch": at.step / 500, "loss": 1.5, "learning_rate": 1e-5, "step": at.step})
        took = at.end
        if evaluations and at.step % 500 == 0:
            logged.append({"epoch": at.step / 500, "eval_runtime": 30.5, "step": at.step})
    took += 61.0 if evaluations else 0.0
    summary = {"train_loss": 1.1, "train_runtime": round(took, 4), "step": 1000, "epoch": 2.0}
    return [*logged, {**summary, "train_steps_per_second": round(1000 / took, 3)}]


def state(records: list[dict[str, Any]]) -> str:
    return json.dumps({"global_step": 1000, "log_history": records, "max_steps": 1000}, indent=2)


def printed(records: list[dict[str, Any]], *before: str) -> str:
    dicts = [str({name: record[name] for name in record if name != "step"}) for record in records]
    return "\n".join([*before, *dicts, ""])


STEPS = "  Total optimization steps = 1,000"


@pytest.mark.parametrize("evaluations", [True, False])
@pytest.mark.parametrize("form", ["saved", "printed", "alone", "with bars", "resumed"])
def test_the_trainers_summary_is_a_mean_over_all_steps(form: str, evaluations: bool) -> None:
    records = history(evaluations=evaluations and form in ("saved", "printed"))
    steps = 1000
    if form == "resumed":
        steps = 400
        records[-1]["train_runtime"] *= 0.4
        records[-1]["train_steps_per_second"] = round(1000 / records[-1]["train_runtime"], 3)
    text = {
        "saved": state(records),
        "printed": printed(records, STEPS),
        "alone": printed(records[-1:], STEPS),
        "with bars": printed(
            records[-1:], "0%|   | 0/100 [00:00<?, ?it/s]", "0%| | 0/1000 [00:00<?,"
        ),
        "resumed": printed(records[-1:], STEPS, "  Continuing training from global step 600"),
    }[form]
    assert PARSER.recognises("train.log", text.encode())
    log = PARSER.parse("train.log", text.encode())
    (counted,), (ms,) = windows_of(log)
    assert (counted, ms) == (steps, pytest.approx(1000 * STEP_S, rel=0.005))
    notes = " ".join(problem.what for problem in log.problems)
    assert f"one mean over {steps:,} steps" in notes
    assert ("evaluations took 61.0 s" in notes) == (len(records) > 101)


def test_the_last_of_several_summaries_counts_and_a_note_says_so() -> None:
    first = {**history()[-1], "train_runtime": 600.0, "train_steps_per_second": 1.667}
    log = PARSER.parse("train.log", printed([first, history()[-1]], STEPS).encode())
    assert windows_of(log)[1] == pytest.approx(361, rel=0.01)
    notes = " ".join(problem.what for problem in log.problems)
    assert "the log has the summaries of 2 trainings: the last one is read" in notes


def test_a_saved_summary_may_name_its_steps() -> None:
    summary = {"epoch": 1.0, "steps": 7499, "train_loss": 0.5, "train_runtime": 153878.2498}
    summary |= {"train_samples_per_second": 6.238, "train_steps_per_second": 0.049}
    data = json.dumps(summary, indent=1).encode()
    assert PARSER.recognises("train_results.json", data)
    steps, ms = windows_of(PARSER.parse("train_results.json", data))
    assert (steps.sum(), ms.mean()) == (7499, pytest.approx(20_520, rel=1e-3))


def test_a_summary_without_the_number_of_steps_is_not_confirmed() -> None:
    assert not PARSER.recognises("train.log", printed(history()[-1:]).encode())
    assert "their number was not found in the file" in lacking(printed(history()[-1:]).encode())
    (steps,), (ms,) = windows_of(PARSER.parse("train.log", printed(history()[-1:]).encode()))
    assert (steps, ms) == (pytest.approx(1000, rel=0.01), pytest.approx(361, rel=0.01))


def test_records_of_each_step_count_the_steps_of_a_summary() -> None:
    records = [{"loss": 1.5, "learning_rate": 1e-5, "epoch": n / 90} for n in range(1, 901)]
    summary = {"train_runtime": 11174.986, "train_steps_per_second": 0.081, "epoch": 10.0}
    text = printed([*records, summary]).encode()
    assert PARSER.recognises("train.log", text)
    (steps,), (ms,) = windows_of(PARSER.parse("train.log", text))
    assert (steps, ms) == (900, pytest.approx(11_174_986 / 900))
    # Those of every second step tell no number.
    assert not PARSER.recognises("train.log", printed([*records[::2], summary]).encode())


def bars(count: int) -> str:
    states = (
        f"{100 * n // 1000:3}%|██        | {n}/1000 [{int(0.3 * n) // 60:02}:{int(0.3 * n) % 60:02}"
        f"<09:59,  3.33it/s]"
        for n in range(1, count + 1)
    )
    return "train loss\n" + "\r".join(states) + "\n"


@pytest.mark.parametrize(
    ("count", "note"), [(1000, ""), (600, "has 1,000 steps, and this log 600")]
)
def test_a_saved_summary_is_no_second_run_beside_a_log(
    tmp_path: Path, count: int, note: str
) -> None:
    (tmp_path / "train.log").write_text(bars(count))
    (tmp_path / "trainer_state.json").write_text(state(history()))
    (tmp_path / "checkpoint-1000").mkdir()
    (tmp_path / "checkpoint-1000" / "trainer_state.json").write_text(state(history()))
    (run,) = read_place(str(tmp_path))
    assert [log.path for log in run.logs] == ["train.log"]
    confirmed = str(run.fact("confirmed"))
    assert ("trainer_state.json has the same 1,000 steps" in confirmed) == (not note)
    assert any(note in problem.what for problem in run.problems) or not note


def test_saved_summaries_of_one_job_are_one_run(tmp_path: Path) -> None:
    for folder in ("", "checkpoint-500", "checkpoint-1000"):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "trainer_state.json").write_text(state(history()))
    (run,) = read_place(str(tmp_path))
    assert windows_of(run)[0].tolist() == [1000]


# TensorBoard's and MLflow's metrics

Scalars = Callable[[At], dict[str, float]]


def run_of_scalars(folder: Path, scalars: Scalars) -> Run:
    series = TensorboardSeries(folder / "train")
    points = [(at.step, BEGAN_S + at.end, {"loss": 1.5, **scalars(at)}) for at in moments()]
    series.add(None, points)  # type: ignore[arg-type]  # it only writes the points
    series.close()
    (run,) = read_place(str(folder))
    return run


@pytest.mark.parametrize(
    ("scalars", "check"),
    [
        (lambda at: {"train/step_time": at.took}, "agree with the log's timestamps within 0.1%"),
        (lambda at: {"iteration-time": at.took}, "agree with the log's timestamps within 0.1%"),
        (lambda at: {"perf/step_time_ms": 1e3 * at.took} if at.number % 4 else {}, "within 0.1%"),
        (lambda at: {"train/batches_per_sec": 1 / at.took}, "rates and the log's timestamps agree"),
        (lambda at: {"train/step_time": 0.021}, ""),
        (lambda at: {"epoch_time": 10 * at.took}, ""),
        (lambda at: {"eval/step_time": at.took}, ""),
    ],
)
def test_times_of_steps_among_scalars_are_windows_if_they_agree(
    tmp_path: Path, scalars: Scalars, check: str
) -> None:
    run = run_of_scalars(tmp_path, scalars)
    steps, ms = windows_of(run)
    assert bool(len(steps)) == bool(check)
    if check:
        assert np.average(ms, weights=steps) == pytest.approx(1000 * STEP_S, rel=0.01)
        assert check in str(run.fact("confirmed"))
        assert run.started_at is not None
        assert run.started_at.year == 2026


# Records are read rightly, or not at all

CLOCKS: dict[str, Callable[[float], object]] = {
    "_timestamp": lambda end: round(BEGAN_S + end, 3),
    "elapsed_s": lambda end: round(end, 2),
    "elapsed": lambda end: round(end, 2),
    "date": lambda end: datetime.fromtimestamp(BEGAN_S + end, UTC).isoformat()[:23],
    "none": lambda end: None,
}


@pytest.mark.broad
@given(
    every=st.sampled_from([1, 5, 10, 100]),
    step_s=st.floats(0.05, 30),
    name=st.sampled_from(["step_time", "time", "iter_time_ms", "duration", "elapsed_s", "dt"]),
    meaning=st.sampled_from(["mean", "last", "total", "so far", "none"]),
    clock=st.sampled_from([*CLOCKS]),
    evaluates=st.booleans(),
    misses=st.booleans(),
    form=st.sampled_from(["table", "lines", "document"]),
)
def test_no_records_are_read_wrongly(
    every: int,
    step_s: float,
    name: str,
    meaning: str,
    clock: str,
    evaluates: bool,
    misses: bool,
    form: str,
) -> None:
    count = 40
    took = step_s * np.random.default_rng(every).uniform(0.9, 1.1, (count, every))
    sums = took.sum(axis=1)
    pauses = np.where(np.arange(count) % 5 == 4, evaluates * 2 * sums.mean(), 0.0)
    ends = np.cumsum(sums + pauses)
    values = {
        "mean": took.mean(axis=1),
        "last": took[:, -1],
        "total": sums,
        "so far": np.cumsum(sums) / every / np.arange(1, count + 1),
        "none": np.full(count, np.nan),
    }[meaning] * (1000 if name.endswith("ms") else 1)
    written: list[dict[str, Any]] = []
    for at in range(count):
        step = (at + 1) * every
        value = None if np.isnan(values[at]) or (misses and at % 9 == 4) else round(values[at], 5)
        moment = CLOCKS[clock](ends[at] - pauses[at])
        written.append({"step": step, "loss": 2 - at / 1000, clock: moment, name: value})
        if pauses[at]:
            moment = CLOCKS[clock](ends[at])
            written.append({"step": step, "eval_loss": 1.0, "eval_time": 9.5, clock: moment})
    names = list(dict.fromkeys(name for record in written for name in record))
    rows = (
        ",".join("" if record.get(name) is None else str(record[name]) for name in names)
        for record in written
    )
    text = {
        "table": "\n".join([",".join(names), *rows, ""]),
        "lines": "\n".join(map(json.dumps, written)),
        "document": json.dumps({"history": written}),
    }[form]
    if PARSER.recognises("run.json", text.encode()):
        steps, ms = windows_of(PARSER.parse("run.json", text.encode()))
        mean = float(np.average(ms, weights=steps)) / 1000
        # The time of evaluations is that of steps where only the clock tells.
        longest = (sums + pauses).sum() / count / every
        assert 0.95 * took.mean() < mean < 1.1 * longest


# Any input, and work

PIECES = (
    *[
        '"step": ',
        '"epoch": ',
        '"time": ',
        '"values": ',
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        ";",
        "'",
        '"',
        " ",
        "null",
        "NaN",
        "true",
        "1e999",
        "-1",
    ],
    *("99999999999999999999", "1772359200.5", "2026-13-45 99:99:99", '"\\ud800"', "\xff", "\0"),
    *("step,loss,time\n", '{"step": 1, "loss": 2}\n', "1,2,3\n", "\n", "\t"),
)


@given(st.lists(st.sampled_from(PIECES), max_size=60), st.integers(1, 8))
def test_any_text_is_read_or_refused(pieces: list[str], repeats: int) -> None:
    data = ("".join(pieces) * repeats).encode("latin-1")
    assert "\n" not in lacking(data)
    if PARSER.recognises("a.json", data):
        # Its lines may still have no two times.
        with contextlib.suppress(UnreadableError):
            assert PARSER.parse("a.json", data).intervals.num_rows


def test_work_grows_with_the_number_of_records_at_most() -> None:
    for text in (RECORDS["nested"][0], RECORDS["tabs"][0]):
        data = text.encode()
        rest = data.partition(b"\n")[2]
        once = calls_of(lambda data=data: best_evidence(data))
        many = calls_of(lambda data=data, rest=rest: best_evidence(data + 40 * rest))
        # Records are read block by block, not one by one.
        assert many < 3 * once
