"""A rank of a real job hangs: the report names it, its stage, and its line of code."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.stopping import wait_for_stopped
from support.waiting import wait_until
from training.hanging import FATAL_STEP, PLACES, pipe_of
from training.launching import launch

from stallscope.analysis import analyse
from stallscope.parsers import read

pytestmark = [pytest.mark.horovod, pytest.mark.unmeasured]

FRAMEWORKS = ("torch", "keras")
STAGES = {
    "loader": "input",
    "backward": "compute",
    "other": "other",
    # A collective that the other rank does not call.
    "collective": "collective",
}

Hung = dict[str, Path]


@pytest.fixture(scope="module")
def jobs(training_side: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hung]:
    """Start two jobs, and return their folders by framework; each job trains once per place."""
    folder = tmp_path_factory.mktemp("hangs")
    jobs = {framework: folder / framework for framework in FRAMEWORKS}
    for out in jobs.values():
        out.mkdir()
        for place in PLACES:
            os.mkfifo(pipe_of(out, place))
    launches = [
        launch(folder / f"{framework}.txt", f"hang_{framework}.py", str(out), ranks=2)
        for framework, out in jobs.items()
    ]
    yield jobs
    for launched in launches:
        launched.end()


@pytest.fixture(scope="module", params=PLACES)
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def hung(jobs: Hung, place: str) -> Hung:
    """Let rank 1 of both jobs pass the places before this one, and return the logs of its hang."""
    for out in jobs.values():
        for earlier in PLACES[: PLACES.index(place)]:
            pipe = pipe_of(out, earlier)
            if pipe.exists():
                wait_until(lambda pipe=pipe: opened(pipe), f"a rank at {pipe}")
                pipe.unlink()
    return {framework: out / place for framework, out in jobs.items()}


def opened(pipe: Path) -> bool:
    """Open a pipe if a rank waits for that."""
    try:
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        if error.errno == errno.ENXIO:
            return False
        raise
    return True


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_rank_is_named_with_its_stage_and_line(hung: Hung, place: str, framework: str) -> None:
    stopped = wait_for_stopped(hung[framework], FATAL_STEP)
    (missing,) = stopped.ranks
    assert (missing.rank, missing.stage) == (1, STAGES[place])
    assert stopped.waiting == (0,)
    assert missing.where is not None
    assert Path(missing.where[0]).name == f"hang_{framework}.py"
    assert stopped.step in (FATAL_STEP, FATAL_STEP + 1)
    (run,) = read(str(hung[framework]))
    assert analyse(run).bottleneck.kind == "stopped"
