"""Streams of WebDataset, Hugging Face and Ray Data show what is slow: shards, workers, stages."""

from __future__ import annotations

import pytest
from training.environments import RAY, needs
from training.recorded import Recorded, figures_of, reasons_of, record_cases

from stallscope.analysis import analyse

pytestmark = [pytest.mark.frameworks, pytest.mark.unmeasured]

#: As in iterable_cases.py.
SLEEP_US, SLOW_US = 8 * 5_000.0, 8 * 20_000.0
CASES = (
    *("web_dataset", "slow_shard", "few_shards", "sliced"),
    *("hugging_face", "ray_data", "other_loader"),
)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    needs(RAY)
    folder = tmp_path_factory.mktemp("iterable")
    return record_cases(
        folder,
        "iterable_cases.py",
        environment=RAY,
        RAY_USAGE_STATS_ENABLED="0",
        OMP_NUM_THREADS="1",
    )


@pytest.mark.parametrize("case", CASES)
def test_recording_changes_no_batch(recorded: Recorded, case: str) -> None:
    result = recorded.result(case)
    assert result["batches"] == result["silent"]
    assert len(result["batches"]) > 1
    assert result["logged"] == []


def test_a_loader_that_keeps_up_is_accused_of_nothing(recorded: Recorded) -> None:
    figures = figures_of(recorded, "web_dataset")
    assert figures["reason"] is None
    # 12 batches of each shard.
    assert (figures["worker_batches"], figures["asked"]) == ([24, 24], 47)
    assert figures["workers_without_data"] == []
    assert figures["shards"]["known"] == 4
    assert {
        code for code in reasons_of(recorded, "web_dataset") if code.startswith("loader_")
    } == set()


def test_a_slow_shard_is_named(recorded: Recorded) -> None:
    shards = figures_of(recorded, "slow_shard")["shards"]
    name, worker, batches, us = shards["slowest"][0]
    assert name.startswith("train-3.tar")
    assert (shards["known"], worker) == (6, 0)
    # The first batch of a shard opens it, and some are timed by function.
    assert 8 <= batches <= 11
    assert us >= SLOW_US
    assert shards["us"] >= SLEEP_US
    reasons = reasons_of(recorded, "slow_shard")
    assert "a batch of shard train-3.tar" in reasons["loader_slow_shard"]
    assert "loader_slow_worker" not in reasons


def test_stages_of_a_pipeline_are_named_by_what_they_call(recorded: Recorded) -> None:
    functions = dict(figures_of(recorded, "few_shards")["functions"])
    assert functions["augment"] > 0.5
    assert "next" not in functions
    functions = dict(figures_of(recorded, "hugging_face")["functions"])
    assert functions["augment"] > 0.1


def test_workers_without_a_shard_are_counted(recorded: Recorded) -> None:
    figures = figures_of(recorded, "few_shards")
    assert figures["workers_without_data"] == [2, 3]
    assert figures["worker_batches"] == [48, 48]
    verdict = analyse(recorded.run("few_shards")).bottleneck
    [reason] = [reason for reason in verdict.why if reason.code == "loader_few_shards"]
    assert reason.text == "Rank 0: 2 of 4 workers have no data: the data set has shards for 2."
    assert "Give the DataLoader more workers" not in {advice.action for advice in verdict.advice}


def test_a_pipeline_after_the_workers_hides_waits_only(recorded: Recorded) -> None:
    figures = figures_of(recorded, "sliced")
    assert figures["worker_batches"] == [48, 48]
    assert (figures["asked"], figures["waited_us"]) == (0, None)
    assert (
        figures["reason"] == "a WebLoader may take batches ahead, so the waits for them are unknown"
    )


def test_shards_of_a_hugging_face_stream_are_named(recorded: Recorded) -> None:
    shards = figures_of(recorded, "hugging_face")["shards"]
    name, worker, _, us = shards["slowest"][0]
    assert (shards["known"], name, worker) == (6, "part-3.parquet", 0)
    assert us >= SLOW_US + SLEEP_US
    assert (
        "a batch of shard part-3.parquet"
        in reasons_of(recorded, "hugging_face")["loader_slow_shard"]
    )


def test_ray_data_tells_where_training_is_blocked(recorded: Recorded) -> None:
    figures = figures_of(recorded, "ray_data")
    assert (figures["kind"], figures["batches"]) == ("Ray Data", 60)
    assert max(figures["stages"], key=lambda stage: stage[1])[0] == "waiting for Ray's tasks"
    assert (
        "Ray Data: waiting for Ray's tasks takes"
        in reasons_of(recorded, "ray_data")["loader_stage"]
    )


def test_a_loader_that_shows_nothing_is_to_be_measured(recorded: Recorded) -> None:
    verdict = analyse(recorded.run("other_loader")).bottleneck
    [reason] = [reason for reason in verdict.why if reason.code == "loader_hidden"]
    assert reason.text == (
        "Rank 0: training does not show how batches are made: the loader is a OtherLoader, not a "
        "DataLoader."
    )
    assert "print(measure_input(data))" in {advice.line for advice in verdict.advice}
