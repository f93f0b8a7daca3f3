"""What advice rests on is seen in real trainings, and nothing of it in those that do as they should."""

from __future__ import annotations

from pathlib import Path

import pytest
from training.launching import launch
from training.recorded import Fit, fits_of

from stallscope.analysis import analyse
from stallscope.parsers import read
from stallscope.run import Run

pytestmark = [pytest.mark.horovod, pytest.mark.unmeasured]

PATIENCE_SECONDS = 240.0
#: That two ranks train side by side on a few CPU cores, without a baseline, says nothing here.
ELSEWHERE = {"threads_oversubscribed", "no_baseline"}


@pytest.fixture(scope="module")
def out(training_side: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("advice")
    for kind in ("keras", "torch"):
        launched = launch(folder / f"{kind}.txt", "advice_cases.py", kind, str(folder), ranks=2)
        launched.succeed(PATIENCE_SECONDS)
    return folder


def run_of_case(out: Path, case: str) -> Run:
    """Read what a case recorded, without any problem."""
    (run,) = read(str(out / case))
    assert run.problems == ()
    return run


def fits(out: Path, case: str) -> list[Fit]:
    return fits_of(run_of_case(out, case))


def codes(out: Path, case: str) -> set[str]:
    return {one.code for one in analyse(run_of_case(out, case)).findings} - ELSEWHERE


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("keras_good", set()),
        (
            "keras_bad",
            {
                "weights_differ",
                "learning_rates_differ",
                "metrics_not_averaged",
                "same_order_every_epoch",
                "sparse_gradients",
            },
        ),
        ("keras_again", {"broadcast_in_every_fit"}),
        ("torch_good", set()),
        (
            "torch_bad",
            {
                "weights_differ",
                "learning_rates_differ",
                "same_order_every_epoch",
                "sparse_gradients",
            },
        ),
    ],
)
def test_what_is_done_badly_is_found_and_nothing_else(
    out: Path, case: str, expected: set[str]
) -> None:
    assert codes(out, case) == expected


def test_callbacks_are_told_in_their_order(out: Path) -> None:
    good, bad = fits(out, "keras_good")[0].facts, fits(out, "keras_bad")[0].facts
    assert good["callbacks"] == [
        {"name": "horovod.BroadcastGlobalVariablesCallback"},
        {"name": "horovod.MetricAverageCallback"},
        {"name": "stallscope.StepLogger"},
        {"name": "keras.ReduceLROnPlateau", "monitor": "loss"},
        {"name": "keras.History"},
    ]
    # A class of the user's own is told by what it is derived from.
    assert {"name": "keras.EarlyStopping", "monitor": "loss"} in bad["callbacks"]
    assert (good["broadcasts"], bad["broadcasts"]) == (1, 0)


def test_how_keras_data_is_shuffled(out: Path) -> None:
    expected = {"keras_good": "anew", "keras_bad": "alike", "keras_again": "never"}
    for case, shuffled in expected.items():
        assert {fit.facts["shuffled"] for fit in fits(out, case)} == {shuffled}


def test_a_keras_pipeline_is_told_from_its_source_on(out: Path) -> None:
    good, bad, again = (
        fits(out, case)[0].facts for case in ("keras_good", "keras_bad", "keras_again")
    )
    assert good["pipeline"] == [
        *("TensorSlice", "Shuffle", "ParallelMap", "Batch", "Prefetch", "Options")
    ]
    assert bad["pipeline"] == ["TensorSlice", "Shuffle", "Cache", "Batch"]
    assert again["pipeline"] is None
    assert (good["loader_threads"], bad["loader_threads"], again["loader_threads"]) == (2, 0, None)
    assert good["compute_dtypes"] == ["float32"]


def test_what_makes_gradients_smaller_is_told(out: Path) -> None:
    for kind in ("keras", "torch"):
        told = [fits(out, f"{kind}_{case}")[0].facts["compression"] for case in ("good", "bad")]
        assert told == ["fp16", "none"]


def test_a_samplers_epochs_are_told(out: Path) -> None:
    for case, epochs in (("torch_good", [0, 1, 2]), ("torch_bad", [0, 0, 0])):
        for fit in fits(out, case):
            assert [one["drawn"] for one in fit.facts["orders"]] == [[0, epoch] for epoch in epochs]


def test_rates_are_told_where_they_change(out: Path) -> None:
    steady, changed = (fit.facts["learning_rates"] for fit in fits(out, "torch_bad"))
    assert steady == [[1, 0.1]]
    assert changed == [[1, 0.1], [2, 0.05]]


@pytest.mark.parametrize(
    ("kind", "name"), [("keras", "embedding_1/embeddings"), ("torch", "0.weight")]
)
def test_gradients_that_are_gathered_are_told_with_their_rows(
    out: Path, kind: str, name: str
) -> None:
    for fit in fits(out, f"{kind}_bad"):
        assert fit.facts["sparse_gradients"] == {
            "count": 1,
            "largest": [{"name": name, "shape": [30, 16], "itemsize": 4, "rows": 40}],
        }
    for fit in fits(out, f"{kind}_good"):
        assert fit.facts["sparse_gradients"] == {"count": 0, "largest": []}


def test_what_horovod_reduces_with_is_told(out: Path) -> None:
    for case in ("keras_good", "torch_good"):
        assert fits(out, case)[0].facts["reduces_with"] == ["gloo"]


def test_facts_are_gathered_once_and_not_in_every_step(out: Path) -> None:
    for rank in range(2):
        (log,) = (out / "keras_bad").glob(f"rank-0000{rank}.*.csv")
        facts = [line for line in log.read_text().splitlines() if line.startswith("#facts ")]
        # Those of the first step, at most one for each of four epochs, and the end's; of 24 steps.
        assert len(facts) < 12
