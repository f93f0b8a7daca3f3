"""Pages of large collected runs, whose analyses are recalled and whose steps are read when needed, say
what they say of any run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from simulator import Fault, Job, Noise, simulate

from stallscope.analysis import Analysis
from stallscope.catalogue import analysis_cache
from stallscope.catalogue.collecting import list_runs
from stallscope.collector.store.loading import load_run
from stallscope.collector.store.run_folders import save_run
from stallscope.dashboard import RunStore, create_app
from stallscope.dashboard.app import view_at
from stallscope.dashboard.store import CollectedRuns
from stallscope.run import Run

from .content import texts

JOB = Job(
    ranks=9,
    steps=240,
    epochs=2,
    validation_ms=300,
    noise=Noise(cv=0.05),
    faults=(Fault("compute", 30, ranks=(3,)),),
    run_id="slow",
)
JOBS = [
    JOB,
    replace(JOB, faults=(), synthetic=True, run_id="synthetic"),
    replace(JOB, seed=5, run_id="again"),
    replace(JOB, seed=6, run_id="once-more"),
]
PAGES = ["", "/timeline", "/stragglers", "/step/100", "/communication", "/health", "/baseline"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(analysis_cache, "_FEWEST_ROWS", 1)
        places = [save_run(simulate(job).run, folder) for job in JOBS]
        list_runs([(load_run(place), place) for place in places], folder)
    return folder


def never(*_: Run | Analysis | None) -> Analysis:
    raise AssertionError("what was found is analysed again")


@pytest.mark.broad
@pytest.mark.parametrize("page", PAGES)
def test_every_page_is_that_of_the_run_in_memory(store: Path, page: str) -> None:
    recalled = RunStore(sources=[CollectedRuns(store)], analyse=never)
    loaded = RunStore([load_run(store / name) for name in ("slow", "synthetic")])
    address = f"/run/slow{page}", "?baseline=synthetic"
    said = texts(view_at(recalled, *address).content)
    assert "This page cannot be shown" not in said
    # The head and the choice of baselines know of the other runs as well.
    others = {"again", "once-more"}
    expected = [text for text in texts(view_at(loaded, *address).content) if text not in others]
    assert [text for text in said if text in expected] == expected


def test_runs_are_compared_and_saved(store: Path) -> None:
    recalled = RunStore(sources=[CollectedRuns(store)])
    for ids in ("slow,synthetic", "slow,again,once-more"):
        said = texts(view_at(recalled, "/compare", f"?runs={ids}").content)
        assert "This page cannot be shown" not in said
    client = create_app(recalled).server.test_client()
    for kind in ("report", "json"):
        address = f"/download/slow/{kind}"
        with client.get(address, headers={"Host": "127.0.0.1:8050"}) as answer:
            assert answer.status_code == 200
