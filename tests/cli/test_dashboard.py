"""The runs that ``stallscope dashboard`` shows for a command line."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.commands import collect_job
from support.step_logs import Job

from stallscope.cli.dashboard import COMPONENTS, _hidden, open_store
from stallscope.cli.main import main
from stallscope.collector.run_names import RunAddress
from stallscope.dashboard import RunStore
from stallscope.errors import UsageError

JOB = Job(ranks=2, steps=100)
JOBS = (
    replace(JOB, run_id="slow", slow={(1, "input"): 9.0}),
    replace(JOB, run_id="base", facts={"synthetic": True}),
)


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write logs of two runs, and collect both into ``store``; read-only."""
    folder = tmp_path_factory.mktemp("made")
    for job in JOBS:
        collect_job(folder, job)
    return folder


@pytest.fixture
def here(collected: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(collected, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ids(*sources: str) -> list[str]:
    store, failures = open_store([*map(RunAddress.parse, sources)])
    assert failures == []
    return sorted(run.id for run in store.runs())


def test_a_store_is_all_of_its_runs(here: Path) -> None:
    assert ids("store") == ["base", "slow"]


def test_one_run_of_a_store_is_shown_with_its_baseline(here: Path) -> None:
    for source in ("store#slow", "store/slow"):
        store, _ = open_store([RunAddress.parse(source)])
        assert [run.id for run in store.runs()] == ["slow"]
        assert store.baseline_of("slow") == "base"
        assert store.analysis("slow", "base").baseline is not None
    assert ids("store#slow", "store/base") == ["base", "slow"]
    assert ids("store#slow", "store") == ["base", "slow"]
    assert ids("store", "store#slow") == ["base", "slow"]


@pytest.mark.parametrize("name", ["logs", "exp#3"])
def test_a_folder_of_logs_is_all_of_its_runs(here: Path, name: str) -> None:
    (here / "logs").rename(here / name)
    assert ids(name) == ["base", "slow"]
    assert ids(f"{name}#slow") == ["slow"]
    store, _ = open_store([RunAddress.parse(name)])
    assert store.baseline_of("slow") == "base"
    flat = here / "flat#1"
    flat.mkdir()
    for log in (here / name).glob("*/*.csv"):
        log.rename(flat / f"{log.parent.name}.{log.name}")
    assert ids("flat#1") == ["base", "slow"]
    assert ids("flat#1#base") == ["base"]


def test_logs_and_stores_are_shown_together(here: Path) -> None:
    assert ids("logs/slow", "store") == ["base~2", "slow", "slow~2"]


def test_unreadable_runs_are_reported_and_the_others_shown(here: Path) -> None:
    store, failures = open_store(
        [*map(RunAddress.parse, ["nowhere", "store#nobody", "store#slow"])]
    )
    assert [run.id for run in store.runs()] == ["slow"]
    assert any("nowhere: no such file or folder" in failure for failure in failures)
    assert any('store: no such run: "nobody"; there are ' in failure for failure in failures)


def test_with_nothing_to_show_there_is_no_dashboard(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match="none of the runs can be shown"):
        open_store([RunAddress("nowhere")])
    assert "nowhere: no such file or folder" in capsys.readouterr().err


def test_without_a_run_and_without_a_store_it_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["dashboard"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        "stallscope: no runs were collected into this folder, runs or .stallscope/demo: name a RUN, "
        "or start with stallscope collect SOURCE --to runs, or with stallscope demo"
    )


@pytest.mark.parametrize("place", [".", "runs", ".stallscope/demo"])
def test_without_a_run_the_store_nearby_is_served(
    here: Path, place: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    served: list[RunStore] = []
    # Serving itself is tested by test_commands.py.
    monkeypatch.setattr(
        "stallscope.dashboard.server.serve", lambda store, **_: served.append(store)
    )
    cwd = here / "store"
    if place != ".":
        cwd = here / "work"
        (cwd / place).parent.mkdir(parents=True)
        shutil.move(here / "store", cwd / place)
    monkeypatch.chdir(cwd)
    assert main(["dashboard"]) == 0
    shown = "this folder" if place == "." else place
    assert capsys.readouterr().err == f"stallscope: the runs collected into {shown}\n"
    assert sorted(run.id for run in served[0].runs()) == ["base", "slow"]


def test_the_command_imports_the_components_that_pages_use() -> None:
    pages = (Path(__file__).parents[2] / "dashboard").rglob("*.py")
    used = {name for page in pages for name in re.findall(r"\bdmc\.([A-Z]\w+)", page.read_text())}
    assert used == {*COMPONENTS}


@pytest.mark.broad
def test_components_know_their_scripts_and_where_others_may_be_in_them() -> None:
    program = (
        "import sys; from stallscope.cli import dashboard; "
        "sys.argv[1:] and dashboard._import_components(); import dash_mantine_components as dmc; "
        "from dash.development.base_component import ComponentRegistry; "
        "props = ComponentRegistry.children_props['dash_mantine_components']; "
        "print(*(len(getattr(dmc, name)._js_dist) for name in dashboard.COMPONENTS), "
        "*(props.get(name) for name in dashboard.COMPONENTS), sep=';'); print(hasattr(dmc, 'Slider'))"
    )
    few, all_of_them = (
        subprocess.run(
            [sys.executable, "-c", program, *words], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        for words in (["few"], [])
    )
    assert few[0] == all_of_them[0]
    assert (few[1], all_of_them[1]) == ("False", "True")


def test_dash_is_imported_without_what_notebooks_need() -> None:
    program = (
        "import sys; from stallscope.cli.dashboard import _hidden\n"
        "with _hidden('IPython'):\n    import dash\n"
        "print('requests' in sys.modules, hasattr(dash, 'Dash'), 'IPython' in sys.modules)"
    )
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "False"]


def test_a_hidden_package_can_be_imported_later() -> None:
    sys.modules.pop("wave", None)
    with _hidden("wave"), pytest.raises(ImportError):
        importlib.import_module("wave")
    assert importlib.import_module("wave").Error
    with _hidden("wave"):
        assert importlib.import_module("wave").Error
