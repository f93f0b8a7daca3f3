"""Several collectors that use one catalogue at once lose nothing."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from support.catalogues import JOB, collected
from support.waiting import PATIENCE_SECONDS

from stallscope.catalogue import database
from stallscope.catalogue.database import SCHEMA_VERSION
from stallscope.catalogue.index import Catalogue
from stallscope.collector.store.layout import CATALOGUE

_ADDS = """
import sys
from dataclasses import replace
from pathlib import Path
from stallscope.catalogue.entry import Entry
from stallscope.catalogue.index import Catalogue
store, worker = Path(sys.argv[1]), sys.argv[2]
entry = Entry.read(store / "run-a")
sys.stdin.readline()
for number in range(25):
    name = f"{worker}-{number}"
    (store / name).mkdir()
    with Catalogue.open(store, follow=number % 5 == 0) as catalogue:
        catalogue.add(replace(entry, id=name, folder=name))
"""

_DIES = """
import os, signal, sys
from pathlib import Path
from stallscope.catalogue.index import Catalogue
catalogue = Catalogue.open(Path(sys.argv[1]), follow=False)
rows = catalogue._database._connection
rows.execute("PRAGMA cache_size = 1")
rows.execute("BEGIN IMMEDIATE")
# More than fits into the cache: the file itself is half changed when the process dies.
for number in range(300):
    rows.execute("UPDATE runs SET name = ?", (str(number) * 20_000,))
print("in the middle", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_database_that_another_collector_is_creating_is_not_foreign(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected(store)
    (store / CATALOGUE).unlink()
    monkeypatch.setattr(database, "_PATIENCE_SECONDS", 0.1)
    ours, came = database._open_connection(store / CATALOGUE), []

    def comes_in_between(statement: str) -> None:
        if "user_version" in statement and not came:
            came.append(statement)
            theirs = database._open_connection(store / CATALOGUE)
            with suppress(sqlite3.OperationalError):
                database._prepare(theirs, store / CATALOGUE)
            theirs.close()

    ours.set_trace_callback(comes_in_between)
    database._prepare(ours, store / CATALOGUE)
    assert came
    assert database._version(ours, store / CATALOGUE) == SCHEMA_VERSION
    ours.close()


@pytest.mark.any_versions
@pytest.mark.slow
def test_collectors_at_once_lose_no_row(store: Path) -> None:
    entry = collected(store)
    (store / CATALOGUE).unlink()
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", _ADDS, str(store), f"worker{number}"],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(4)
    ]
    # All have imported what they need before the first one starts.
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    errors = [worker.communicate(timeout=PATIENCE_SECONDS)[1] for worker in workers]
    assert errors == [""] * 4
    expected = {f"worker{worker}-{number}" for worker in range(4) for number in range(25)}
    with Catalogue.open(store, follow=False) as catalogue:
        assert catalogue.folders() | {"run-a"} == expected | {"run-a"}
        assert catalogue.count() in (100, 101)
    with Catalogue.open(store) as catalogue:
        assert catalogue.find("run-a") == entry
    with sqlite3.connect(store / CATALOGUE) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


@pytest.mark.any_versions
@pytest.mark.slow
def test_whole_collections_at_once_are_all_listed(store: Path, tmp_path: Path) -> None:
    program = (
        "import sys; from dataclasses import replace; from pathlib import Path\n"
        "from support.catalogues import JOB, collected\n"
        "for number in range(3):\n"
        "    collected(Path(sys.argv[1]) / 'store', replace(JOB, run_id=f'{sys.argv[2]}-{number}'))\n"
    )
    tests = Path(__file__).parents[1]
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path), name],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tests), *sys.path])},
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in "ab"
    ]
    errors = [worker.communicate(timeout=PATIENCE_SECONDS)[1] for worker in workers]
    assert errors == ["", ""]
    with Catalogue.open(store, follow=False) as catalogue:
        assert catalogue.folders() == {f"{name}-{number}" for name in "ab" for number in range(3)}


def test_a_writer_that_is_killed_in_the_middle_leaves_the_last_state(store: Path) -> None:
    known = [collected(store, replace(JOB, run_id=f"run-{name}")) for name in "abc"]
    done = subprocess.run(
        [sys.executable, "-c", _DIES, str(store)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert (done.stdout, done.returncode) == ("in the middle\n", -signal.SIGKILL), done.stderr
    assert (store / f"{CATALOGUE}-journal").stat().st_size > 0
    with Catalogue.open(store, follow=False) as catalogue:
        assert sorted(catalogue.entries(), key=lambda entry: entry.id) == known
