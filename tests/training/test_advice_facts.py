"""The recorder sees the facts that advice rests on, and good trainings get no advice."""

from __future__ import annotations

from pathlib import Path

import pytest
from training.launching import launch
from training.recorded import Fit, Recorded, fits_of

from stallscope.analysis import analyse
from stallscope.parsers import read
from stallscope.run import Run

pytestmark = [pytest.mark.horovod, pytest.mark.cases, pytest.mark.unmeasured]

#: Two ranks on a few CPU cores without a baseline always have these findings.
ALWAYS = {"threads_oversubscribed", "no_baseline"}
KERAS = {"well": "trained_well", "badly": "trained_badly", "again": "trained_several_times"}


@pytest.fixture(scope="module")
def logs(recorded: Recorded, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the folders with the logs of all trainings, by name."""
    torch = tmp_path_factory.mktemp("advice")
    launch(torch / "printed.txt", "advice_torch.py", str(torch), ranks=2).succeed()
    for case in KERAS.values():
        recorded.result(case)
    return {
        **{f"keras {name}": recorded.logs(case) for name, case in KERAS.items()},
        **{f"torch {name}": torch / name for name in ("well", "badly")},
    }


def run_in(folder: Path) -> Run:
    """Read a run without any problem."""
    (run,) = read(str(folder))
    assert run.problems == ()
    return run


def fits(folder: Path) -> list[Fit]:
    return fits_of(run_in(folder))


BOTH_BADLY = {
    "weights_differ",
    "learning_rates_differ",
    "same_order_every_epoch",
    "sparse_gradients",
}


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        ("keras well", set()),
        ("keras badly", {*BOTH_BADLY, "metrics_not_averaged"}),
        ("keras again", {"broadcast_in_every_fit"}),
        ("torch well", set()),
        ("torch badly", BOTH_BADLY),
    ],
)
def test_each_mistake_is_a_finding_and_nothing_else(
    logs: dict[str, Path], training: str, expected: set[str]
) -> None:
    codes = {finding.code for finding in analyse(run_in(logs[training])).findings}
    assert codes - ALWAYS == expected


def test_callbacks_are_recorded_in_their_order(logs: dict[str, Path]) -> None:
    good, bad = fits(logs["keras well"])[0].facts, fits(logs["keras badly"])[0].facts
    assert good["callbacks"] == [
        {"name": "horovod.BroadcastGlobalVariablesCallback"},
        {"name": "horovod.MetricAverageCallback"},
        {"name": "stallscope.StepLogger"},
        {"name": "keras.ReduceLROnPlateau", "monitor": "loss"},
        {"name": "keras.History"},
    ]
    # A user's class has the name of its base class.
    assert {"name": "keras.EarlyStopping", "monitor": "loss"} in bad["callbacks"]
    assert (good["broadcasts"], bad["broadcasts"]) == (1, 0)


def test_how_keras_data_is_shuffled_is_recorded(logs: dict[str, Path]) -> None:
    expected = {"keras well": "anew", "keras badly": "alike", "keras again": "never"}
    for training, shuffled in expected.items():
        assert {fit.facts["shuffled"] for fit in fits(logs[training])} == {shuffled}


def test_the_operations_of_a_keras_pipeline_are_recorded_in_order(logs: dict[str, Path]) -> None:
    good, bad, again = (fits(logs[f"keras {name}"])[0].facts for name in KERAS)
    assert good["pipeline"] == [
        *("TensorSlice", "Shuffle", "ParallelMap", "Batch", "Prefetch", "Options")
    ]
    assert bad["pipeline"] == ["TensorSlice", "Shuffle", "Cache", "Batch"]
    assert again["pipeline"] is None
    assert (good["loader_threads"], bad["loader_threads"], again["loader_threads"]) == (2, 0, None)
    assert good["compute_dtypes"] == ["float32"]


@pytest.mark.parametrize("framework", ["keras", "torch"])
def test_compression_is_recorded(logs: dict[str, Path], framework: str) -> None:
    compressions = [
        fits(logs[f"{framework} {name}"])[0].facts["compression"] for name in ("well", "badly")
    ]
    assert compressions == ["fp16", "none"]


def test_the_epochs_of_a_sampler_are_recorded(logs: dict[str, Path]) -> None:
    for training, epochs in (("torch well", [0, 1, 2]), ("torch badly", [0, 0, 0])):
        for fit in fits(logs[training]):
            assert [order["drawn"] for order in fit.facts["orders"]] == [
                [0, epoch] for epoch in epochs
            ]


def test_learning_rates_are_recorded_when_they_change(logs: dict[str, Path]) -> None:
    steady, changed = (fit.facts["learning_rates"] for fit in fits(logs["torch badly"]))
    assert steady == [[1, 0.1]]
    assert changed == [[1, 0.1], [2, 0.05]]


@pytest.mark.parametrize(
    ("framework", "name"), [("keras", "embedding/embeddings"), ("torch", "0.weight")]
)
def test_sparse_gradients_are_recorded_with_their_rows(
    logs: dict[str, Path], framework: str, name: str
) -> None:
    for fit in fits(logs[f"{framework} badly"]):
        assert fit.facts["sparse_gradients"] == {
            "count": 1,
            "largest": [{"name": name, "shape": [30, 16], "itemsize": 4, "rows": 40}],
        }
    for fit in fits(logs[f"{framework} well"]):
        assert fit.facts["sparse_gradients"] == {"count": 0, "largest": []}


@pytest.mark.parametrize("framework", ["keras", "torch"])
def test_the_library_that_horovod_reduces_with_is_recorded(
    logs: dict[str, Path], framework: str
) -> None:
    assert fits(logs[f"{framework} well"])[0].facts["reduces_with"] == ["gloo"]


def test_facts_are_recorded_once_per_epoch_and_not_in_each_step(logs: dict[str, Path]) -> None:
    for rank in range(2):
        (log,) = logs["keras badly"].glob(f"rank-0000{rank}.*.csv")
        facts = [line for line in log.read_text().splitlines() if line.startswith("#facts ")]
        # At the start, with and after the first of 24 steps, at most once in each of four epochs, and at
        # the end.
        assert len(facts) < 13
