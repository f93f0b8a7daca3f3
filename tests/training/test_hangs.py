"""A rank of a real job stops for ever: the report names it, its stage, and its line of code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.stopping import wait_for_stopped
from training.hanging import FATAL_STEP
from training.launching import launch

from stallscope.analysis import analyse
from stallscope.parsers import read

pytestmark = [pytest.mark.horovod, pytest.mark.unmeasured]

PATIENCE_SECONDS = 120.0
FRAMEWORKS = ("torch", "keras")
STAGES = {
    "loader": "input",
    "backward": "compute",
    "other": "other",
    # A collective that the other rank does not call.
    "collective": "collective",
}

# Both frameworks' jobs for one place hang at the same time.
Hung = dict[str, Path]


@pytest.fixture(scope="module", params=STAGES)
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def hung(
    training_side: None, place: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Hung]:
    """The folders of two jobs whose rank 1 hangs in this place, by framework."""
    folder = tmp_path_factory.mktemp(place)
    logs = {framework: folder / framework for framework in FRAMEWORKS}
    launches = [
        launch(
            folder / f"{framework}.txt",
            f"hang_{framework}.py",
            place,
            str(logs[framework]),
            ranks=2,
        )
        for framework in FRAMEWORKS
    ]
    yield logs
    for launched in launches:
        launched.end()


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_rank_is_named_with_its_stage_and_line(hung: Hung, place: str, framework: str) -> None:
    found = wait_for_stopped(hung[framework], PATIENCE_SECONDS)
    (missing,) = found.ranks
    assert (missing.rank, missing.stage) == (1, STAGES[place])
    assert found.waiting == (0,)
    assert missing.where is not None
    assert Path(missing.where[0]).name == f"hang_{framework}.py"
    assert found.step in (FATAL_STEP, FATAL_STEP + 1)
    (run,) = read(str(hung[framework]))
    assert analyse(run).bottleneck.kind == "stopped"
