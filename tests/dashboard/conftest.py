"""Every run is made once for all tests of the dashboard."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from support.step_logs import Job

from stallscope.dashboard import RunStore
from stallscope.run import Run

from .cases import HOSTILE, JOBS, REAL, SLOW_RANK, SYNTHETIC, WITHOUT_STAMPS, run_of


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """The run of a job of ``JOBS``, by its name."""

    @cache
    def named(name: str) -> Run:
        return run_of(tmp_path_factory.mktemp("run"), JOBS[name])

    return named


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    """A store with a run, its baseline, one with a slow rank, a hostile one, one without stamps."""
    jobs: tuple[Job, ...] = (REAL, SYNTHETIC, SLOW_RANK, HOSTILE, WITHOUT_STAMPS)
    return RunStore([run_of(tmp_path_factory.mktemp("run"), job) for job in jobs])
