"""The catalogue follows its store, survives any damage of its file, and finds runs by their facts."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from support.step_logs import Job, write_job

from stallscope.analysis import ENTRIES, analyse
from stallscope.analysis.gains.baseline import COMPARED
from stallscope.analysis.ledger import ledger as analysis_ledger
from stallscope.catalogue import checking, database
from stallscope.catalogue.entry import CAUSES, SHARES, Entry
from stallscope.catalogue.index import Catalogue
from stallscope.catalogue.matching import Baselines
from stallscope.catalogue.rows import COLUMNS, SCHEMA_VERSION
from stallscope.catalogue.where import FIELDS, parse_search, parse_where
from stallscope.collector.store.layout import CATALOGUE, MANIFEST, SUMMARY
from stallscope.collector.store.loading import load_run
from stallscope.collector.store.runs import save_run
from stallscope.errors import (
    NotFoundError,
    UnknownVersionError,
    UnreadableError,
    UnwritableError,
    UsageError,
)
from stallscope.parsers import read

JOB = Job(ranks=2, steps=60)
SYNTHETIC = {"synthetic": True}


def saved(store: Path, job: Job = JOB) -> Path:
    """Write a run into a store, unknown to the catalogue."""
    logs = store.parent / "logs" / job.run_id
    write_job(logs, job)
    return save_run(read(str(logs))[0], store)


def collected(store: Path, job: Job = JOB, *, analysed: bool = False) -> Entry:
    """Write a run into a store and its catalogue."""
    folder = saved(store, job)
    run = load_run(folder)
    entry = Entry.of(run, analyse(run) if analysed else None, folder)
    with Catalogue.open(store) as catalogue:
        catalogue.add(entry)
    return entry


def entries(store: Path, where: str = "", **options: object) -> list[str]:
    with Catalogue.open(store) as catalogue:
        found = catalogue.entries(parse_where(where), **options)  # type: ignore[arg-type]
    return [entry.id for entry in found]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    place = tmp_path / "store"
    place.mkdir()
    return place


@pytest.fixture
def filled(store: Path) -> Iterator[Catalogue]:
    """Make runs with different facts, from rows only."""
    entry = collected(store)
    facts = [
        {"id": "a", "model": "resnet50", "ranks": 8, "framework": "torch"},
        {"id": "b", "model": "resnet50", "ranks": 64, "framework": "tensorflow"},
        {"id": "c", "model": "BERT large", "ranks": 64, "synthetic": True},
        {"id": "d", "model": None, "ranks": 1, "hosts": ("gpu-7", "gpu-8")},
    ]
    summaries = [
        {"verdict": "input", "shares": {"input": 0.5, "compute": 0.5}, "samples_per_second": 100.0},
        {"verdict": "imbalance", "named_ranks": (3, 5), "samples_per_second": 3.0},
        {"verdict": "allreduce", "shares": {"input": 0.1, "compute": 0.9}},
        {},
    ]
    with Catalogue.open(store, follow=False) as catalogue:
        catalogue.remove(entry.id)
        for number, (own, summary) in enumerate(zip(facts, summaries, strict=True)):
            one = replace(
                entry,
                folder=str(own["id"]),
                started_at=f"2026-11-0{number + 1}T00:00:00.000Z",
                summary=replace(entry.summary, **summary),
                **own,
            )
            (store / one.folder).mkdir()
            catalogue.add(one)
        yield catalogue


# Entries


def test_an_entry_agrees_with_the_run_and_its_analysis(store: Path) -> None:
    job = replace(JOB, steps=200, epochs=2, slow={(1, "input"): 30.0}, hosts=("alpha", "beta"))
    entry = collected(store, job, analysed=True)
    run = load_run(store / entry.folder)
    analysis = analyse(run)
    with Catalogue.open(store) as catalogue:
        assert catalogue.find("run-a") == entry
        assert catalogue.entries() == [entry]
    assert (entry.id, entry.name, entry.folder, entry.status) == (
        "run-a",
        "run-a",
        "run-a",
        "completed",
    )
    assert (entry.framework, entry.model, entry.batch_size) == ("tensorflow", "made", 32)
    assert (entry.ranks, entry.hosts, entry.synthetic) == (2, ("alpha", "beta"), False)
    assert entry.bytes == sum(path.stat().st_size for path in (store / "run-a").rglob("*.parquet"))
    found = entry.summary
    assert (found.steps, found.epochs) == (200, 2)
    assert found.samples_per_second == analysis.samples_per_second
    assert analysis.step is not None
    assert found.step_ms == analysis.step.mean
    assert (found.verdict, found.cause, found.named_ranks) == ("imbalance", "input", (1,))
    assert {name: found.shares[name] for name in CAUSES} == {
        entry.name: entry.share for entry in analysis.by_cause
    }
    assert sum(found.shares[name] for name in CAUSES) == pytest.approx(1)
    waiting = analysis.entry("imbalance")
    assert waiting is not None
    assert found.shares["imbalance"] == waiting.share > 0


def test_without_an_analysis_steps_and_epochs_are_counted(store: Path) -> None:
    found = collected(store, replace(JOB, epochs=3)).summary
    assert (found.steps, found.epochs, found.verdict) == (60, 3, None)
    assert found.shares == {}


def test_every_field_of_a_filter_is_a_column() -> None:
    assert FIELDS.keys() - COLUMNS.keys() == {"age"}
    assert analysis_ledger.CAUSES == CAUSES
    assert set(ENTRIES) == set(SHARES)


def test_every_field_of_a_filter_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "catalogue.md").read_text()
    table = page.partition("| field |")[2].partition("\n\n")[0]
    first = [line.split(" | ")[0] for line in table.splitlines()]
    assert set(re.findall(r"`(\w+)`", " ".join(first))) == set(FIELDS)


def test_another_list_of_compared_facts_is_another_schema() -> None:
    # Rows identify runs of the same job by the compared facts at the time of writing. If this
    # fails, raise SCHEMA_VERSION by one, and add the list here.
    first = (
        *("model", "parameters", "batch_size", "optimizer", "backward_passes_per_step"),
        *("steps_per_execution", "framework", "versions", "threads"),
    )
    # The second version has another column, the third has shares by cause, the fourth has goodput.
    noted = {1: first, 2: first, 3: first, 4: first}
    assert noted[SCHEMA_VERSION] == COMPARED


def test_facts_of_strange_types_are_listed_too(store: Path) -> None:
    facts = {
        "batch_size": 10**40,
        "model": {"a": ["\ud800", None]},
        "framework": "\ud800[red]\x1b[2J",
        "versions": ["x"],
        "run_name": "\ud800",
    }
    collected(store, replace(JOB, facts=facts))
    (store / CATALOGUE).unlink()
    with Catalogue.open(store) as catalogue:
        (entry,) = catalogue.entries()
        assert (entry.batch_size, entry.ranks, entry.name) == (None, 2, "\ufffd")
        assert catalogue.problems == ()


# The file


def test_a_missing_catalogue_is_made_from_the_folders_with_its_verdicts(store: Path) -> None:
    entry = collected(store, analysed=True)
    saved(store, replace(JOB, run_id="run-b"))
    (store / CATALOGUE).unlink()
    with Catalogue.open(store) as catalogue:
        assert catalogue.find("run-a") == entry
        found = catalogue.find("run-b")
    assert found is not None
    assert (found.model, found.ranks, found.summary.verdict) == ("made", 2, None)


def test_findings_of_another_state_of_a_run_are_ignored(store: Path) -> None:
    collected(store, analysed=True)
    kept = (store / "run-a" / SUMMARY).read_bytes()
    saved(store, replace(JOB, steps=90))
    (store / "run-a" / SUMMARY).write_bytes(kept)
    (store / CATALOGUE).unlink()
    with Catalogue.open(store) as catalogue:
        found = catalogue.find("run-a")
    assert found is not None
    assert found.summary.verdict is None


def test_an_earlier_versions_summary_keeps_its_verdict_and_has_no_shares(store: Path) -> None:
    entry = collected(store, analysed=True)
    path = store / "run-a" / SUMMARY
    content = json.loads(path.read_bytes())
    path.write_text(json.dumps({**content, "stallscope_summary": 1}))
    (store / CATALOGUE).unlink()
    with Catalogue.open(store) as catalogue:
        found = catalogue.find("run-a")
    assert found == replace(entry, summary=replace(entry.summary, shares={}))


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"manifest": 3}'])
def test_a_damaged_summary_loses_the_verdict_and_nothing_else(store: Path, content: bytes) -> None:
    collected(store, analysed=True)
    (store / "run-a" / SUMMARY).write_bytes(content)
    (store / CATALOGUE).unlink()
    assert entries(store) == ["run-a"]


def _garbage(path: Path) -> None:
    path.write_bytes(b"remember the milk" * 1000)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def _scribbled(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096:-4096] = b"\xff" * (len(data) - 8192)
    path.write_bytes(data)


def _without_a_column(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE runs DROP COLUMN verdict")
    connection.close()


def _no_json(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE runs SET host = '[', facts = '3'")
    connection.close()


def _no_text(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE runs SET name = CAST(x'ff' AS TEXT)")
    connection.close()


def _empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    "harm", [_garbage, _cut, _scribbled, _without_a_column, _no_json, _no_text, _empty]
)
def test_a_damaged_catalogue_is_rebuilt(store: Path, harm: object) -> None:
    first = collected(store, analysed=True)
    second = collected(store, replace(JOB, run_id="run-b"))
    harm(store / CATALOGUE)  # type: ignore[operator]
    with Catalogue.open(store) as catalogue:
        assert {entry.id: entry for entry in catalogue.entries()} == {
            "run-a": first,
            "run-b": second,
        }
        catalogue.add(first)
    with Catalogue.open(store, follow=False) as catalogue:
        assert catalogue.count() == 2


def test_damage_while_it_is_open_is_repaired_too(store: Path) -> None:
    collected(store)
    with Catalogue.open(store) as catalogue:
        second = collected(store, replace(JOB, run_id="run-b"))
        _garbage(store / CATALOGUE)
        catalogue.add(second)
        assert {entry.id for entry in catalogue.entries()} == {"run-a", "run-b"}
    assert entries(store) == ["run-a", "run-b"]


def test_a_catalogue_that_was_moved_away_is_not_written_to(store: Path) -> None:
    collected(store)
    with Catalogue.open(store) as catalogue:
        (store / CATALOGUE).rename(store / "elsewhere")
        second = Entry.read(saved(store, replace(JOB, run_id="run-b")))
        catalogue.add(second)
    with Catalogue.open(store, follow=False) as catalogue:
        assert [entry.id for entry in catalogue.entries()] == ["run-b"]
    assert entries(store) == ["run-a", "run-b"]


def test_an_older_catalogue_is_rebuilt(store: Path) -> None:
    entry = collected(store)
    with sqlite3.connect(store / CATALOGUE) as connection:
        connection.execute("DROP TABLE runs")
        connection.execute("CREATE TABLE runs (id TEXT)")
        connection.execute("PRAGMA user_version = 0")
    connection.close()
    with Catalogue.open(store) as catalogue:
        assert catalogue.entries() == [entry]


def test_a_newer_catalogue_is_refused_by_its_version(store: Path) -> None:
    collected(store)
    with sqlite3.connect(store / CATALOGUE) as connection:
        connection.execute("PRAGMA user_version = 9")
    connection.close()
    with pytest.raises(UnknownVersionError, match=r"newer Stallscope \(version 9, .* upgrade"):
        Catalogue.open(store)


def test_a_foreign_database_is_left_alone(store: Path) -> None:
    with sqlite3.connect(store / CATALOGUE) as connection:
        connection.execute("CREATE TABLE recipes (name TEXT)")
    connection.close()
    before = (store / CATALOGUE).read_bytes()
    with pytest.raises(UnreadableError, match="a database of another program"):
        Catalogue.open(store)
    assert (store / CATALOGUE).read_bytes() == before


def test_without_write_permission_runs_are_listed_and_adding_fails(store: Path) -> None:
    entry = Entry.read(saved(store))
    (store / CATALOGUE).mkdir()
    with Catalogue.open(store) as catalogue:
        assert catalogue.entries() == [entry]
        assert catalogue.find("run-a") == entry
        with pytest.raises(UnwritableError, match="the catalogue cannot be written"):
            catalogue.add(entry)


def test_a_folder_without_a_row_is_listed_and_a_row_without_a_folder_is_not(store: Path) -> None:
    for name in ("run-a", "run-b"):
        collected(store, replace(JOB, run_id=name))
    saved(store, replace(JOB, run_id="run-c"))
    shutil.rmtree(store / "run-a")
    (store / "notes").mkdir()
    with Catalogue.open(store, follow=False) as catalogue:
        assert catalogue.folders() == {"run-a", "run-b"}
    assert entries(store) == ["run-b", "run-c"]
    with Catalogue.open(store, follow=False) as catalogue:
        assert catalogue.folders() == {"run-b", "run-c"}


def test_a_run_with_a_damaged_manifest_is_named_and_the_others_are_listed(store: Path) -> None:
    collected(store)
    for name, content in {"cut": "{", "other": '{"name": "x"}', "old": "[1]"}.items():
        (store / name).mkdir()
        (store / name / MANIFEST).write_text(content)
    content = json.loads((store / "run-a" / MANIFEST).read_text())
    (store / "strange").mkdir()
    (store / "strange" / MANIFEST).write_text(json.dumps({**content, "logs": []}))
    with Catalogue.open(store) as catalogue:
        assert [entry.id for entry in catalogue.entries()] == ["run-a"]
        assert len(catalogue.problems) == 4
    assert all("collect" in problem for problem in catalogue.problems)


def test_a_missing_store_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such folder"):
        Catalogue.open(tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []


# Checking


def test_a_run_that_is_replaced_while_it_is_checked_is_not_damaged(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "_AT_ONCE", 1)
    folder = saved(store)
    reads = []

    def replaced_once(read: int) -> None:
        reads.append(read)
        if len(reads) == 1:
            saved(store, replace(JOB, steps=90))

    found = checking.check_run(folder, replaced_once)
    assert (found.damage, found.files) == ((), 2)
    assert len(reads) > 2


# Several at once


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
    errors = [worker.communicate(timeout=120)[1] for worker in workers]
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
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[3])\n"
        "from test_catalogue import collected, replace, JOB\n"
        "for number in range(3):\n"
        "    collected(Path(sys.argv[1]) / 'store', replace(JOB, run_id=f'{sys.argv[2]}-{number}'))\n"
    )
    tests = Path(__file__).parent
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path), name, str(tests)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tests.parent), *sys.path])},
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in "ab"
    ]
    errors = [worker.communicate(timeout=240)[1] for worker in workers]
    assert errors == ["", ""]
    with Catalogue.open(store, follow=False) as catalogue:
        assert catalogue.folders() == {f"{name}-{number}" for name in "ab" for number in range(3)}


def test_a_writer_that_is_killed_in_the_middle_leaves_the_last_state(store: Path) -> None:
    known = [collected(store, replace(JOB, run_id=f"run-{name}")) for name in "abc"]
    done = subprocess.run(
        [sys.executable, "-c", _DIES, str(store)], capture_output=True, text=True, timeout=120
    )
    assert (done.stdout, done.returncode) == ("in the middle\n", -signal.SIGKILL), done.stderr
    assert (store / f"{CATALOGUE}-journal").stat().st_size > 0
    with Catalogue.open(store, follow=False) as catalogue:
        assert sorted(catalogue.entries(), key=lambda entry: entry.id) == known


# Filters and orders


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("", "abcd"),
        ("model=resnet50", "ab"),
        ("model=resnet50 ranks>=64", "b"),
        ("  ranks  >=  64  ", "bc"),
        ("model='BERT large'", "c"),
        ('model="BERT large" synthetic=yes', "c"),
        ("model~bert", "c"),
        ("model!=resnet50", "cd"),
        ("synthetic=no", "abd"),
        ("verdict=input", "a"),
        ("verdict!=input", "bcd"),
        ("input>20%", "a"),
        ("input>=0.1 compute<0.6", "a"),
        ("samples_per_second<50", "b"),
        ("host~GPU-7", "d"),
        ("host~'gpu-7 gpu-8'", "d"),
        ("host~'['", ""),
        ("hosts>=2", "d"),
        ("started_at>=2026-11-03", "cd"),
        ("started_at<2026-11-02T00:00:00+01:00", "a"),
        ("age>1s", "abcd"),
        ("bytes<1GB bytes>100B", "abcd"),
        ("id='; DROP TABLE runs; --'", ""),
        ("id~%", ""),
        ("model~''", "abcd"),
        ("model==resnet50 and ranks>=64", "b"),
        ("model=resnet50 or synthetic=yes", "abc"),
        ("ranks>=64 model=resnet50 or hosts>=2", "bd"),
        ("ranks>=64 (model=resnet50 or synthetic=yes)", "bc"),
        ("not(ranks>=64)", "ad"),
        ("not verdict=input not (ranks=1 or model~bert)", "b"),
        ("(model='BERT large')", "c"),
        ("(id=a or id=(b))", "a"),
        ("bottleneck=input", "a"),
        ("bottleneck~IMB size=64", "b"),
        ("input.share>20%", "a"),
        ("step_ms.mean<1h", ""),
        ("ranks>=1,0", "bc"),
        ("age<99w", "abcd"),
    ],
)
def test_filters(filled: Catalogue, where: str, found: str) -> None:
    assert {entry.id for entry in filled.entries(parse_where(where))} == set(found)
    assert filled.count(parse_where(where)) == len(found)
    # The dashboard's search filters entries in memory.
    assert {entry.id for entry in filled.entries() if parse_where(where).finds(entry)} == set(found)


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        ("rank=3", "there is no field 'rank'; there are id, name,"),
        ("rank=3", "; did you mean ranks?"),
        ("verdcit=input", "; did you mean verdict?"),
        ("ranks", "'ranks' is not a condition: give field, operator and value"),
        ("ranks => 3", "'ranks => 3' is not a condition"),
        ("model=x OR 1=1", "'OR 1=1' is not a condition"),
        ("model=x or", "column 11: the text ends where a condition is missing"),
        ("(model=x", "column 9: the ( of column 1 is not closed"),
        ("model='x')", "column 10: ')' is not a condition"),
        ("name='open", "is not a condition"),
    ],
)
def test_an_invalid_condition_is_an_error_of_one_sentence(where: str, sentence: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_where(where)
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        ("ranks>=many", "ranks>=many: ranks takes a whole number"),
        ("ranks=99999999999999999999", "ranks takes a whole number"),
        ("step_ms<nan", "step_ms takes a number"),
        ("synthetic=maybe", "synthetic takes yes or no"),
        ("bytes>3furlongs", "bytes takes a size"),
        ("started_at>yesterday", "started_at takes a time"),
        ("age>3", "age takes a span"),
        ("age>99999999999d", "age takes a span"),
        ("age=3d", "an age is compared by < or >"),
        ("model>3", "model can be =, != or, in words, ~"),
        ("ranks~3", "~ looks into words"),
        ("host=a", "use host~a"),
        ("age=3", "age takes a span"),
        ("step_ms<20%", "step_ms takes a number"),
        ("not (ranks>1 or ranks=x)", "ranks=x: ranks takes a whole number"),
        ("ranks>1 " * 51, "more than 50 conditions"),
        ("(" * 31, "more than 30 levels within each other"),
    ],
)
def test_invalid_filters_and_searches_are_errors_of_one_sentence(where: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=r"^--where: ") as error:
        parse_where(where)
    assert sentence in str(error.value)
    with pytest.raises(UsageError) as error:
        parse_search(f"resnet {where}")
    assert "--where" not in str(error.value)
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("order", "reverse", "found"),
    [
        ("age", False, "dcba"),
        ("age", True, "abcd"),
        ("ranks", False, "bcad"),
        ("samples_per_second", False, "abcd"),
        ("samples_per_second", True, "bacd"),
        ("model", False, "cabd"),
        ("model", True, "abcd"),
    ],
)
def test_orders_put_unknown_values_last(
    filled: Catalogue, order: str, reverse: bool, found: str
) -> None:
    assert "".join(entry.id for entry in filled.entries(order=order, reverse=reverse)) == found
    two = filled.entries(order=order, reverse=reverse, limit=2)
    assert "".join(entry.id for entry in two) == found[:2]


def test_an_order_by_something_else_is_refused(filled: Catalogue) -> None:
    with pytest.raises(UsageError, match="--sort: there is no field 'rank; DROP'"):
        filled.entries(order="rank; DROP")


def test_runs_of_one_id_are_distinguished_by_their_folders(store: Path) -> None:
    entry = collected(store)
    shutil.copytree(store / "run-a", store / "copy")
    with Catalogue.open(store) as catalogue:
        assert {one.folder for one in catalogue.find_all("run-a")} == {"run-a", "copy"}
        assert catalogue.remove("run-a", "copy") == 1
        assert catalogue.find("run-a") == entry
        assert catalogue.find("nonsense") is None


# Baselines and series


def at(day: int) -> dict[str, object]:
    """Return the start of a run."""
    return {
        "anchor": {"monotonic_ns": 1, "wall_ns": 1_790_000_000_000_000_000 + day * 86400 * 10**9}
    }


def test_a_baseline_is_the_same_job_on_synthetic_data(store: Path) -> None:
    own = collected(store)
    others = {
        "another-size": replace(JOB, ranks=3),
        "another-batch": replace(JOB, batch_size=64),
        "another-model": replace(JOB, facts={"model": "other"}),
        "another-optimizer": replace(JOB, facts={"optimizer": "Adam"}),
        "real": JOB,
    }
    for name, job in others.items():
        facts = {**job.facts, **({} if name == "real" else SYNTHETIC)}
        collected(store, replace(job, run_id=name, facts=facts))
    with Catalogue.open(store) as catalogue:
        assert Baselines(catalogue).of(own) is None
    # It may be later than the run that it belongs to.
    base = collected(store, replace(JOB, run_id="base", facts=SYNTHETIC))
    run = load_run(store / "run-a")
    with Catalogue.open(store) as catalogue:
        assert Baselines(catalogue).of(own) == base
        assert Baselines(catalogue).of(run) == base
        assert Baselines(catalogue).of(base) is None
        assert Baselines(catalogue).single_of(run) is None
    single = collected(store, replace(JOB, ranks=1, run_id="one", facts=SYNTHETIC))
    with Catalogue.open(store) as catalogue:
        assert Baselines(catalogue).single_of(run) == single
        assert Baselines(catalogue).single_of(single) is None


def test_of_several_baselines_the_nearest_and_then_the_newest_is_taken(store: Path) -> None:
    versions = {"versions": {"horovod": "0.28.1"}}
    own = collected(store, replace(JOB, facts={**versions, **at(1)}))
    for name, facts in {
        "near-old": {**versions, **at(2)},
        "near-new": {**versions, **at(3)},
        "far-newest": {"versions": {"horovod": "0.19.0"}, **at(4)},
    }.items():
        collected(store, replace(JOB, run_id=name, facts={**facts, **SYNTHETIC}))
    for expected in ("near-new", "near-old", "far-newest", None):
        with Catalogue.open(store) as catalogue:
            found = Baselines(catalogue).of(own)
            assert (None if found is None else found.id) == expected
            if found is not None:
                catalogue.remove(found.id)
                shutil.rmtree(store / found.folder)


def test_a_run_without_a_recorded_model_has_no_baseline(store: Path) -> None:
    own = collected(store, replace(JOB, facts={"model": None}))
    for ranks in (1, 2):
        facts = {"model": None, **SYNTHETIC}
        collected(store, replace(JOB, ranks=ranks, run_id=f"base-{ranks}", facts=facts))
    with Catalogue.open(store) as catalogue:
        assert Baselines(catalogue).of(own) is None
        assert Baselines(catalogue).single_of(own) is None
