"""Loaders alone are measured: their rate, their longest stage, and its use in the run's analysis."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from training.launching import Launch, launch

from stallscope.analysis import analyse
from stallscope.collector.store.loading import load_run
from stallscope.collector.store.run_folders import save_run
from stallscope.parsers import read

pytestmark = [pytest.mark.horovod, pytest.mark.unmeasured]

SLOW_MS = 20.0
BATCH = 4


@dataclass(frozen=True)
class Measured:
    """The results of the cases, and the folder of their logs."""

    out: Path
    cases: dict[str, Any]


def _started(folder: Path, kind: str, ranks: int = 0) -> Launch:
    return launch(folder / "printed.txt", "input_cases.py", kind, str(folder), ranks=ranks)


def _measured(folder: Path, kind: str, rank: int = 0) -> Measured:
    return Measured(folder, json.loads((folder / f"{kind}-{rank}.json").read_text()))


@pytest.fixture(scope="module")
def alone(
    training_side: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Measured]]:
    """Measure loaders of each framework in one process, both at once: they mostly sleep."""
    folders = {kind: tmp_path_factory.mktemp(kind) for kind in ("keras", "torch")}
    launches = [_started(folder, kind) for kind, folder in folders.items()]
    try:
        for launched in launches:
            launched.succeed()
        yield {kind: _measured(folder, kind) for kind, folder in folders.items()}
    finally:
        for launched in launches:
            launched.end()


@pytest.fixture(scope="module")
def keras(alone: dict[str, Measured]) -> Measured:
    return alone["keras"]


@pytest.fixture(scope="module")
def torch(alone: dict[str, Measured]) -> Measured:
    return alone["torch"]


@pytest.fixture(scope="module")
def ranks(training_side: None, tmp_path_factory: pytest.TempPathFactory) -> list[Measured]:
    folder = tmp_path_factory.mktemp("ranks")
    _started(folder, "torch", ranks=2).succeed()
    return [_measured(folder, "torch", rank) for rank in range(2)]


def longest(case: dict[str, Any]) -> tuple[str, str]:
    kind, name, _ = max(case["stages"], key=lambda stage: stage[2])
    return kind, name


def test_each_stage_of_a_tf_data_pipeline_is_measured(keras: Measured) -> None:
    case = keras.cases["pipeline"]
    assert [(kind, name) for kind, name, _ in case["stages"]] == [
        ("read", "Interleave(TextLineDatasetV2)"),
        ("other", "Shard"),
        ("decode", "Map(of_keras.decode)"),
        ("augment", "ParallelMap(of_keras.slow_augment)"),
        ("shuffle", "Shuffle"),
        ("batch", "Batch(4)"),
    ]
    assert longest(case) == ("augment", "ParallelMap(of_keras.slow_augment)")
    assert (case["batches"], case["samples"], case["no_stages"]) == (20, BATCH, None)
    assert "← longest" in case["text"]
    # Two calls of the slow function run at once, which limits the rate.
    assert case["rate"] <= 1e3 / (BATCH / 2 * SLOW_MS)


def test_data_without_known_stages_has_the_reason(keras: Measured) -> None:
    assert [stage[:2] for stage in keras.cases["filtered"]["stages"]] == [
        ["read", "Filter(of_keras.lambda)"],
        ["batch", "Batch(4)"],
    ]
    assert "Filter contains the operations before it" in keras.cases["filtered"]["no_stages"]
    assert "does not show what it is made of" in keras.cases["generator"]["no_stages"]
    assert "does not show what it is made of" in keras.cases["sequence"]["no_stages"]
    assert keras.cases["from_generator"]["stages"][0][:2] == ["read", "from_generator"]


@pytest.mark.parametrize(
    ("case", "batches"), [("tiny", 3), ("generator", 6), ("from_generator", 6), ("sequence", 5)]
)
def test_short_data_is_measured_to_its_end(keras: Measured, case: str, batches: int) -> None:
    measurement = keras.cases[case]
    assert (measurement["batches"], measurement["ended"]) == (batches, True)
    assert measurement["rate"] > 0
    assert "the data has ended" in measurement["text"]


def test_one_batch_has_no_rate(keras: Measured) -> None:
    assert keras.cases["one"]["rate"] is None
    assert "no rate" in keras.cases["one"]["text"]
    assert keras.cases["one"]["no_stages"] == "too few batches came to measure anything"


def test_a_cache_in_a_file_stays_complete(keras: Measured) -> None:
    assert keras.cases["cached"]["after"] == 100


def test_data_that_raises_is_one_warning(keras: Measured, torch: Measured) -> None:
    case = keras.cases["raises"]
    assert case["error"].startswith("the data raised at batch 2: InvalidArgumentError: ")
    assert len(case["warnings"]) == 1
    assert case["warnings"][0].endswith("training is not touched")
    assert keras.cases["warnings"] == case["warnings"]
    case = torch.cases["raises"]
    assert case["error"] == "the data raised at batch 5: OSError: image 21 is damaged"
    assert case["warnings"] == [
        f"stallscope: measure_input: {case['error']}; training is not touched"
    ]


def test_invalid_arguments_raise(keras: Measured, torch: Measured) -> None:
    arrays, few, word, folder = keras.cases["refused"]
    assert "arrays are in memory" in arrays
    assert few == "steps is a number of batches from 2 on, not 1"
    assert word == "steps is a number of batches, not 'many'"
    assert folder == "log_dir is the folder of the run's logs, not 3"
    assert torch.cases["refused"] == ["data must be an iterable of batches; int is not iterable"]


def test_measurements_belong_to_the_run_of_the_process(keras: Measured) -> None:
    """One is made before the recording, without a folder, and one after it."""
    assert keras.cases["pipeline"]["path"] is None
    [run] = read(str(keras.out / "keras_run"))
    assert run.problems == ()
    assert [measurement.batches + measurement.warm_up for measurement in run.input_times] == [
        20,
        20,
    ]
    assert Path(keras.cases["after"]["path"]).parent == keras.out / "keras_run"
    assert len({measurement.path for measurement in run.input_times}) == 2


def test_the_verdict_names_the_longest_stage_and_advises_on_it(keras: Measured) -> None:
    [run] = read(str(keras.out / "keras_run"))
    analysis = analyse(run)
    assert analysis.bottleneck.kind == "input"
    assert "less than the" in analysis.bottleneck.evidence
    assert (
        "longest stage is augment: ParallelMap(of_keras.slow_augment)"
        in analysis.bottleneck.evidence
    )
    assert str(analysis.bottleneck.advice[0]).startswith("Augmentation takes longest")
    assert analysis.input_rates is not None
    assert analysis.input_rates.enough is False


def test_transforms_are_timed_one_by_one(torch: Measured) -> None:
    for name, whole in (("transforms", "Images"), ("subset", "Subset")):
        kinds = [tuple(stage[:2]) for stage in torch.cases[name]["stages"]]
        assert kinds[0] == ("read", f"{whole}.__getitem__")
        assert kinds[-1] == ("batch", "default_collate")
        assert ("decode", "of_torch.to_tensor") in kinds
        assert longest(torch.cases[name]) == ("augment", "RandomFlip")


def test_functions_of_a_data_set_without_transforms_are_timed(torch: Measured) -> None:
    assert longest(torch.cases["own"])[1] == "of_torch.Own.turned"
    assert longest(torch.cases["stream"]) == ("decode", "of_torch.Stream.parsed")


def test_workers_and_short_loaders_are_the_reason_for_missing_stages(torch: Measured) -> None:
    assert "2 workers share them" in torch.cases["workers"]["no_stages"]
    assert torch.cases["unbatched"]["stages"][0][:2] == ["read", "Images.__getitem__"]
    assert torch.cases["tiny"]["no_stages"] == "too few batches to measure stages"
    assert torch.cases["empty"]["rate"] is None
    assert torch.cases["generator"]["batches"] == 6


def test_petastorms_queue_shows_which_side_is_slow(torch: Measured) -> None:
    slow, fast, none = (
        torch.cases[name]["no_stages"] for name in ("slow_pool", "fast_pool", "no_queue")
    )
    assert "Petastorm's pool (ThreadPool of 1): " in slow
    assert " row groups of at most 10 waited on average" in slow
    assert "the pool, which reads and decodes, takes most" in slow
    assert "the work after it takes most" in fast
    assert "training needs another one" in fast
    assert "the length of its queue is unknown" in none
    assert torch.cases["no_queue"]["batches"] == 160


def test_measuring_does_not_change_random_numbers_or_the_profiler(torch: Measured) -> None:
    assert torch.cases["same_numbers"]
    assert torch.cases["profile"]


def test_measurements_of_ranks_at_the_same_time_are_recognised(
    ranks: list[Measured], tmp_path: Path
) -> None:
    assert all(rank.cases["warnings"] == [] for rank in ranks)
    [run] = read(str(ranks[0].out / "ranks_run"))
    assert [measurement.rank for measurement in run.input_times] == [0, 1]
    analysis = analyse(run)
    assert analysis.input_rates is not None
    assert analysis.input_rates.at_once
    assert analysis.input_rates.longest is not None
    assert analysis.input_rates.longest.name == "RandomFlip"
    assert load_run(save_run(run, tmp_path)).input_times == run.input_times


def test_the_log_has_the_recorders_cost(ranks: list[Measured], keras: Measured) -> None:
    for folder, turns in ((ranks[0].out / "ranks_run", 40), (keras.out / "keras_run", 120)):
        [run] = read(str(folder))
        assert sorted(run.recorder_cost) == run.ranks
        for cost in run.recorder_cost.values():
            assert cost["turns"] == turns
            assert cost["host_us_median"] > 0
            assert cost["bytes"] > cost["flushes"] > 0
