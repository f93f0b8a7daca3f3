"""The load of thousands of ranks on a disk and a server, without communication between them."""

from __future__ import annotations

import pytest

from stallscope.collector.recorder.step_log.log_files import (
    COPY_SECONDS,
    FIRST_UPLOAD_REQUESTS,
    FIRST_UPLOAD_SECONDS,
    REQUESTS_PER_SECOND,
    SHORTEST_COPY_SECONDS,
    UPLOAD_SECONDS,
    UPLOAD_SHARE,
    CopySchedule,
    next_pause_seconds,
    turn_seconds,
)

SIZES = [1, 8, 64, 1_000, 4_096, 10_000]
# Multiples of the golden ratio are never further from evenly spread than a few of them.
EVENLY = 4


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("requests", [1, FIRST_UPLOAD_REQUESTS])
def test_ranks_that_start_together_keep_to_the_limit_in_every_second(
    size: int, requests: int
) -> None:
    turns = sorted(turn_seconds(rank, size, requests) for rank in range(size))
    assert turns[0] == 0
    assert turns[-1] < size * requests / REQUESTS_PER_SECOND
    in_a_second = int(REQUESTS_PER_SECOND / requests) + EVENLY
    assert all(
        later - earlier >= 1 for earlier, later in zip(turns, turns[in_a_second:], strict=False)
    )


def uploads(size: int, seconds: float) -> list[float]:
    """Return when rank 0 of so many uploads, as its uploading process goes from one pause to the
    next.
    """
    pause, now, times = FIRST_UPLOAD_SECONDS, FIRST_UPLOAD_SECONDS, []
    while now < seconds:
        times.append(now)
        pause = next_pause_seconds(pause, now, size)
        now += pause
    return times


@pytest.mark.parametrize("size", SIZES)
def test_the_uploads_of_all_ranks_keep_to_the_limit(size: int) -> None:
    times = uploads(size, 36_000)
    for earlier, later in zip(times, times[1:], strict=False):
        assert size / (later - earlier) <= REQUESTS_PER_SECOND * (1 + 1e-9)
        # A killed container loses this.
        assert later - earlier <= max(UPLOAD_SECONDS, UPLOAD_SHARE * earlier) + 1e-9


def test_ten_times_as_long_a_run_has_not_twice_the_uploads() -> None:
    ten_hours, a_hundred = (len(uploads(1, hours * 3600.0)) for hours in (10, 100))
    assert 40 < ten_hours < 50
    assert ten_hours < a_hundred < 2 * ten_hours


def copies(rank: int, size: int, epoch_seconds: float, seconds: int) -> list[int]:
    """Return when a rank's spooled log is copied; it looks every second."""
    schedule, times = CopySchedule(rank, size, 0.0), []
    for now in range(seconds):
        if now and now % epoch_seconds == 0:
            schedule.epoch_ended(now)
        if schedule.is_due(now):
            times.append(now)
    return times


def test_an_epochs_rows_are_copied_at_its_end() -> None:
    assert copies(0, 1, 200, 700) == [200, 400, 600]
    assert copies(0, 1, 10_000, 1_000) == [COPY_SECONDS, 2 * COPY_SECONDS, 3 * COPY_SECONDS]


def test_short_epochs_are_not_all_copied() -> None:
    times = copies(0, 1, 7, 1_000)
    assert times[0] == 7
    pauses = [later - earlier for earlier, later in zip(times, times[1:], strict=False)]
    assert min(pauses) >= SHORTEST_COPY_SECONDS
    assert max(pauses) < SHORTEST_COPY_SECONDS + 7


@pytest.mark.broad
@pytest.mark.parametrize("epoch_seconds", [10, 240, 10_000])
def test_ranks_that_end_their_epochs_together_take_turns(epoch_seconds: int) -> None:
    size = 4_096
    per_second: dict[int, int] = {}
    for rank in range(size):
        for now in copies(rank, size, epoch_seconds, 1_000):
            per_second[now] = per_second.get(now, 0) + 1
    # Some short epochs end while others still wait for their turn.
    at_once = 3 if epoch_seconds == 10 else 1
    assert max(per_second.values()) <= at_once * REQUESTS_PER_SECOND + EVENLY
    assert sum(per_second.values()) <= 1_000 * REQUESTS_PER_SECOND
