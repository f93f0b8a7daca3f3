"""Every run is made once for all tests of the dashboard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import pytest
from playwright.sync_api import BrowserContext
from support.step_logs import Job, run_of_job

from stallscope.analysis import analyse
from stallscope.analysis.views.lanes import Lanes
from stallscope.dashboard import RunStore
from stallscope.dashboard.store.cache import lanes_of
from stallscope.run import Run

from .browsing import Open, opening, served
from .cases import HOSTILE, JOBS, REAL, SLOW_RANK, SYNTHETIC, WITHOUT_STAMPS


@pytest.fixture(scope="session")
def named_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """The run of a job of ``JOBS``, by its name."""

    @cache
    def named(name: str) -> Run:
        return run_of_job(tmp_path_factory.mktemp("run"), JOBS[name])

    return named


@pytest.fixture(scope="module")
def slow(named_run: Callable[[str], Run]) -> tuple[Run, Lanes]:
    """The run with a slow rank, and its lanes on the timeline."""
    run = named_run("a slow rank")
    lanes = lanes_of(analyse(run))
    assert lanes is not None
    return run, lanes


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    """A store with a run, its baseline, one with a slow rank, a hostile one, one without timestamps."""
    jobs: tuple[Job, ...] = (REAL, SYNTHETIC, SLOW_RANK, HOSTILE, WITHOUT_STAMPS)
    return RunStore([run_of_job(tmp_path_factory.mktemp("run"), job) for job in jobs])


@pytest.fixture(scope="session")
def address(store: RunStore) -> Iterator[str]:
    """Serve the store, and return its address; a module with other runs overrides this.

    The browser compiles all scripts again for the first two pages of a new address.
    """
    with served(store) as url:
        yield url


@pytest.fixture
def open_page(context: BrowserContext, address: str) -> Iterator[Open]:
    """Opens a page of the dashboard; afterwards nothing may have gone wrong, or elsewhere."""
    with opening(context, address) as opened:
        yield opened
