"""Settings of a loader are tried in order, and invalid ones are refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from stallscope.collector.recorder.input import measuring_input as measure_module
from stallscope.collector.recorder.input.input_times import MeasuredInput
from stallscope.collector.recorder.input.measuring_input import Loader, check_workers, measure
from stallscope.collector.recorder.job.world import World

ALONE = World(0, 1, None)


class Clock:
    """A clock that only loaders advance."""

    ns = 0

    def __call__(self) -> int:
        return self.ns


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake_clock = Clock()
    monkeypatch.setattr(measure_module, "monotonic_ns", fake_clock)
    return fake_clock


@dataclass
class Pool:
    """A loader with batches that take 8 ms of one worker; at most four can work at once."""

    clock: Clock
    asked: list[tuple[int, int]] = field(default_factory=list)
    batches: int = 1000

    def of(self, workers: int, prefetch: int) -> Iterator[int]:
        self.asked.append((workers, prefetch))
        for batch in range(self.batches):
            self.clock.ns += 8_000_000 // min(workers, 4)
            yield batch

    def loader(self, **changes: Any) -> Loader:
        known = Loader(
            "pytorch", "DataLoader", lambda: self.of(1, 2), lambda _: 4, 1, lambda: ([], None)
        )
        return known._replace(with_workers=self.of, **changes)


def measured(folder: Path, pool: Pool, workers: int, **changes: Any) -> MeasuredInput:
    return measure(pool.loader(**changes), 12, folder, ALONE, workers)


def test_numbers_of_workers_are_tried_and_then_deeper_queues(tmp_path: Path, clock: Clock) -> None:
    pool = Pool(clock)
    measurement = measured(tmp_path, pool, 6)
    deeper = [(workers, prefetch) for workers in (1, 2, 4) for prefetch in (4, 8)]
    # The first one is the measurement itself.
    assert pool.asked == [(1, 2), (1, 2), (2, 2), (4, 2), (6, 2), *deeper]
    assert [trial[:2] for trial in measurement.trials] == sorted(pool.asked[1:])
    times = [trial.mean.ms for trial in measurement.trials if trial.mean is not None]
    assert times == [8.0] * 3 + [4.0] * 3 + [2.0] * 4
    trials = measurement.document()["trials"]
    assert [trial["workers"] for trial in trials] == [1, 1, 1, 2, 2, 2, 4, 4, 4, 6]
    assert {us for trial in trials[-4:] for us in trial["batches_us"]} == {2000}
    assert "more is no faster" in str(measurement)


def test_workers_deliver_in_rounds_which_is_no_uncertainty(tmp_path: Path, clock: Clock) -> None:
    def in_rounds(workers: int, prefetch: int) -> Iterator[int]:
        for batch in range(1000):
            clock.ns += 80_000_000 if batch % workers == 0 else 0
            yield batch

    loader = Pool(clock).loader()._replace(with_workers=in_rounds)
    measurement = measure(loader, 60, tmp_path, ALONE, 8)
    means = {trial.workers: trial.mean for trial in measurement.trials}
    assert {workers: mean and mean.ms for workers, mean in means.items()} == {
        1: 80.0,
        2: 40.0,
        4: 20.0,
        8: 10.0,
    }
    assert all(mean is not None and mean.ci95 == (mean.ms, mean.ms) for mean in means.values())


def test_without_a_number_nothing_is_tried(tmp_path: Path, clock: Clock) -> None:
    pool = Pool(clock)
    measurement = measured(tmp_path, pool, 0)
    assert (pool.asked, measurement.trials) == ([(1, 2)], [])
    assert "workers  prefetch" not in str(measurement)


def test_data_that_ends_before_there_is_a_rate_has_none(tmp_path: Path, clock: Clock) -> None:
    measurement = measured(tmp_path, Pool(clock, batches=8), 8)
    rates = {
        trial.workers: trial.mean is not None for trial in measurement.trials if trial.prefetch == 2
    }
    assert rates == {1: True, 2: True, 4: False, 8: False}
    assert all(trial["workers"] < 4 for trial in measurement.document()["trials"])
    assert "no rate" in str(measurement)


def test_an_error_of_a_worker_is_a_sentence(tmp_path: Path, clock: Clock) -> None:
    def broken(workers: int, prefetch: int) -> Iterator[int]:
        raise OSError("too many open files")

    loader = Pool(clock).loader()._replace(with_workers=broken)
    measurement = measure(loader, 12, tmp_path, ALONE, 4)
    assert measurement.trials == []
    assert measurement.no_trials == "no more settings were tried: OSError: too many open files"
    assert measurement.mean is not None


def test_trials_before_an_error_are_kept(tmp_path: Path, clock: Clock) -> None:
    pool = Pool(clock)

    def broken(workers: int, prefetch: int) -> Iterator[int]:
        if workers > 2:
            raise OSError("too many open files")
        return pool.of(workers, prefetch)

    measurement = measure(pool.loader()._replace(with_workers=broken), 12, tmp_path, ALONE, 4)
    assert [trial.workers for trial in measurement.trials] == [1, 2]
    assert measurement.no_trials == "no more settings were tried: OSError: too many open files"


@pytest.mark.parametrize(
    ("workers", "message"),
    [
        (-1, "from 0 on, not -1"),
        (2.0, "a number of workers, not 2.0"),
        (True, "a number of workers, not True"),
        ("4", "a number of workers, not '4'"),
    ],
)
def test_an_invalid_number_of_workers_is_refused(workers: Any, message: str, clock: Clock) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        check_workers(workers, Pool(clock).loader())


def test_only_a_loader_with_workers_has_some_to_try(clock: Clock) -> None:
    loader = Pool(clock).loader(kind="tf.data")._replace(with_workers=None)
    assert check_workers(0, loader) == 0
    with pytest.raises(ValueError, match=r"needs a DataLoader; tf\.data has no workers"):
        check_workers(4, loader)
