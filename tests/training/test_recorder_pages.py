"""The script of each recorder's page runs as printed, and records a run as documented."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from training.environments import KERAS3, MXNET, needs
from training.launching import ENVIRONMENT, Launch, programs_of
from training.pages import RECORDERS, blocks

from stallscope.analysis import analyse
from stallscope.parsers import read

pytestmark = [pytest.mark.frameworks, pytest.mark.unmeasured]

#: By page: the environment, and the ranks that the page starts.
SCRIPTS = {
    "accelerate": (KERAS3, 2),
    "fsdp": (KERAS3, 2),
    "jax": (KERAS3, 2),
    "keras": (ENVIRONMENT, 2),
    "keras3": (KERAS3, 1),
    "lightning": (KERAS3, 2),
    "loops": (ENVIRONMENT, 2),
    "mxnet": (MXNET, 2),
    "parallelism": (KERAS3, 2),
    "pytorch": (ENVIRONMENT, 2),
    "transformers": (KERAS3, 2),
}

#: Pages of frameworks whose recorder is that of another page's script.
VARIANTS = ("accelerate", "fsdp", "loops", "parallelism", "transformers")


@dataclass(frozen=True)
class Script:
    launched: Launch
    logs: Path


@pytest.fixture(scope="module")
def scripts(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Script]]:
    """Start the scripts of the selected tests as documented, all at once: they mostly import."""
    selected = {
        item.callspec.params["name"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.module is request.module
        if hasattr(item, "callspec")
    }
    started = {
        name: start(name, environment, tmp_path_factory.mktemp(name))
        for name, (environment, _) in SCRIPTS.items()
        if name in selected and (environment / ".ready").exists()
    }
    yield started
    for script in started.values():
        script.launched.end()


def start(name: str, environment: Path, folder: Path) -> Script:
    page = RECORDERS / f"{name}.md"
    (folder / "train.py").write_text(blocks(page, "python")[0])
    command, report = blocks(page, "sh")[0].splitlines()
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HOROVOD_")}
    # Horovod's own command only once: it uses 8 s of a core before the first rank starts.
    programs = (environment / "bin",) if name == "keras" else programs_of(environment)
    path = os.pathsep.join([*map(str, programs), os.environ["PATH"]])
    printed = folder / "printed.txt"
    with printed.open("wb") as file:
        process = subprocess.Popen(
            ["bash", "-c", command],
            cwd=folder,
            env={**kept, "PATH": path, "OMP_NUM_THREADS": "1"},
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Script(Launch(process, printed), folder / report.rpartition(" ")[2])


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.variant] if name in VARIANTS else [])
        for name in SCRIPTS
    ],
)
def test_the_script_runs_as_printed(scripts: dict[str, Script], name: str) -> None:
    environment, ranks = SCRIPTS[name]
    needs(environment)
    scripts[name].launched.succeed()
    (run,) = read(str(scripts[name].logs))
    assert (run.size, run.ranks, run.status) == (ranks, list(range(ranks)), "completed")
    assert analyse(run).ledger is not None


def test_every_recorder_has_a_page() -> None:
    listed = re.findall(r"\]\((\w+)\.md\)", (RECORDERS / "README.md").read_text())
    assert set(listed) == {page.stem for page in RECORDERS.glob("*.md")} - {"README"}
