"""The log has figures of the DataLoader, and its batches are those that it makes unrecorded."""

from __future__ import annotations

import pytest
from training.recorded import Recorded, figures_of, record_cases

from stallscope.analysis import analyse

pytestmark = [pytest.mark.horovod, pytest.mark.unmeasured]

#: As in loader_cases.py.
SLEEP_US = 60_000.0
BATCHES, PROBED = 12, 4
CASES = (
    "in_process",
    "augmented_in_process",
    "probed",
    "forked",
    "persistent",
    "spawned",
    "collated",
    "augmented",
    "stream",
    "left_early",
    "own_iterator",
    "not_a_loader",
    "raises",
    "out_of_order",
    "cold",
    "crowded",
)


@pytest.fixture(scope="module")
def recorded(training_side: None, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return record_cases(tmp_path_factory.mktemp("loaders"), "loader_cases.py")


@pytest.mark.parametrize("case", CASES)
def test_recording_changes_no_batch_no_error_and_no_loader(recorded: Recorded, case: str) -> None:
    result = recorded.result(case)
    assert result["batches"] == result["silent"]
    assert len(result["batches"]) > 1
    assert (result["ours"], result["logged"]) == ([], [])


@pytest.mark.parametrize(
    ("case", "workers", "epochs"),
    [
        ("forked", 2, 2),
        ("persistent", 2, 3),
        ("spawned", 1, 1),
        ("collated", 2, 1),
        ("augmented", 2, 2),
    ],
)
def test_each_batch_is_counted_with_its_worker_and_its_step(
    recorded: Recorded, case: str, workers: int, epochs: int
) -> None:
    figures = figures_of(recorded, case)
    assert figures["reason"] is None
    assert figures["worker_batches"] == [epochs * BATCHES // workers] * workers
    # The first batch of an epoch waits for the workers' start.
    assert (figures["asked"], figures["iterations"]) == (epochs * (BATCHES - 1), epochs)
    assert figures["unmatched"] == 0
    assert [row[:2] for row in figures["epochs"]] == [[e, BATCHES - 1] for e in range(epochs)]
    assert all(0 < share <= 1 for share in figures["worker_busy"])
    assert figures["empty"] <= figures["asked"]


def test_batches_of_the_training_process_are_counted_and_collating_is_timed(
    recorded: Recorded,
) -> None:
    figures = figures_of(recorded, "in_process")
    assert (figures["workers"], figures["worker_busy"]) == (0, [])
    assert (figures["batches"], figures["asked"], figures["empty"]) == (2 * BATCHES, 22, 22)
    assert figures["collate_us"] >= SLEEP_US
    assert SLEEP_US <= figures["made_us"] == figures["waited_us"]


def test_cpu_time_and_functions_show_without_workers(recorded: Recorded) -> None:
    collated = figures_of(recorded, "in_process")
    # It sleeps.
    assert collated["cpu_us"] < collated["made_us"] - SLEEP_US / 2
    assert dict(figures_of(recorded, "augmented_in_process")["functions"])["augment"] > 0.5


def test_batches_that_a_probe_has_fetched_ahead_are_waited_for_in_no_step(
    recorded: Recorded,
) -> None:
    figures = figures_of(recorded, "probed")
    [fit] = recorded.fits("probed", ranks=1)
    probed = sum(len(probe["fetched_us"]) for probe in fit.facts["input_probe"]["probes"])
    assert probed >= 2 * PROBED
    assert figures["batches"] == 3 * BATCHES
    assert figures["asked"] + figures["iterations"] + probed == 3 * BATCHES
    # Several batches at once are no wait for one, nor is memory a wait.
    assert figures["waited_us"] < (PROBED - 1) * SLEEP_US
    assert figures["passed_us"] < SLEEP_US


def test_a_slow_worker_shows(recorded: Recorded) -> None:
    figures = figures_of(recorded, "forked")
    usual, slow = figures["worker_made_us"]
    assert usual < slow
    assert slow >= SLEEP_US
    # Batches of the other worker are ready first, and wait for their turn.
    assert figures["turn_us"] > SLEEP_US / 10
    assert figures["made_us_quantiles"][2] >= SLEEP_US * 0.97


def test_collating_is_timed_apart(recorded: Recorded) -> None:
    figures = figures_of(recorded, "collated")
    assert SLEEP_US <= figures["collate_us"] <= figures["made_us"]
    # It sleeps.
    assert figures["cpu_us"] + figures["crowded_us"] < figures["made_us"] - SLEEP_US / 2


def test_functions_of_the_data_set_are_timed_in_some_batches(recorded: Recorded) -> None:
    names = dict(figures_of(recorded, "augmented")["functions"])
    assert names["augment"] > 0.5


def test_workers_that_end_at_different_times_leave_no_gap(recorded: Recorded) -> None:
    figures = figures_of(recorded, "stream")
    assert figures["worker_batches"] == [2, 4]
    assert (figures["asked"], figures["unmatched"]) == (5, 0)


def test_an_iteration_that_is_left_does_not_disturb_the_next(recorded: Recorded) -> None:
    figures = figures_of(recorded, "left_early")
    assert (figures["asked"], figures["iterations"], figures["unmatched"]) == (4, 2, 0)


def test_other_loaders_have_the_reason_for_missing_figures(recorded: Recorded) -> None:
    figures = figures_of(recorded, "not_a_loader")
    assert (figures["reason"], figures["batches"]) == ("the loader is a list, not a DataLoader", 0)
    out_of_order = figures_of(recorded, "out_of_order")
    assert out_of_order["batches"] == BATCHES
    assert (out_of_order["asked"], out_of_order["waited_us"]) == (0, None)
    assert "batches come out of order" in out_of_order["reason"]


def reasons_of(recorded: Recorded, case: str) -> dict[str, str]:
    verdict = analyse(recorded.run(case)).bottleneck
    assert (verdict.kind, verdict.fault) == ("input", True)
    return {reason.code: reason.text for reason in verdict.why}


def test_a_cold_cache_is_named(recorded: Recorded) -> None:
    epochs = figures_of(recorded, "cold")["epochs"]
    assert epochs[0][2] >= SLEEP_US * 4
    assert "in the first epoch a batch takes" in reasons_of(recorded, "cold")["loader_cold"]


def test_more_workers_than_cores_are_named(recorded: Recorded) -> None:
    figures = figures_of(recorded, "crowded")
    assert figures["crowded_us"] > figures["made_us"] / 4
    reasons = reasons_of(recorded, "crowded")
    assert "CPU cores, and have one for" in reasons["loader_crowded"]
    assert "loader_few_workers" not in reasons
