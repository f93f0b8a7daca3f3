"""MLflow's metrics are read as epochs if they mark their ends, and otherwise as means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.epoch_logs import epoch_times_of

from stallscope.analysis import analyse
from stallscope.collector.mlflow.metrics import MlflowRecord, checked_record_file, metrics_to_read
from stallscope.errors import NotFoundError, StallscopeError
from stallscope.parsers.formats.mlflow import MlflowMetricsParser
from stallscope.parsers.registry import recognise
from stallscope.parsers.runs.epoch_runs import as_runs
from stallscope.parsers.runs.grouping import group
from stallscope.run import Run

#: Servers' answers about runs that MLflow 2.22.5 (TensorFlow 2.15.1) and 3.17.2 (Keras 3.15.1,
#: Lightning 2.6.6) autologged: epochs of 20 steps, each of more than 20 ms.
LOGGED: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent / "mlflow_runs.json").read_text()
)
PARSER = MlflowMetricsParser()
START = 1_795_000_000_000


def run_of_metrics(answer: dict[str, Any]) -> Run:
    """Parse a server's answer about a run."""
    metrics = answer["metrics"]
    known = MlflowRecord(
        where="mlflow:abc",
        run_id="abc",
        run_name="a run",
        status=answer.get("status", "FINISHED"),
        start_ms=answer.get("start_ms", START),
        end_ms=answer.get("end_ms"),
        params=answer.get("params", {}),
        training_data=answer.get("training_data", {}),
        metrics={name: metrics[name] for name in metrics_to_read(metrics)},
        metric_names=sorted(metrics),
        artifacts=0,
        possible_logs=0,
    )
    file = checked_record_file(known)
    assert recognise(file.name, file.read()[:4096]) is not None
    parsed = PARSER.parse(file.name, file.read())
    (run,) = group("mlflow:abc", as_runs([(file.where, log) for log in (parsed, *parsed.more)]), [])
    return run


def history(*values: tuple[int, int]) -> list[list[float]]:
    """Return seconds after the start, and step."""
    return [[START + 1000 * seconds, step, 0.5] for seconds, step in values]


@pytest.mark.parametrize(
    ("name", "framework", "took"),
    [
        ("tensorflow", "tensorflow", [0.524, 0.505, 0.504]),
        ("tensorflow dataset", "tensorflow", [0.506, 0.693, 0.588]),
        ("keras", "keras", [0.392, 0.394, 0.387]),
        ("lightning", "pytorch", [0.718, 0.623, 0.611]),
        ("lightning steps and epochs", "pytorch", [0.621, 0.634, 0.772]),
        ("lightning logger", None, [2.945, 4.58, 2.359]),
    ],
)
def test_logged_epochs_are_those_after_the_first(
    name: str, framework: str | None, took: list[float]
) -> None:
    run = run_of_metrics(LOGGED[name])
    times = epoch_times_of(run)
    # The start of the first epoch is not logged.
    assert [epoch.epoch for epoch in times.epochs] == [1, 2, 3]
    assert [epoch.s for epoch in times.epochs] == pytest.approx(took)
    assert times.mean_s == pytest.approx(sum(took) / 3)
    assert (times.known_from, times.precision) == ("MLflow's metrics", "epochs, to the millisecond")
    assert run.fact("framework") == framework
    assert run.steps.num_rows == 0
    assert (run.id, run.name, run.status) == ("abc", "a run", "completed")


def test_start_and_end_of_the_run_are_the_jobs() -> None:
    answer = LOGGED["tensorflow"]
    run = run_of_metrics(answer)
    assert run.started_at is not None
    assert run.started_at.timestamp() * 1000 == pytest.approx(answer["start_ms"])
    assert analyse(run).job.total == (answer["end_ms"] - answer["start_ms"]) / 1000
    assert run_of_metrics({**answer, "status": "RUNNING", "end_ms": None}).status == "open"


@pytest.mark.parametrize(
    ("name", "steps", "batch"),
    [("tensorflow", 20, 32), ("tensorflow dataset", 10, 64), ("keras", 18, 32)],
)
def test_steps_and_samples_are_known_from_autologging(name: str, steps: int, batch: int) -> None:
    run = run_of_metrics(LOGGED[name])
    times = epoch_times_of(run)
    assert times.mean_s is not None
    assert run.fact("steps_per_epoch") == steps
    assert run.fact("batch_size") == batch
    assert times.step_ms == pytest.approx(1000 * times.mean_s / steps)
    assert times.samples_per_second_per_rank == pytest.approx(batch * steps / times.mean_s)
    # The number of ranks is unknown.
    assert analyse(run).samples_per_second is None


@pytest.mark.parametrize(
    ("name", "step_ms"),
    [
        ("tensorflow every 5 steps", 69.107),
        ("keras every 5 steps", 24.8),
        ("lightning steps and epochs", 32.533),
        ("lightning logger", 174.2),
    ],
)
def test_metrics_of_steps_give_a_mean_and_no_rows(name: str, step_ms: float) -> None:
    run = run_of_metrics(LOGGED[name])
    assert epoch_times_of(run).step_ms == pytest.approx(step_ms, abs=0.001)
    assert run.steps.num_rows == 0
    if "every" in name:
        assert epoch_times_of(run).epochs == ()
        assert epoch_times_of(run).precision == "a mean over 75 steps"
        assert "how long a step took on average" in analyse(run).bottleneck.evidence


def test_repeated_values_of_the_best_epoch_are_not_an_epoch() -> None:
    times = epoch_times_of(run_of_metrics(LOGGED["tensorflow stopped early"]))
    assert [epoch.epoch for epoch in times.epochs] == [1, 2, 3]


def test_an_ambiguous_metric_is_reported() -> None:
    run = run_of_metrics(
        {"metrics": {"loss": history(*((second, second) for second in range(50)))}}
    )
    times = epoch_times_of(run)
    assert times.metric_step_ms == 1000
    assert (times.epochs, times.mean_s, times.step_ms) == ((), None, None)
    assert "whether they are epochs or steps of training is not known" in times.precision
    assert "how often a metric was logged" in analyse(run).bottleneck.evidence


@pytest.mark.parametrize(
    ("metrics", "params", "epochs"),
    [
        # A validation metric with a value at every step.
        ({"loss": [(5, 0), (9, 1)], "val_loss": [(5, 0), (9, 1)]}, {}, [1]),
        # The number of epochs among the params; epochs counted from 1.
        ({"loss": [(5, 1), (9, 2)]}, {"num_epochs": "2"}, [1]),
        # The name decides.
        ({"train_loss_epoch": [(5, 0), (9, 1)]}, {}, [1]),
        # More than the planned number, or not consecutive.
        ({"loss": [(5, 0), (9, 1), (10, 2)]}, {"epochs": "1"}, []),
        ({"loss": [(5, 0), (9, 5)]}, {"epochs": "20"}, []),
        # Validated at times.
        ({"loss": [(1, 0), (2, 1), (3, 2)], "val_loss": [(1, 0), (3, 2)]}, {}, []),
        # Two fits into one run.
        (
            {"epoch_loss": [(5, 0), (9, 1), (15, 0), (19, 1), (23, 2)]},
            {},
            [1, 1, 2],
        ),
        # Two processes that log at nearly the same time.
        ({"epoch_loss": [(5, 0), (6, 0), (9, 1), (10, 1)]}, {}, [1]),
    ],
)
def test_epochs_are_distinguished_from_steps(
    metrics: dict[str, list[tuple[int, int]]], params: dict[str, str], epochs: list[int]
) -> None:
    histories = {name: history(*values) for name, values in metrics.items()}
    times = epoch_times_of(run_of_metrics({"metrics": histories, "params": params}))
    assert [epoch.epoch for epoch in times.epochs] == epochs
    assert {epoch.s for epoch in times.epochs} <= {4}


def test_epochs_of_values_per_step_need_their_ends() -> None:
    fractions = [[START + 1000 * n, 10 * n, n / 7] for n in range(20)]
    answer = {"loss": history(*((n, 10 * n) for n in range(20))), "epoch": fractions}
    times = epoch_times_of(run_of_metrics({"metrics": answer, "params": {"num_train_epochs": "3"}}))
    assert (times.epochs, times.step_ms) == ((), 100)


def test_values_of_many_processes_at_once_are_ignored() -> None:
    mixed = history(*((second, step) for second in range(40) for step in (9, 3)))
    with pytest.raises(NotFoundError, match="there is no step log in this run"):
        run_of_metrics({"metrics": {"epoch_loss": mixed}})


@pytest.mark.parametrize(
    "metrics",
    [
        {},
        {"loss": history((5, 0))},
        {"loss": history((5, 3), (9, 3))},
        {"system/cpu": history((5, 0), (9, 1)), "stallscope.size": history((5, 0), (9, 1))},
    ],
)
def test_without_times_the_sentence_names_the_metrics(metrics: dict[str, Any]) -> None:
    with pytest.raises(NotFoundError) as caught:
        run_of_metrics({"metrics": metrics, "params": {"batch": "32"}})
    assert "it has no artifacts, " in str(caught.value)
    assert "1 param (batch)" in str(caught.value)


def test_few_metrics_are_requested_and_the_most_useful_first() -> None:
    names = [f"a{number}" for number in range(50)] + ["loss", "system/gpu", "stallscope.size"]
    assert metrics_to_read(names)[0] == "loss"
    assert len(metrics_to_read(names)) == 16
    assert not any(name.startswith(("system/", "stallscope.")) for name in metrics_to_read(names))


def test_losses_that_are_not_numbers_count_as_values() -> None:
    answer = {**LOGGED["tensorflow"], "metrics": {**LOGGED["tensorflow"]["metrics"]}}
    answer["metrics"]["loss"] = [
        [ms, step, float("nan")] for ms, step, _ in answer["metrics"]["loss"]
    ]
    assert len(epoch_times_of(run_of_metrics(answer)).epochs) == 3


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
_HISTORY = st.lists(
    st.tuples(st.integers(-5, 2**50), st.integers(-5, 60) | st.integers(), st.floats()).map(list)
    | _JSON,
    max_size=12,
)
_NAMES = st.sampled_from(["loss", "val_loss", "epoch", "train_epoch", "stopped_epoch", "x_step"])


@pytest.mark.broad
@given(
    st.fixed_dictionaries(
        {"run_id": st.just("r") | _JSON},
        optional={
            "metrics": st.dictionaries(_NAMES, _HISTORY) | _JSON,
            "params": st.dictionaries(
                st.sampled_from(["epochs", "batch_size", "world_size", "validation_split"]),
                st.sampled_from(["3", "-1", "nan", "1e400", "None", "0", "0.5", str(2**51)])
                | _JSON,
            )
            | _JSON,
            "training_data": st.fixed_dictionaries({"features_shape": _JSON}) | _JSON,
            "metric_names": _JSON,
            "start_ms": _JSON,
            "end_ms": _JSON,
            "status": _JSON,
        },
    )
)
def test_nothing_crashes_the_parser(answer: dict[str, Any]) -> None:
    data = b'{"stallscope_mlflow": 1,' + json.dumps(answer).encode()[1:]
    try:
        parsed = PARSER.parse("metrics.mlflow.json", data)
        logs = as_runs([("mlflow:r", log) for log in (parsed, *parsed.more)])
    except StallscopeError:
        return
    (run,) = group("mlflow:r", logs, [])
    assert analyse(run).bottleneck.kind == "insufficient_data"


@given(st.binary(max_size=40))
def test_no_bytes_crash_it(rest: bytes) -> None:
    with pytest.raises(StallscopeError):
        PARSER.parse("metrics.mlflow.json", b'{"stallscope_mlflow": 1,' + rest)


def test_step_times_that_agree_with_the_times_of_logging_are_steps() -> None:
    ends = range(3, 303, 3)
    metrics = {
        "train/loss": history(*((end, 10 * at) for at, end in enumerate(ends))),
        "train/step_time": [
            [START + 1000 * end, 10 * at, 0.3 + at % 5 / 1e4] for at, end in enumerate(ends)
        ],
    }
    run = run_of_metrics({"metrics": metrics})
    windows = [row for row in run.intervals.to_pylist() if row["kind"] == "window"]
    assert len(windows) == 100
    assert run.fact("step_ms") == pytest.approx(300, rel=0.001)
    assert "agree with the log's timestamps" in run.fact("confirmed")
    assert run.fact("known_from") == "MLflow's metrics"
    # The clock is that of the run.
    assert windows[-1]["end"] == 300 * 10**9
    metrics["train/step_time"] = [[START + 1000 * end, end, 0.7011] for end in ends]
    assert run_of_metrics({"metrics": metrics}).fact("confirmed") is None
